"""Whether there is what a user pins, before anything is searched."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches

from ms_symtensor.errors import InputError
from ms_symtensor.program.meanings import Meanings, meanings
from ms_symtensor.search.constraints.limits import LOWEST, shown
from ms_symtensor.search.constraints.operator_pins import OperatorPin
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.constraints.roles import batch_size, expert_products, major_products, stream_norms
from ms_symtensor.search.folded.folding import fold
from ms_symtensor.tensor.graph import Graph, Op
from ms_symtensor.tensor.names import short_name

SHOWN = 6
"""So many names are shown at most."""

NEEDS: Mapping[str, tuple[Callable[[Graph, Meanings], object], str]] = {
    "expert_parallel": (expert_products, "experts"),
    "context_parallel": (batch_size, "attention"),
    "sequence_parallel": (stream_norms, "norms"),
    "model_parallel": (major_products, "products with weights"),
}
"""What a degree is a cut of: how it is found in a graph, and what it is called."""


def require_pinnable(graph: Graph, request: Request) -> None:
    """InputError for a pin of what `graph` does not have; of no operator, or of only some of those that share a strategy."""
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
