"""The unknowns of the search: one per class of operators, with what each choice costs by itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cost.inner import inner_seconds
from ms_symtensor.cost.operator import work
from ms_symtensor.errors import InputError, InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy, Placement, cuts_of, place
from ms_symtensor.ops.registry import Rule, signature
from ms_symtensor.ops.signature import Dims, OpView, Signature, view
from ms_symtensor.program.backward import MOVE_GRADIENT
from ms_symtensor.program.gradients import differentiable_sources, gradient_inputs, read_outside
from ms_symtensor.program.meanings import cut_by_default, default_strategy, remedy
from ms_symtensor.program.miscompiled_dims import miscompiled_dims
from ms_symtensor.search.constraints.limits import FREE, Limits
from ms_symtensor.search.folded.folding import Fold
from ms_symtensor.search.space.alike import held_whole, regions
from ms_symtensor.search.space.domain import candidates
from ms_symtensor.search.space.restriction import Restriction
from ms_symtensor.search.tables.pricing import Pricer
from ms_symtensor.tensor.dtype import size_B
from ms_symtensor.tensor.graph import Graph, Op, Source, TensorType
from ms_symtensor.tensor.layout import Layout

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Variable:
    """A class of operators that takes one strategy; arrays are [members of the family, candidates].

    `forward_s` and `backward_s` are per operator: its own work and the combination of its partial sums; forward is infinite
    where a mesh does not divide the operator's dims, or limits forbid it. `members` are the operators, `op` the first of them;
    backward stands with the members that send as many gradients: in the first block, what reads a frozen embedding sends none
    to it. Variables of one `kind` have the same candidates.
    """

    op: Op
    members: tuple[Op, ...]
    seen: OpView
    signature: Signature
    strategies: tuple[OpStrategy, ...]
    placements: tuple[Placement, ...]
    forward_s: Array
    backward_s: tuple[tuple[tuple[Op, ...], Array], ...]
    kind: int


@dataclass(frozen=True)
class Variables:
    """All unknowns, in the graph's order; `index` maps operator names to them (operators without strategy are absent).

    Of their candidates `limits` allow those whose costs are finite, and of some variables, by number, those `together` that have
    the same grid [members, candidates, grids]. `by_default`: operators whose only one is MindSpore's own. `rules`: signatures of
    further operators. `alike`: the operators that are cut alike, each with the scope of its cell.
    """

    items: tuple[Variable, ...]
    index: Mapping[str, int]
    meanings: Mapping[str, tuple[OpView, Signature]]
    gradients: frozenset[Source]
    pricer: Pricer
    powers: Mapping[Source, tuple[int, ...]]
    limits: Limits
    by_default: frozenset[str]
    together: Mapping[int, NDArray[np.bool_]]
    alike: Mapping[str, str]
    rules: Mapping[str, Rule] | None = None

    def power_of(self, source: Source) -> int:
        """1 if the tensor grows with the batch, else 0."""
        return max(self.powers.get(source, ()), default=0)

    @property
    def grid_nums(self) -> tuple[int, ...]:
        """How many grids there are, if there are several."""
        return tuple(dict.fromkeys(alike.shape[-1] for alike in self.together.values()))

    @cached_property
    def signatures(self) -> Mapping[str, Signature]:
        """The signature of every operator, by name."""
        return {name: sig for name, (_, sig) in self.meanings.items()}


def variables(
    graph: Graph,
    folded: Fold,
    pricer: Pricer,
    rules: Mapping[str, Rule] | None = None,
    powers: Mapping[Source, tuple[int, ...]] = MappingProxyType({}),
    fixed: Mapping[str, OpStrategy] | None = None,
    limits: Limits = FREE,
) -> Variables:
    """The variables of `graph`, each with all its candidates, priced on every member of the pricer's family.

    `powers`: per tensor, which dims grow with the batch (`batch_powers`). `fixed`: strategies by operator, each the only
    candidate of its class; operators without one take MindSpore's default. `limits`: what other
    candidates may be.
    """
    meanings: dict[str, tuple[OpView, Signature]] = {}
    views: dict[int, tuple[OpView, Signature]] = {}
    for number, members in enumerate(folded.members):
        seen = view(graph, members[0])
        views[number] = (seen, read_outside(graph, members[0], signature(seen, rules)))
        meanings.update((op.name, views[number]) for op in members)
    signatures = {name: sig for name, (_, sig) in meanings.items()}
    gradients = differentiable_sources(graph, signatures)
    powers = _of_all(powers, folded)
    by_default = cut_by_default(graph)
    alike = regions(graph, meanings, by_default)
    for number, members in enumerate(folded.members):
        seen, sig = views[number]
        miscompiled = frozenset(d for op in members for d in miscompiled_dims(graph, op, signatures, gradients))
        whole = held_whole(sig) if members[0].name in alike else frozenset()
        views[number] = (seen, replace(sig, miscompiled=miscompiled, fixed=sig.fixed | whole))
    restriction = Restriction(graph, meanings, limits if fixed is None else FREE, pricer.family)
    shared = _sharing_a_primitive(folded, views)
    items: list[Variable] = []
    index: dict[str, int] = {}
    together: dict[int, NDArray[np.bool_]] = {}
    same: dict[tuple, tuple] = {}
    kinds: dict[tuple, int] = {}
    in_blocks = {
        _form(views[number][0]) for number, members in enumerate(folded.members) if members[0].block is not None
    }
    for number, members in enumerate(folded.members):
        seen, sig = views[number]
        if not sig.shardable:
            continue
        sending: dict[int, list[Op]] = {}
        for op in members:
            sending.setdefault(gradient_inputs(graph, signatures, gradients, op.name), []).append(op)
        growing = _growing(graph, members[0], powers)
        only = None
        if fixed is not None:
            only = fixed.get(members[0].name) or default_strategy(seen, sig, pricer.family.device_num)
        elif any(op.name in by_default for op in members):
            only = default_strategy(seen, sig, pricer.family.device_num)
            _require_compiled(seen, sig, only, pricer.family.device_num)
        # A block that has no twin has the choices of those that have.
        regular = _form(seen) in in_blocks
        by_samples = regular or not pricer.family.is_free_outside
        samples = _leading_dims(seen, sig, growing) if by_samples else frozenset()
        goes_along = members[0].name in alike
        grows = _growing_dims(seen, sig, growing)
        idle = goes_along or number in shared or restriction.needs_idle(seen, sig, regular, samples, grows)
        key = (
            only,
            idle,
            goes_along,
            *_form(seen),
            sig.miscompiled,
            sig.keeps_inputs,
            sig.keeps_outputs,
            tuple(sending),
            growing,
        )
        if key not in same:
            # Many blocks alike decide little by little: there, fewer candidates make the search fast.
            if only is None:
                chosen = candidates(seen, sig, pricer.family, regular, idle, samples)
            else:
                chosen = ((only, place(seen, sig, only, pricer.family.device_num)),)
            if sig.body is None:
                same[key] = (chosen, [_own_costs(seen, sig, chosen, number, pricer, growing) for number in sending])
            else:
                same[key] = (chosen, [_inner_costs(graph, op, sig, gradients, pricer) for op, *_ in sending.values()])
        chosen, seconds = same[key]
        forward = seconds[0][0]
        backward = tuple((tuple(ops), back_s) for ops, (_, back_s) in zip(sending.values(), seconds, strict=True))
        index.update((op.name, len(items)) for op in members)
        strategies, placements = zip(*chosen, strict=True)
        if (allowed := restriction.allowed(seen, sig, strategies)) is not None:
            forward = np.where(allowed, forward, np.inf)
        if (on_grids := restriction.together(seen, sig, strategies)) is not None:
            together[len(items)] = on_grids
        kind = kinds.setdefault(key, len(kinds))
        items.append(Variable(members[0], members, seen, sig, strategies, placements, forward, backward, kind))
    return Variables(
        tuple(items), index, meanings, gradients, pricer, powers, limits, by_default, together, alike, rules
    )


def _require_compiled(seen: OpView, sig: Signature, only: OpStrategy, device_num: int) -> None:
    """InvalidStrategyError where MindSpore cuts a miscompiled dim of an operator that takes no other strategy."""
    cut = [d for d, degree in cuts_of(seen, sig, only, device_num).items() if degree > 1 and d in sig.miscompiled]
    if cut:
        raise InvalidStrategyError(
            f"MindSpore cuts dim {cut[0]} of {seen.name} ({seen.type}), which has no primitive of its own, and computes another"
            f" result or gradient then: {remedy(seen.type)}"
        )


def _sharing_a_primitive(folded: Fold, views: Mapping[int, tuple[OpView, Signature]]) -> set[int]:
    """The classes of operators that share a primitive with others than their like: what suits all may leave devices idle."""
    users: dict[tuple[str, ...], dict[int, tuple]] = {}
    for number, members in enumerate(folded.members):
        for op in members:
            if op.primitive:
                users.setdefault((*op.cell, op.primitive), {})[number] = _form(views[number][0])
    return {number for forms in users.values() if len(set(forms.values())) > 1 for number in forms}


def _form(op: OpView) -> tuple:
    """What operators with the same choices have in common."""
    return (op.type, op.inputs, op.outputs, op.arguments, tuple(op.attributes.items()), op.body)


def _of_all(powers: Mapping[Source, tuple[int, ...]], folded: Fold) -> Mapping[Source, tuple[int, ...]]:
    """`powers`, which may know the first operators of every class alone, of all of them."""
    found = dict(powers)
    for first, *others in folded.members if powers else ():
        known = [powers.get(result, ()) for result in first.results]
        found.update((result, dims) for op in others for result, dims in zip(op.results, known, strict=True))
    return found


Growing = tuple[tuple[int, ...], ...]
"""Per tensor of an operator, inputs first: which of its dims grow with the batch."""


def _growing(graph: Graph, op: Op, powers: Mapping[Source, tuple[int, ...]]) -> Growing:
    if not powers:
        return ()
    sources = (*graph.tensor_inputs(op), *op.results)
    return tuple(powers.get(s, ()) for s in sources)


def _own_costs(
    op: OpView,
    sig: Signature,
    chosen: tuple[tuple[OpStrategy, Placement], ...],
    products: int,
    pricer: Pricer,
    growing: Growing,
) -> tuple[Array, Array]:
    cuts = [cuts_of(op, sig, strategy, pricer.family.device_num) for strategy, _ in chosen]
    degrees = {d: pricer.degrees(c.get(d, 1) for c in cuts).T for d in sig.mesh}
    grows = _growing_dims(op, sig, growing)
    sizes = {d: sig.sizes[d] * pricer.family.grown(int(d in grows))[:, None] for d in sig.mesh}
    shape = pricer.family.members, len(chosen)
    divides = np.ones(shape, bool)
    for d in sig.mesh:
        divides &= sizes[d] % degrees[d] == 0
    local = {d: sizes[d] / degrees[d] for d in sig.mesh}

    def bytes_of(number: int, tensor: TensorType, dims: Dims) -> Array:
        power = max(growing[number], default=0) if growing else 0
        size: Array = np.full(shape, float(tensor.size_B)) * pricer.family.grown(power)[:, None]
        for d in dims:
            if d is not None:
                size = size / degrees[d]
        return size

    inputs = [bytes_of(i, t, d) for i, (t, d) in enumerate(zip(op.inputs, sig.inputs, strict=True))]
    outputs = [
        bytes_of(len(op.inputs) + i, t, d) for i, (t, d) in enumerate(zip(op.outputs, sig.outputs, strict=False))
    ]
    own = work(op, sig, products, local, inputs, outputs, shape, pricer.cluster)
    combine_s, back_s = (_combine_s(chosen, pricer, outputs, backward) for backward in (False, True))
    forward = np.where(divides, own.forward_s + combine_s, np.inf)
    return forward, (own.backward_s + back_s if products else np.zeros(shape))


def _inner_costs(
    graph: Graph, op: Op, sig: Signature, gradients: frozenset[Source], pricer: Pricer
) -> tuple[Array, Array]:
    """Those of an operator that the user wrote in pieces."""
    trains = [source in gradients for source in graph.tensor_inputs(op)]
    try:
        forward_s, backward_s = inner_seconds(op, sig, trains, pricer.cluster, pricer.family.device_num)
    except InputError as error:
        raise InputError(f"{op.name}: {error}") from error
    shape = pricer.family.members, 1
    return np.full(shape, forward_s), np.full(shape, backward_s)


def _growing_dims(op: OpView, sig: Signature, growing: Growing) -> frozenset[str]:
    """The dims of `sig` whose size goes with the batch."""
    found: set[str] = set()
    for powers, dims in zip(
        growing, (*sig.inputs, *(() for _ in op.inputs[len(sig.inputs) :]), *sig.outputs), strict=False
    ):
        found.update(d for d, power in zip(dims, powers, strict=False) if d is not None and power)
    return frozenset(found)


def _leading_dims(op: OpView, sig: Signature, growing: Growing) -> frozenset[str]:
    """Those that come first in every tensor that has them; none if some do not, as the tokens of every expert."""
    dims = (*sig.inputs, *(() for _ in op.inputs[len(sig.inputs) :]), *sig.outputs)
    if any(any(powers[1:]) for powers in growing):
        return frozenset()
    return frozenset(d[0] for d, powers in zip(dims, growing, strict=False) if d and d[0] and any(powers))


def _combine_s(
    chosen: Sequence[tuple[OpStrategy, Placement]], pricer: Pricer, outputs_B: Sequence[Array], backward: bool = False
) -> Array:
    """Seconds of combining partial sums [members, candidates]; or those of the gradient's collective, which moves as many bytes:
    of a ReduceScatter an AllGather.
    """
    seconds = np.zeros((pricer.family.members, len(chosen)))
    partials = [(i, placement.partial) for i, (_, placement) in enumerate(chosen) if placement.partial is not None]
    if partials:
        kinds = ["AllReduce" if p.dim is None else "ReduceScatter" for _, p in partials]
        nodes = [
            (MOVE_GRADIENT[kind] if backward else kind, p.group) for kind, (_, p) in zip(kinds, partials, strict=True)
        ]
        whole_B = np.array([outputs_B[p.output][:, i] for i, p in partials])
        seconds[:, [i for i, _ in partials]] = pricer.nodes_s(nodes, whole_B, whole_B).T
    return seconds


def transparent_s(pricer: Pricer, layouts: Sequence[Layout], source: str, target: str, power: int) -> Array:
    """Seconds [members, layouts] of a Cast from element type `source` to `target` on one device's slice."""
    return pricer.local_s("Cast", pricer.slices_B(layouts, size_B(source) + size_B(target), power))
