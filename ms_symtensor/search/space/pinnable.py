"""Whether operators can be cut as a user pins them, before anything is searched."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches

from ms_symtensor.errors import InputError
from ms_symtensor.ops.placement import cuts_of
from ms_symtensor.ops.signature import OpView, Signature
from ms_symtensor.program.meanings import Meanings, cut_by_default, default_strategy, meanings
from ms_symtensor.search.asked.limits import LOWEST, Limits, shown
from ms_symtensor.search.asked.operator_pins import OperatorPin
from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.asked.roles import batch_size, expert_products, major_products, stream_norms
from ms_symtensor.search.folded.folding import fold
from ms_symtensor.search.space.cases import cases
from ms_symtensor.search.space.domain import candidates, divisors, prime_factors
from ms_symtensor.search.space.family import Single
from ms_symtensor.search.space.restriction import Restriction
from ms_symtensor.tensor.graph import Graph, Op
from ms_symtensor.tensor.names import short_name

SHOWN = 6
"""So many names or strategies are shown at most."""

NEEDS: Mapping[str, tuple[Callable[[Graph, Meanings], object], str]] = {
    "expert_parallel": (expert_products, "experts"),
    "context_parallel": (batch_size, "attention"),
    "sequence_parallel": (stream_norms, "norms"),
    "model_parallel": (major_products, "products with weights"),
}
"""What a degree is a cut of: how it is found in a graph, and what it is called."""


def require_pinnable(graph: Graph, request: Request) -> None:
    """InputError for a pin of what `graph` does not have; of no operator, or of only some of those that share a strategy; or that
    no layout on the request's devices obeys.
    """
    limits = request.limits
    least = {name: limits.least.get(name, LOWEST[name]) for name in NEEDS}
    wanted = [name for name in NEEDS if least[name] > LOWEST[name]]
    if not wanted and not limits.operators:
        return
    known = meanings(graph, request.rules)
    for name in wanted:
        has, what = NEEDS[name]
        if not has(graph, known):
            raise InputError(f"{name} = {shown(name, least[name])}: {request.model or 'the network'} has no {what}")
    classes = [members for members in fold(graph).members if known[members[0].name][1].shardable]
    for pin in limits.operators:
        _require_names(graph, classes, pin)
    for members in classes:
        pins = tuple(pin for pin in limits.operators if pin.is_for(members[0]))
        if pins:
            _require_layout(graph, members[0], known[members[0].name], pins, request)


def _require_names(graph: Graph, classes: Sequence[Sequence[Op]], pin: OperatorPin) -> None:
    found = [[pin.is_for(op) for op in members] for members in classes]
    if not any(map(any, found)):
        names = list(dict.fromkeys(short_name(op) for members in classes for op in members))
        if any(pin.is_for(op) for op in graph.ops):
            raise InputError(
                f"{pin}: MindSpore takes no strategy for these operators, but lays them out as their inputs are"
            )
        near = get_close_matches(pin.pattern.replace("/", ".").strip("*."), names, SHOWN, 0.3) or names[:SHOWN]
        raise InputError(f"{pin}: no operator is called so; near are {', '.join(near)} (* stands for any characters)")
    for members, called in zip(classes, found, strict=True):
        if any(called) and not all(called):
            raise InputError(
                f"{pin}: {short_name(members[0])} has one strategy in all blocks that are alike: name it without its block,"
                f" *.{short_name(members[0])}"
            )


def _require_layout(
    graph: Graph, op: Op, known: tuple[OpView, Signature], pins: tuple[OperatorPin, ...], request: Request
) -> None:
    """InputError if no strategy of `op` obeys `pins`, whatever dp and tp stand for."""
    seen, sig = known
    mesh = Single(prime_factors(request.device_num))
    by_default = op.name in cut_by_default(graph)
    if by_default:
        usual = every = [default_strategy(seen, sig, devices) for devices in reversed(divisors(request.device_num))]
    else:
        every = [strategy for strategy, _ in candidates(seen, sig, mesh, idle=True)]
        usual = [strategy for strategy, _ in candidates(seen, sig, mesh)]
    for case in cases(Limits(operators=pins), request.device_num):
        allowed = Restriction(graph, {seen.name: known}, case, mesh).allowed(seen, sig, every)
        if allowed is None or allowed.any():
            return
    cuts = [cuts_of(seen, sig, strategy, request.device_num) for strategy in usual]
    texts = dict.fromkeys(", ".join(f"{d}/{n}" for d, n in cut.items() if n > 1) or "whole" for cut in cuts)
    sizes = ", ".join(f"{d} ({sig.sizes[d]})" for d in sig.mesh)
    more = ", …" if len(texts) > SHOWN else ""
    raise InputError(
        f"{'; '.join(map(str, pins))}: no layout of {short_name(op)} on {request.device_num} devices is so; its dims are {sizes},"
        f" its layouts {' or '.join(list(texts)[:SHOWN])}{more}"
        + (
            " (without a primitive of its own it is cut as MindSpore does: give it one in its cell)"
            if by_default
            else ""
        )
    )
