"""The unknowns of the search: one per class of operators, with what each choice costs by itself."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.inner import inner_seconds
from ms_symtensor.cost.move import local_time_s, node_cost
from ms_symtensor.cost.operator import evaluate
from ms_symtensor.errors import InputError
from ms_symtensor.ops.placement import OpStrategy, Placement, cuts_of
from ms_symtensor.ops.registry import Rule, signature
from ms_symtensor.ops.signature import OpView, Signature, view
from ms_symtensor.program.gradients import differentiable_sources, gradient_inputs
from ms_symtensor.search.domain import candidates
from ms_symtensor.search.folding import Fold
from ms_symtensor.tensor.dtype import size_B
from ms_symtensor.tensor.graph import Graph, Op, Source
from ms_symtensor.tensor.layout import Layout

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Variable:
    """A class of operators that takes one strategy; arrays have one entry per candidate.

    `forward_s` and `backward_s` are per operator: its own work and the combination of its partial sums. `members` are the
    operators, `op` the first of them.
    """

    op: Op
    members: tuple[Op, ...]
    seen: OpView
    signature: Signature
    strategies: tuple[OpStrategy, ...]
    placements: tuple[Placement, ...]
    forward_s: Array
    backward_s: Array

    @property
    def count(self) -> int:
        return len(self.members)


@dataclass(frozen=True)
class Variables:
    """All unknowns, in the graph's order; `index` maps operator names to them (operators without strategy are absent)."""

    items: tuple[Variable, ...]
    index: Mapping[str, int]
    meanings: Mapping[str, tuple[OpView, Signature]]
    gradients: frozenset[Source]

    @cached_property
    def signatures(self) -> Mapping[str, Signature]:
        """The signature of every operator, by name."""
        return {name: sig for name, (_, sig) in self.meanings.items()}


def variables(
    graph: Graph, folded: Fold, cluster: Cluster, mesh: tuple[int, ...], rules: Mapping[str, Rule] | None = None
) -> Variables:
    """The variables of `graph`, each with all its candidates on `mesh`, priced on `cluster`."""
    meanings: dict[str, tuple[OpView, Signature]] = {}
    views: dict[int, tuple[OpView, Signature]] = {}
    for number, members in enumerate(folded.members):
        seen = view(graph, members[0])
        views[number] = (seen, signature(seen, rules))
        meanings.update((op.name, views[number]) for op in members)
    signatures = {name: sig for name, (_, sig) in meanings.items()}
    gradients = differentiable_sources(graph, signatures)
    items: list[Variable] = []
    index: dict[str, int] = {}
    same: dict[tuple, tuple] = {}
    for number, members in enumerate(folded.members):
        seen, sig = views[number]
        if not sig.shardable:
            continue
        products = gradient_inputs(graph, signatures, gradients, members[0].name)
        key = (
            seen.type,
            seen.inputs,
            seen.outputs,
            seen.arguments,
            tuple(seen.attributes.items()),
            products,
            seen.body,
        )
        if key not in same:
            chosen = candidates(seen, sig, mesh)
            if sig.body is None:
                same[key] = (chosen, _own_costs(seen, sig, chosen, products, cluster, math.prod(mesh)))
            else:
                trains = [s in gradients for s in graph.tensor_inputs(members[0])]
                try:
                    seconds = inner_seconds(members[0], sig, trains, cluster, math.prod(mesh))
                except InputError as error:
                    raise InputError(f"{members[0].name}: {error}") from error
                same[key] = (chosen, tuple(np.array([t]) for t in seconds))
        chosen, (forward, backward) = same[key]
        index.update((op.name, len(items)) for op in members)
        strategies, placements = zip(*chosen, strict=True)
        items.append(Variable(members[0], members, seen, sig, strategies, placements, forward, backward))
    return Variables(tuple(items), index, meanings, gradients)


def _own_costs(
    op: OpView,
    sig: Signature,
    chosen: tuple[tuple[OpStrategy, Placement], ...],
    products: int,
    cluster: Cluster,
    device_num: int,
) -> tuple[Array, Array]:
    cuts = [cuts_of(op, sig, strategy, device_num) for strategy, _ in chosen]
    own = evaluate(op, sig, products, cuts, cluster)
    combine = np.array([_combine_s(op, placement, cluster) for _, placement in chosen])
    return own.forward_s + combine, (own.backward_s + combine if products else np.zeros(len(chosen)))


def _combine_s(op: OpView, placement: Placement, cluster: Cluster) -> float:
    """Seconds of combining partial sums; the gradient's collective moves as many bytes the other way."""
    partial = placement.partial
    if partial is None:
        return 0.0
    whole = layout_B(placement.computed[partial.output], op.outputs[partial.output].dtype)
    kind = "AllReduce" if partial.dim is None else "ReduceScatter"
    return node_cost(cluster, kind, partial.group, whole, whole).time_s


def layout_B(layout: Layout, dtype: str) -> int:
    """Bytes of one device's slice."""
    return math.prod(layout.slice_shape) * size_B(dtype)


def transparent_s(cluster: Cluster, layout: Layout, source: str, target: str) -> float:
    """Seconds of a Cast from element type `source` to `target` on one device's slice."""
    return local_time_s(cluster, "Cast", layout_B(layout, source) + layout_B(layout, target))
