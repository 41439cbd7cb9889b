"""The degrees of parallelism that people ask for, read off the operators' strategies."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ms_symtensor.ops.placement import cuts_of
from ms_symtensor.ops.registry import Rule, signature
from ms_symtensor.ops.routing import routes_tokens
from ms_symtensor.ops.signature import OpView, Signature, Unit, view
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.tensor.graph import Graph, Op, ParameterRef

ATTENTION = {"FlashAttentionScore": ("b", "n", "s"), "BatchMatMul": ("b0", "b1", "m")}
"""Products of activations, and their dims: batch, heads, the query's sequence."""


@dataclass(frozen=True)
class Degrees:
    """What people call the cuts of a plan; degrees of different parts of the network need not divide the devices among them.

    `data_parallel`: slices of the batch, and `model_parallel`: slices of the weights, in the heaviest products. Experts'
    products aside, of which `expert_parallel` is the slices of the experts. `context_parallel`: how many devices attend to
    one sequence between them, each for some of its tokens; or for some heads, where the heaviest products share out its
    tokens (Ulysses). `sequence_parallel`: most norms are cut finer than the heaviest products' rows.
    """

    data_parallel: int
    model_parallel: int
    sequence_parallel: bool
    context_parallel: int = 1
    expert_parallel: int = 1


@dataclass(frozen=True)
class _Cut:
    """An operator, and into how many slices its dims are cut."""

    op: Op
    seen: OpView
    signature: Signature
    slices: Mapping[str, int]

    def of(self, dims: set[str]) -> int:
        """Slices that cuts of `dims` make."""
        return math.prod(n for d, n in self.slices.items() if d in dims)

    @property
    def weight(self) -> set[str]:
        """The dims of the second input."""
        return {d for dims in self.signature.inputs[1:2] for d in dims if d}

    @property
    def rows_and_columns(self) -> tuple[int, int]:
        """Slices of what the second input does not have, and of what it has."""
        return self.of(set(self.slices) - self.weight), self.of(self.weight)

    @property
    def elements(self) -> int:
        return sum(t.element_num for t in self.seen.outputs)


def degrees(
    graph: Graph,
    plan: StagePlan,
    rules: Mapping[str, Rule] | None = None,
    times: Mapping[str, int] = MappingProxyType({}),
) -> Degrees:
    """The degrees of `plan`. `times`: how many equal blocks some of the blocks stand for."""
    cut = _cuts(graph, plan, rules)
    routed = routes_tokens(graph)
    products: Counter[tuple[int, int]] = Counter()
    experts: Counter[int] = Counter()
    attention: Counter[tuple[int, int]] = Counter()
    batch = 0
    for one in cut.values():
        if one.signature.unit is not Unit.CUBE:
            continue
        count = times.get(one.op.block or "", 1)
        if any(_is_weight(graph, s) for s in graph.tensor_inputs(one.op)):
            shared = {d for d in one.weight if d in one.signature.inputs[0] and d in one.signature.outputs[0]}
            if routed and shared:
                experts[one.of(shared)] += count * one.elements
            else:
                products[one.rows_and_columns] += count * one.elements
        elif (dims := ATTENTION.get(one.op.type)) and {dims[0], dims[2]} <= set(one.signature.mesh):
            batch = one.signature.sizes[dims[0]]
            attention[one.of({dims[2]}), one.of({dims[1]})] += count
    rows, columns = _commonest(products, (1, 1))
    data_parallel = math.gcd(rows, batch) if batch else rows
    sequence, heads = _commonest(attention, (1, 1))
    context_parallel = sequence * math.gcd(heads // math.gcd(heads, columns), rows // data_parallel)
    norms = [
        one.of({d for d in one.signature.inputs[0] if d}) > rows
        for one in cut.values()
        if one.op.type in ("RmsNorm", "LayerNorm")
        for _ in range(times.get(one.op.block or "", 1))
    ]
    finer = columns > 1 and 2 * sum(norms) > len(norms)
    return Degrees(data_parallel, columns, finer, context_parallel, _commonest(experts, 1))


def _cuts(graph: Graph, plan: StagePlan, rules: Mapping[str, Rule] | None) -> dict[str, _Cut]:
    """All operators that have a strategy, by name."""
    found = {}
    for op in graph.ops:
        seen = view(graph, op)
        sig = signature(seen, rules)
        if sig.shardable and op.name in plan.strategies:
            slices = cuts_of(seen, sig, plan.strategies[op.name], plan.settings.device_num)
            found[op.name] = _Cut(op, seen, sig, slices)
    return found


def _commonest(found: Counter[Any], default: Any) -> Any:
    return max(found, key=lambda key: (found[key], key)) if found else default


def _is_weight(graph: Graph, source: object) -> bool:
    while not isinstance(source, ParameterRef):
        op = graph.op_by_name.get(getattr(source, "op", ""))
        if op is None or op.type != "Cast":
            return False
        source = graph.tensor_inputs(op)[0]
    return True
