"""The degrees of parallelism that people ask for, read off the operators' strategies."""

import math
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from ms_symtensor.ops.placement import cuts_of
from ms_symtensor.ops.registry import Rule, signatures
from ms_symtensor.ops.signature import OpView, Signature, Unit
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.search.constraints.roles import (
    attended,
    batch_size,
    expert_products,
    major_products,
    own_rows,
    stream_norms,
    weight_dims,
)
from ms_symtensor.tensor.graph import Graph, Op


@dataclass(frozen=True)
class Degrees:
    """What people call the cuts of a plan; degrees of different parts of the network need not divide the devices among them.

    `data_parallel`: slices of the batch, and `model_parallel`: slices of the weights, in the major products, if these differ
    in those with most of the weights. Experts' products aside, of which `expert_parallel` is the slices of the experts.
    `context_parallel`: how many devices attend to one sequence between them, each for some of its tokens; or for some heads,
    where the major products share out its tokens (Ulysses). `sequence_parallel`: most norms of the residual stream are cut finer
    than the major products' rows.
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

    def of(self, dims: Set[str]) -> int:
        """Slices that cuts of `dims` make."""
        return math.prod(n for d, n in self.slices.items() if d in dims)

    @property
    def rows_and_columns(self) -> tuple[int, int]:
        """Slices of what the second input does not have, and of what it has."""
        weight = weight_dims(self.signature)
        return self.of(set(self.slices) - weight), self.of(weight)

    @property
    def elements(self) -> int:
        return sum(t.element_num for t in self.seen.outputs)


def degrees(graph: Graph, plan: StagePlan, rules: Mapping[str, Rule] | None = None) -> Degrees:
    """The degrees of `plan`."""
    cut = _cuts(graph, plan, rules)
    meanings = {name: (one.seen, one.signature) for name, one in cut.items()}
    routed, batch = expert_products(graph, meanings), batch_size(graph, meanings)
    major, norms = major_products(graph, meanings), stream_norms(graph, meanings)
    products: Counter[tuple[int, int]] = Counter()
    experts: Counter[int] = Counter()
    attention: Counter[tuple[int, int]] = Counter()
    for name, one in cut.items():
        if one.signature.unit is not Unit.CUBE:
            continue
        if name in major:
            products[one.rows_and_columns] += major[name]
        elif name in routed:
            experts[one.of(own_rows(one.signature))] += one.elements
        elif (dims := attended(graph, one.op, one.signature)) is not None:
            attention[one.of({dims[2]}), one.of({dims[1]})] += 1
    rows, columns = _commonest(products, (1, 1))
    data_parallel = math.gcd(rows, batch) if batch else rows
    sequence, heads = _commonest(attention, (1, 1))
    context_parallel = sequence * math.gcd(heads // math.gcd(heads, columns), rows // data_parallel)
    finer: Counter[bool] = Counter()
    for name in norms:
        one = cut[name]
        finer[one.of({d for d in one.signature.inputs[0] if d}) > rows] += 1
    sequence_parallel = columns > 1 and finer[True] > finer[False]
    return Degrees(data_parallel, columns, sequence_parallel, context_parallel, _commonest(experts, 1))


def _cuts(graph: Graph, plan: StagePlan, rules: Mapping[str, Rule] | None) -> dict[str, _Cut]:
    """All operators that have a strategy, by name."""
    found, known = {}, signatures(graph, rules)
    for op in graph.ops:
        seen, sig = known[op.name]
        if sig.shardable and op.name in plan.strategies:
            slices = cuts_of(seen, sig, plan.strategies[op.name], plan.settings.device_num)
            found[op.name] = _Cut(op, seen, sig, slices)
    return found


def _commonest(found: Counter[Any], default: Any) -> Any:
    return max(found, key=lambda key: (found[key], key)) if found else default
