"""The unknowns of the search: one per class of operators, with what each choice costs by itself."""

import math
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


Seen = tuple[OpView, Signature]
"""An operator as it stands in the graph, and what it means."""

Chosen = tuple[tuple[OpStrategy, Placement], ...]
"""The candidates of an operator."""

Growing = tuple[tuple[int, ...], ...]
"""Per tensor of an operator, inputs first: which of its dims grow with the batch."""


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
    of = _Classes(graph, folded, pricer, rules, _of_all(powers, folded), fixed, limits)
    items: list[Variable] = []
    index: dict[str, int] = {}
    together: dict[int, NDArray[np.bool_]] = {}
    for number, members in enumerate(folded.members):
        if not of.views[number][1].shardable:
            continue
        one = of.variable(number)
        if (on_grids := of.restriction.together(one.seen, one.signature, one.strategies)) is not None:
            together[len(items)] = on_grids
        index.update((op.name, len(items)) for op in members)
        items.append(one)
    return Variables(
        tuple(items), index, of.meanings, of.gradients, pricer, of.powers, limits, of.by_default, together, of.alike,
        rules,
    )  # fmt: skip


class _Classes:
    """The classes of operators of a network, and what their candidates depend on beside themselves."""

    def __init__(
        self,
        graph: Graph,
        folded: Fold,
        pricer: Pricer,
        rules: Mapping[str, Rule] | None,
        powers: Mapping[Source, tuple[int, ...]],
        fixed: Mapping[str, OpStrategy] | None,
        limits: Limits,
    ) -> None:
        self.graph, self.members, self.pricer, self.powers, self.fixed = graph, folded.members, pricer, powers, fixed
        self.meanings: dict[str, Seen] = {}
        read = list[Seen]()
        for members in folded.members:
            seen = view(graph, members[0])
            read.append((seen, read_outside(graph, members[0], signature(seen, rules))))
            self.meanings.update((op.name, read[-1]) for op in members)
        self.signatures = {name: sig for name, (_, sig) in self.meanings.items()}
        self.gradients = differentiable_sources(graph, self.signatures)
        self.by_default = cut_by_default(graph)
        self.alike = regions(graph, self.meanings, self.by_default)
        self.views = [self._held(seen, sig, members) for (seen, sig), members in zip(read, self.members, strict=True)]
        self.restriction = Restriction(graph, self.meanings, limits if fixed is None else FREE, pricer.family)
        self._shared = _sharing_a_primitive(folded, self.views)
        self._in_blocks = {
            _form(seen)
            for (seen, _), members in zip(self.views, self.members, strict=True)
            if members[0].block is not None
        }
        self._priced: dict[tuple, tuple[Chosen, list[tuple[Array, Array]]]] = {}
        self._kinds: dict[tuple, int] = {}

    def _held(self, seen: OpView, sig: Signature, members: Sequence[Op]) -> Seen:
        """With the dims that are not to be cut: MindSpore computes something else then, or all of a region are whole there."""
        every = (d for op in members for d in miscompiled_dims(self.graph, op, self.signatures, self.gradients))
        whole = held_whole(sig) if members[0].name in self.alike else frozenset()
        return seen, replace(sig, miscompiled=frozenset(every), fixed=sig.fixed | whole)

    def variable(self, number: int) -> Variable:
        """Class `number` with its candidates and their costs. InvalidStrategyError where MindSpore rejects its only one."""
        members, (seen, sig) = self.members[number], self.views[number]
        sending: dict[int, list[Op]] = {}
        for op in members:
            products = gradient_inputs(self.graph, self.signatures, self.gradients, op.name)
            sending.setdefault(products, []).append(op)
        growing, only = _growing(self.graph, members[0], self.powers), self._only(seen, sig, members)
        # A block that has no twin has the choices of those that have.
        regular = _form(seen) in self._in_blocks
        by_samples = regular or not self.pricer.family.is_free_outside
        samples = _leading_dims(seen, sig, growing) if by_samples else frozenset()
        goes_along, grows = members[0].name in self.alike, _growing_dims(seen, sig, growing)
        idle = goes_along or number in self._shared or self.restriction.needs_idle(seen, sig, regular, samples, grows)
        flags = sig.miscompiled, sig.keeps_inputs, sig.keeps_outputs
        key = (only, idle, goes_along, *_form(seen), *flags, tuple(sending), growing)
        if key not in self._priced:
            # Many blocks alike decide little by little: there, fewer candidates make the search fast.
            family = self.pricer.family
            if only is None:
                chosen = candidates(seen, sig, family, regular, idle, samples)
            else:
                chosen = ((only, place(seen, sig, only, family.device_num)),)
            seconds = self._seconds(seen, sig, chosen, sending, growing)
            if only is not None and self.fixed is None:
                default = self._is_default(seen, sig, only, _growing_dims(seen, sig, growing))
                seconds = [(np.where(default[:, None], there_s, np.inf), back_s) for there_s, back_s in seconds]
            self._priced[key] = chosen, seconds
        chosen, seconds = self._priced[key]
        strategies, placements = zip(*chosen, strict=True)
        forward_s = seconds[0][0]
        backward_s = tuple((tuple(ops), back_s) for ops, (_, back_s) in zip(sending.values(), seconds, strict=True))
        if (allowed := self.restriction.allowed(seen, sig, strategies)) is not None:
            forward_s = np.where(allowed, forward_s, np.inf)
        kind = self._kinds.setdefault(key, len(self._kinds))
        return Variable(members[0], members, seen, sig, strategies, placements, forward_s, backward_s, kind)

    def _only(self, seen: OpView, sig: Signature, members: Sequence[Op]) -> OpStrategy | None:
        """The only strategy of a class; None where there is a choice."""
        device_num = self.pricer.family.device_num
        if self.fixed is not None:
            return self.fixed.get(members[0].name) or default_strategy(seen, sig, device_num)
        if not any(op.name in self.by_default for op in members):
            return None
        only = default_strategy(seen, sig, device_num)
        _require_compiled(seen, sig, only, device_num)
        return only

    def _is_default(self, seen: OpView, sig: Signature, only: OpStrategy, grows: frozenset[str]) -> Array:
        """On which members [members] `only` is the default strategy, as it is on the representative: where devices do not divide
        the leading dim, `default_strategy` cuts it by their common divisor, which on some members is no axis, or another one.
        """
        pricer, right = self.pricer, np.ones(self.pricer.family.members, bool)
        number = pricer.family.device_num
        for dim, degree in cuts_of(seen, sig, only, number).items():
            if degree > 1 and degree == math.gcd(number, sig.sizes[dim]):
                size = np.rint(sig.sizes[dim] * pricer.family.grown(int(dim in grows))).astype(int)
                devices, there = pricer.degrees((number, degree)).astype(int)
                right &= np.gcd(devices, size) == there
        return right

    def _seconds(
        self, seen: OpView, sig: Signature, chosen: Chosen, sending: Mapping[int, Sequence[Op]], growing: Growing
    ) -> list[tuple[Array, Array]]:
        """Seconds of all that is `chosen`, forward and backward, for the members that send so many gradients."""
        if sig.body is None:
            return [_own_costs(seen, sig, chosen, products, self.pricer, growing) for products in sending]
        return [_inner_costs(self.graph, op, sig, self.gradients, self.pricer) for op, *_ in sending.values()]


def _require_compiled(seen: OpView, sig: Signature, only: OpStrategy, device_num: int) -> None:
    """InvalidStrategyError where MindSpore cuts a miscompiled dim of an operator that takes no other strategy."""
    cut = [d for d, degree in cuts_of(seen, sig, only, device_num).items() if degree > 1 and d in sig.miscompiled]
    if cut:
        raise InvalidStrategyError(
            f"MindSpore cuts dim {cut[0]} of {seen.name} ({seen.type}), which has no primitive of its own, and computes another"
            f" result or gradient then: {remedy(seen.type)}"
        )


def _sharing_a_primitive(folded: Fold, views: Sequence[Seen]) -> set[int]:
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


def _growing(graph: Graph, op: Op, powers: Mapping[Source, tuple[int, ...]]) -> Growing:
    if not powers:
        return ()
    sources = (*graph.tensor_inputs(op), *op.results)
    return tuple(powers.get(s, ()) for s in sources)


def _own_costs(
    op: OpView,
    sig: Signature,
    chosen: Chosen,
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


def _combine_s(chosen: Chosen, pricer: Pricer, outputs_B: Sequence[Array], backward: bool = False) -> Array:
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
