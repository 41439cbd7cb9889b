"""What limits leave: the cases in which they are searched, operators that have no layout within them, or none that trains a
parameter rightly.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from ms_symtensor.algebra.divisors import divisors
from ms_symtensor.errors import InputError, InvalidStrategyError
from ms_symtensor.ops.instead import why_undistributed
from ms_symtensor.ops.placement import OpStrategy, cuts_of, place
from ms_symtensor.ops.signature import OpView, Signature
from ms_symtensor.program.meanings import Meanings, cut_by_default, default_strategy, meanings
from ms_symtensor.program.parameters import is_summed, place_parameter, require_synchronised
from ms_symtensor.program.settings import OptimizerLevel, Settings
from ms_symtensor.search.constraints.limits import SWAP, Limits
from ms_symtensor.search.constraints.operator_pins import OperatorPin
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.folded.folding import fold
from ms_symtensor.search.space.domain import candidates, prime_factors
from ms_symtensor.search.space.family import Single
from ms_symtensor.search.space.restriction import Restriction
from ms_symtensor.tensor.graph import Graph, Op, OpOutput, Parameter, ParameterRef, Source
from ms_symtensor.tensor.layout import Layout
from ms_symtensor.tensor.names import short_name

SHOWN = 6
"""So many names or strategies are shown at most."""


def cases(limits: Limits, device_num: int) -> tuple[Limits, ...]:
    """Limits which together allow the same plans on so many devices.

    Each says whether optimizer states are swapped, and has exact numbers for the degrees that pins of operators speak of.
    """
    found = by_swap(limits)
    for name in sorted({symbol for pin in limits.operators for symbol in pin.symbols}):
        found = [one for some in found for one in _each(some, name, device_num)]
    if len(found) == 1:
        return tuple(found)
    return tuple(one for one in found if device_num % _devices(one) == 0)


def _devices(limits: Limits) -> int:
    """Devices of a stage that a plan needs, or a divisor of them."""
    return limits.least.get("data_parallel", 1) * limits.least.get("model_parallel", 1)


def by_swap(limits: Limits) -> list[Limits]:
    """Those which say whether optimizer states are swapped."""
    if len(limits.swaps) == 1:
        return [limits]
    return [
        replace(limits, least={**limits.least, SWAP: int(swap)}, most={**limits.most, SWAP: int(swap)})
        for swap in limits.swaps
    ]


def _each(limits: Limits, name: str, device_num: int) -> Iterator[Limits]:
    """Those with every number of `name` that is allowed."""
    if name in limits.least and limits.least[name] == limits.most.get(name):
        yield limits
        return
    for number in reversed(divisors(device_num)):
        if limits.allows(name, number):
            yield replace(limits, least={**limits.least, name: number}, most={**limits.most, name: number})


@dataclass(frozen=True)
class Layouts:
    """The layouts of the operators of `graph`, equal blocks' once, at the batch that it has.

    Smaller batches, those of micro-batches, have no others. On a mesh of prime axes there are those of all meshes.
    """

    graph: Graph
    known: Meanings
    _found: dict[tuple[str, int], list[OpStrategy]] = field(default_factory=dict)

    def operators(self) -> Iterator[Op]:
        """The operators that have a layout, one for all that share it."""
        for members in fold(self.graph).members:
            if self.known[members[0].name][1].shardable:
                yield members[0]

    def of(self, op: Op, devices: int) -> list[OpStrategy]:
        """Those of `op` on so many devices; none where MindSpore rejects it there."""
        if (op.name, devices) not in self._found:
            self._found[op.name, devices] = self._all(op, *self.known[op.name], devices)
        return self._found[op.name, devices]

    def _all(self, op: Op, seen: OpView, sig: Signature, devices: int) -> list[OpStrategy]:
        try:
            if op.name in cut_by_default(self.graph):
                return [default_strategy(seen, sig, number) for number in reversed(divisors(devices))]
            mesh = Single(prime_factors(devices))
            return [strategy for strategy, _ in candidates(seen, sig, mesh, idle=True)]
        except InvalidStrategyError:
            return []

    def without(self, within: Restriction, devices: int, ops: Sequence[Op]) -> Iterator[Op]:
        """Those of `ops` for which nothing is left on so many devices."""
        for op in ops:
            seen, sig = self.known[op.name]
            allowed = within.allowed(seen, sig, strategies) if (strategies := self.of(op, devices)) else None
            if not strategies or (allowed is not None and not allowed.any()):
                yield op

    def parameter(self, source: Source) -> Parameter | None:
        """The parameter that `source` is, as it is stored or in another element type."""
        while isinstance(source, OpOutput) and self.graph.op_by_name[source.op].type == "Cast":
            source = self.graph.tensor_inputs(self.graph.op_by_name[source.op])[0]
        return self.graph.parameter_by_name[source.name] if isinstance(source, ParameterRef) else None

    def placed(self, op: Op, within: Restriction, devices: int, position: int) -> Iterator[Layout]:
        """The layouts of its input number `position` that are left on so many devices."""
        seen, sig = self.known[op.name]
        strategies = self.of(op, devices)
        allowed = within.allowed(seen, sig, strategies)
        for number, strategy in enumerate(strategies):
            if allowed is None or allowed[:, number].any():
                yield place(seen, sig, strategy, devices).inputs[position]

    def text(self, op: Op, devices: int) -> str:
        """The dims of `op` and its layouts on so many devices, in words."""
        seen, sig = self.known[op.name]
        cuts = [cuts_of(seen, sig, strategy, devices) for strategy in self.of(op, devices)]
        texts = dict.fromkeys(", ".join(f"{d}/{n}" for d, n in cut.items() if n > 1) or "whole" for cut in cuts)
        dims = f"its dims are {', '.join(f'{d} ({sig.sizes[d]})' for d in sig.mesh)}, " if sig.mesh else ""
        layouts = " or ".join(list(texts)[:SHOWN]) + (", …" if len(texts) > SHOWN else "")
        why = ""
        if not sig.is_distributed:
            why = f" ({why_undistributed(op.type)})"
        elif op.name in cut_by_default(self.graph):
            why = " (without a primitive of its own it is cut as MindSpore does: give it one in its cell)"
        return f"{dims}its layouts {layouts or 'none'}{why}"


def stage_devices(graph: Graph, request: Request) -> list[int]:
    """How many devices a stage may have, falling."""
    most = max(1, len(graph.blocks))
    counts = [n for n in divisors(request.device_num) if n <= most and request.limits.allows("pipeline_stages", n)]
    return [request.device_num // n for n in counts]


def remaining(graph: Graph, request: Request) -> tuple[tuple[Limits, ...], str]:
    """The cases of the request's limits to search; and, where pinned operators have layouts on the devices of a stage under one
    of several pairs of degrees only, which one and because of which operator, in words.

    What is left of several pairs is searched at once.

    Errors: InputError, naming the operator, where there is no such case.
    """
    every = cases(request.limits, request.device_num)
    pins = request.limits.operators
    if not pins or not every:
        return every, ""
    layouts = Layouts(graph, meanings(graph, request.rules))
    ops = [op for op in layouts.operators() if any(pin.is_for(op) for pin in pins)]
    numbers = stage_devices(graph, request)
    few = replace(graph, ops=tuple(ops))
    kept: dict[tuple, bool] = {}
    obstacles: dict[str, Op] = {}

    def within(case: Limits, devices: int) -> Restriction:
        exact = Limits(operators=tuple(pin.at(case.least) for pin in pins))
        return Restriction(few, {}, exact, Single(prime_factors(devices)))

    def leaves_all(case: Limits) -> bool:
        for devices in numbers:
            # What had no layout before is the likeliest to have none again.
            first = [op for op in ops if op.name in obstacles]
            order = first + [op for op in ops if op.name not in obstacles]
            obstacle = next(layouts.without(within(case, devices), devices, order), None)
            if obstacle is None:
                return True
            obstacles[obstacle.name] = obstacle
        return False

    symbols = sorted({symbol for pin in pins for symbol in pin.symbols})

    def degrees(case: Limits) -> tuple[int, ...]:
        return tuple(case.least[symbol] for symbol in symbols)

    for case in every:
        if degrees(case) not in kept:
            kept[degrees(case)] = leaves_all(case)
    found = tuple(case for case in every if kept[degrees(case)])
    if numbers and not found:
        raise _nothing_left(layouts, ops, within(every[0], numbers[0]), numbers[0], every[0], request)
    left = [key for key, is_kept in kept.items() if is_kept]
    if len(left) > 1:
        return tuple(by_swap(request.limits)), ""
    if not left or len(kept) == 1:
        return found or every, ""
    names = list(dict.fromkeys(short_name(op) for op in ops if op.name in obstacles))
    pairs = _degrees_text(dict(zip(symbols, left[0], strict=True)))
    return found, f"only {pairs} leaves {_listed(names)} a layout"


def _nothing_left(
    layouts: Layouts, ops: Sequence[Op], within: Restriction, devices: int, case: Limits, request: Request
) -> InputError:
    lacking = list(layouts.without(within, devices, ops)) or list(ops)
    names = list(dict.fromkeys(short_name(op) for op in lacking))
    pins = [pin for pin in request.limits.operators if pin.is_for(lacking[0])]
    degrees = {name: case.least[name] for pin in pins for name in sorted(pin.symbols)}
    with_degrees = f" with {_degrees_text(degrees)}" if degrees else ""
    others = f" (nor of {_listed(names[1:])})" if len(names) > 1 else ""
    broken = next((why for pin in pins if (why := _why_no_layout(pin, *layouts.known[lacking[0].name], devices))), "")
    because = f": {broken}" if broken else ""
    return InputError(
        f"{'; '.join(map(str, pins))}: no layout of {names[0]} on {devices} devices is so{with_degrees}{others}{because};"
        f" {layouts.text(lacking[0], devices)}: give a pattern that leaves it out, or other numbers"
    )


def _why_no_layout(pin: OperatorPin, seen: OpView, sig: Signature, devices: int) -> str:
    """What speaks against `pin` by itself, whatever else is pinned; empty if nothing does."""
    if pin.inputs is not None:
        try:
            place(seen, sig, OpStrategy(pin.inputs, pin.outputs), devices)
        except InvalidStrategyError as error:
            return str(error).removeprefix(f"{seen.name} ({seen.type}): ")
    for dim, number in (pin.dims or {}).items():
        if dim not in sig.mesh:
            return f"it has no dim {dim}"
        if sig.sizes[dim] % number:
            return f"{number} does not divide {dim}, of size {sig.sizes[dim]}"
    if devices % (slices := math.prod((pin.dims or {}).values())):
        return f"its {slices} slices do not divide {devices} devices"
    return ""


def _degrees_text(degrees: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {number}" for name, number in degrees.items())


def _listed(names: Sequence[str]) -> str:
    """The first of `names`, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


def why_none(graph: Graph, request: Request) -> str:
    """Which operator has no layout within the request's limits, or none in which its parameter trains rightly, whatever the
    stages, in words; empty if each has one.
    """
    layouts = Layouts(graph, meanings(graph, request.rules))
    ops = list(layouts.operators())
    first = ""
    for case in cases(request.limits, request.device_num):
        for devices in stage_devices(graph, request):
            within = Restriction(graph, layouts.known, case, Single(prime_factors(devices)))
            why = _no_layout(layouts, within, devices, ops) or _no_training(
                layouts, within, devices, ops, request.limits
            )
            if not why:
                return ""
            first = first or why
    return first


def _no_layout(layouts: Layouts, within: Restriction, devices: int, ops: Sequence[Op]) -> str:
    op = next(layouts.without(within, devices, ops), None)
    if op is None:
        return ""
    return f"no layout of {short_name(op)} ({op.type}) on {devices} devices is so: {layouts.text(op, devices)}"


def _no_training(layouts: Layouts, within: Restriction, devices: int, ops: Sequence[Op], limits: Limits) -> str:
    """Which parameter MindSpore would train wrongly whatever is left of the layouts of the operator that reads it."""
    for op in ops:
        for position, source in enumerate(layouts.graph.tensor_inputs(op)):
            parameter = None if is_summed(op.type, position) else layouts.parameter(source)
            if parameter is not None and parameter.requires_grad:
                why = _not_synchronised(parameter, layouts.placed(op, within, devices, position), limits, devices)
                if why:
                    return f"in every layout of {short_name(op)} ({op.type}) on {devices} devices, {why}"
    return ""


def _not_synchronised(parameter: Parameter, found: Iterable[Layout], limits: Limits, devices: int) -> str:
    """Why MindSpore sums the gradient of `parameter` over its copies in none of the layouts `found`, whatever the optimizer
    shards; empty if it does in one.
    """
    why = ""
    for layout, level in product(found, OptimizerLevel):
        if limits.allows("optimizer_level", level):
            settings = Settings(devices, optimizer_level=level, parallel_optimizer_threshold_KB=0)
            placement = place_parameter(parameter, layout, settings, summed=False, unsummed=True)
            try:
                require_synchronised({parameter.name: placement}, devices)
            except InvalidStrategyError as error:
                why = str(error)
            else:
                return ""
    return why
