"""The parameters in the search: who reads them in which layout, and what their gradients, gathers and update cost.

On a family of meshes whether the optimizer can share a parameter differs from member to member: it does where all copies
divide its first dim. So both cases are priced, and every member takes its own.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cost.move import message_s
from ms_symtensor.cost.parameter import adding_B, price_slice
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.program.gradients import is_kept, sends_gradient
from ms_symtensor.program.parameters import is_summed, is_synchronised, may_be_shared, place_parameter, share_over_all
from ms_symtensor.program.program import ParameterPlacement
from ms_symtensor.program.settings import OptimizerLevel, Settings
from ms_symtensor.search.folded.places import Counts, Places
from ms_symtensor.search.tables.pricing import Pricer
from ms_symtensor.search.tables.terms import Terms, merged, terms
from ms_symtensor.search.tables.variables import Variables
from ms_symtensor.tensor.dtype import size_B
from ms_symtensor.tensor.graph import Graph, OpOutput, Parameter, ParameterRef, Source
from ms_symtensor.tensor.layout import DeviceGroup, Layout
from ms_symtensor.tensor.redistribution_groups import is_feasible

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Read:
    """A parameter in one element type, through `casts` Cast operators, as `users` operators that send a gradient read it.

    `in_gradient`: the gradient of one of them reads it too. So many of the users stand `behind` the blocks, if the first one that
    reads the parameter stands before them.
    """

    dtype: str
    casts: int
    users: int
    in_gradient: bool
    behind: int = 0

    @property
    def is_behind(self) -> bool:
        """Whether all that read it stand there."""
        return self.behind == self.users > 0


@dataclass(frozen=True)
class ParameterUse:
    """Parameters that the operators of variable `number` read as input `position`: all like `parameter`, so many at every place.

    `layouts` are those of the candidates; `reads` has more than one entry where several operators share the parameter in
    different element types.
    """

    number: int
    position: int
    parameter: Parameter
    layouts: tuple[Layout, ...]
    reads: tuple[Read, ...]
    counts: Counts

    @property
    def is_tied(self) -> bool:
        """Whether it is read in several element types, or in a shared block: its gradients are summed as it is stored."""
        return len(self.reads) > 1 or self.parameter.in_shared_block


def parameter_uses(graph: Graph, known: Variables, where: Places) -> Iterator[tuple[Source, ParameterUse]]:
    """Every use of a parameter by an operator with a strategy, with the source that the operator reads."""
    for op in graph.ops:
        if op.name not in known.index:
            continue
        number = known.index[op.name]
        for position, source in enumerate(graph.tensor_inputs(op)):
            casts = 0
            root: Source = source
            while (
                isinstance(root, OpOutput)
                and root.op not in known.index
                and graph.op_by_name[root.op].type != "Reshape"
            ):
                casts += 1
                root = graph.tensor_inputs(graph.op_by_name[root.op])[0]
            kind = graph.type_of(source)
            if isinstance(root, ParameterRef) and kind is not None:
                layouts = tuple(p.inputs[position] for p in known.items[number].placements)
                sends = sends_gradient(known.signatures, known.gradients, op, position)
                in_gradient = is_kept(graph, known.signatures[op.name], known.gradients, op, position)
                read = Read(kind.dtype, casts, int(sends), in_gradient)
                yield (
                    source,
                    ParameterUse(
                        number, position, graph.parameter_by_name[root.name], layouts, (read,), where.counts({op: 1})
                    ),
                )


def counted(uses: list[tuple[Source, ParameterUse]]) -> tuple[ParameterUse, ...]:
    """The first use of every parameter, where its layout and cost are counted, with all its reads; equal ones joined."""
    first: dict[str, ParameterUse] = {}
    reads: dict[str, dict[Source, Read]] = {}
    for source, use in uses:
        name, (new,) = use.parameter.name, use.reads
        before = first.setdefault(name, use).counts
        behind = new.users if _is_only(before, 0) and _is_only(use.counts, -1) else 0
        known = reads.setdefault(name, {}).setdefault(source, replace(new, users=0))
        reads[name][source] = replace(
            known,
            users=known.users + new.users,
            in_gradient=known.in_gradient or new.in_gradient,
            behind=known.behind + behind,
        )
    added: dict[tuple, ParameterUse] = {}
    for name, use in first.items():
        use = replace(use, reads=tuple(reads[name].values()))
        key = (use.number, use.position, replace(use.parameter, name=""), use.reads)
        added[key] = replace(added[key], counts=_sum(added[key].counts, use.counts)) if key in added else use
    return tuple(added.values())


def _is_only(counts: Counts, place: int) -> bool:
    """Whether something happens at one place alone."""
    return sum(counts) == counts[place] > 0


def _sum(first: Counts, second: Counts) -> Counts:
    return tuple(a + b for a, b in zip(first, second, strict=True))


def tied(known: Variables, uses: list[ParameterUse]) -> list[Terms]:
    """Two operators that read one parameter must cut it alike: tables that forbid everything else.

    InvalidStrategyError where they cannot, as two functional operators.
    """
    first: dict[str, ParameterUse] = {}
    found = []
    for use in uses:
        other = first.setdefault(use.parameter.name, use)
        if other.number == use.number:
            continue
        a, b = sorted((other, use), key=lambda u: u.number)
        agree = np.array(
            [
                [x.slice_shape == y.slice_shape and x.copies.ranks() == y.copies.ranks() for y in b.layouts]
                for x in a.layouts
            ]
        )
        if not agree.any():
            raise InvalidStrategyError(f"{use.parameter.name} has one layout, but {_readers(known, a, b)}")
        table = np.where(agree, 0.0, np.inf)[None]
        members = known.pricer.family.members
        found.append(terms((a.number, b.number), use.counts, (members, *agree.shape), each_s=table))
    return found


def _readers(known: Variables, *uses: ParameterUse) -> str:
    """How operators that cannot agree read a parameter, and what to do about it."""
    read = []
    for use in uses:
        op, layout = known.items[use.number].op, use.layouts[0]
        read.append(f"{op.name} ({op.type}) reads it in slices of {[*layout.slice_shape]}")
    on_the_fly = any(known.items[use.number].members[0].is_on_the_fly for use in uses)
    remedy = "make one of them a primitive of its cell, so that it can be given another strategy"
    return f"{' and '.join(read)}: {remedy if on_the_fly else 'choose another number of devices, or of stages'}"


class MicroBatches(NamedTuple):
    """Where gradients add up over several micro-batches, whole ones whatever the optimizer shards, and on how many pipeline
    stages [members].
    """

    adds_up: NDArray[np.bool_]
    stages: NDArray[np.intp]

    @property
    def in_stages(self) -> NDArray[np.bool_]:
        """Where there are several stages."""
        found: NDArray[np.bool_] = self.stages > 1
        return found


def parameter_terms(
    known: Variables,
    uses: tuple[ParameterUse, ...],
    settings: Settings,
    accumulates: Sequence[bool] | None = None,
    stages: Sequence[int] | None = None,
) -> tuple[Terms, ...]:
    """The parameters' tables under `settings`: gradients, gathers, update; weights, gradients, states, copies in use, which are
    there once for all micro-batches.

    On which members gradients add up over several micro-batches (None: nowhere), and on how many pipeline stages (None: on one).
    """
    found = []
    one = np.ones(known.pricer.family.members, dtype=np.intp)
    micro = MicroBatches(
        one > 1 if accumulates is None else np.array(accumulates), one if stages is None else np.array(stages)
    )
    alike: dict[tuple, dict[Layout, Priced]] = {}
    unshared = replace(settings, optimizer_level=OptimizerLevel.NONE)
    for use in uses:
        summed = is_summed(known.items[use.number].op.type, use.position)
        priced = alike.setdefault((replace(use.parameter, name=""), use.reads, summed), {})
        layouts = [layout.plain for layout in use.layouts]
        for layout in dict.fromkeys(layouts):
            if layout not in priced:
                plain = place_parameter(use.parameter, layout, unshared, summed, unsummed=not summed)
                priced[layout] = _priced(known.pricer, use, plain, settings, micro)
        each_s, once_s, rest_B, copied_B = (
            np.stack(part, axis=1) for part in zip(*(priced[layout] for layout in layouts), strict=True)
        )
        tables = {"each_s": each_s, "once_s": once_s, "at_rest_B": rest_B, "copied_B": copied_B}
        found.append(terms((use.number,), use.counts, each_s.shape, **tables))
        if use.parameter.requires_grad and any(read.behind for read in use.reads) and micro.adds_up.any():
            found.append(_behind(known.pricer, use, layouts, micro))
    return merged(found)


Priced = tuple[Array, Array, Array, Array]
"""Seconds per micro-batch and per step, bytes, those of the copies in use among them, and the bytes of those that every
micro-batch has of its own where there are virtual stages; each [members].
"""


def _priced(
    pricer: Pricer, use: ParameterUse, plain: ParameterPlacement, settings: Settings, micro: MicroBatches
) -> Priced:
    """One parameter that the optimizer would leave in `plain`, its copies shared as `settings` have it; infinite where MindSpore
    would not train it rightly.
    """
    parameter, family, layout = use.parameter, pricer.family, plain.layout
    divides = np.zeros(family.members, bool)
    if layout.copies.size > 1 and may_be_shared(parameter, settings):
        copies = family.device_nums / pricer.degree(math.prod(layout.cuts))
        rows = layout.shape[0] / pricer.degree(layout.cut(0))
        divides = (copies > 1) & (rows % copies == 0)
        if divides.any():
            shared = _placed(pricer, use, share_over_all(plain), copies, settings, micro)
            if divides.all():
                return shared
    whole = _placed(pricer, use, plain, np.ones(family.members), settings, micro)
    if not divides.any():
        return whole
    each_s, once_s, rest_B, copied_B = (np.where(divides, a, b) for a, b in zip(shared, whole, strict=True))
    return each_s, once_s, rest_B, copied_B


def _placed(
    pricer: Pricer,
    use: ParameterUse,
    placement: ParameterPlacement,
    shard: Array,
    settings: Settings,
    micro: MicroBatches,
) -> Priced:
    layout, family = placement.layout, pricer.family
    elements = math.prod(layout.shape) / pricer.degree(math.prod(layout.cuts))
    nothing = np.zeros(family.members)
    if use.parameter.requires_grad and not (is_feasible(layout.copies) and is_synchronised(placement)):
        return np.full(family.members, np.inf), nothing, nothing, nothing

    def seconds(kind: str, group: DeviceGroup | None, size_B: Array) -> Array:
        return pricer.node_s(kind, group, size_B, nothing)

    tied, adds_up = use.is_tied, micro.adds_up
    first = use.reads[0]
    dtype, in_gradient = (placement.dtype, False) if tied else (first.dtype, first.in_gradient)
    cost = price_slice(seconds, placement, shard, elements, settings, dtype, in_gradient)
    # Weights are cast and gathered once for all micro-batches; their gradients are cast and added at each.
    use_s, kept_B = cost.gather_s + nothing, cost.used_B + nothing
    is_shared = placement.gather is not None
    share, stored = elements / shard, size_B(placement.dtype)
    if tied:
        # In several element types, or in a shared block: gathered, and its gradients summed, as it is stored.
        kept_B = nothing
        for read in use.reads:
            used = size_B(read.dtype)
            if read.casts:
                cast_s = pricer.local_s("Cast", elements * (stored + used))
                use_s = use_s + np.where(adds_up & read.is_behind, 0.0, cast_s)
            if read.in_gradient and (read.casts or is_shared):
                kept_B = kept_B + elements * used
    elif first.casts:
        recomputation = settings.optimizer_level is OptimizerLevel.LEVEL3 and is_shared and first.in_gradient
        use_s = use_s + (1 + recomputation) * pricer.local_s("Cast", share * (stored + size_B(first.dtype)))
    once_s, rest_B = use_s + cost.sum_s + cost.update_s, cost.at_rest_B + kept_B
    copied_B = nothing + sum(elements * size_B(read.dtype) for read in use.reads if _copies(read, placement, settings))
    if not use.parameter.requires_grad:
        return nothing, once_s, rest_B, copied_B
    grad_s = _added_s(pricer, use.reads, tied, elements, stored)
    scatters_each = settings.optimizer_level is OptimizerLevel.LEVEL2
    before = tuple(replace(read, users=read.users - read.behind, behind=0) for read in use.reads)
    total_s = _adding_s(pricer, share if scatters_each else elements, placement.dtype)
    if before != use.reads:
        # The last stage is sent the weight, and adds its own gradients up, which the first one adds to its own once.
        once_s = once_s + np.where(micro.in_stages, _adding_s(pricer, elements, placement.dtype), 0.0)
        once_s = once_s + _sent_s(pricer, elements * stored, micro)
    if not scatters_each:
        each_s = np.where(adds_up, _added_s(pricer, before, tied, elements, stored) + total_s, grad_s)
        return each_s, once_s + cost.scatter_s, rest_B + adds_up * (elements * stored - cost.gradient_B), copied_B
    each_s = _scattered_s(pricer, before, cost.scatter_s + nothing, elements, share, stored) + total_s
    return np.where(adds_up, each_s, grad_s), once_s + np.where(adds_up, 0.0, cost.scatter_s), rest_B, copied_B


def _copies(read: Read, placement: ParameterPlacement, settings: Settings) -> bool:
    """Whether every micro-batch of virtual stages keeps a copy for the gradient: of what is cast, without optimizer sharding, and
    of what is read as it is stored.
    """
    is_own = placement.gather is None and (settings.optimizer_level is OptimizerLevel.NONE or not read.casts)
    return is_own and read.in_gradient


def _behind(pricer: Pricer, use: ParameterUse, layouts: Sequence[Layout], micro: MicroBatches) -> Terms:
    """What reads the parameter behind the blocks, where gradients add up: the last stage has it too, and its own sum."""
    each_s, once_s, rest_B = [], [], []
    dtype = use.parameter.type.dtype
    stored = size_B(dtype)
    behind = [replace(read, users=read.behind) for read in use.reads if read.behind]
    nothing = np.zeros(pricer.family.members)
    for layout in layouts:
        elements = math.prod(layout.shape) / pricer.degree(math.prod(layout.cuts)) + nothing
        trains_s = _added_s(pricer, behind, use.is_tied, elements, stored) + _adding_s(pricer, elements, dtype)
        casts_s = [
            pricer.local_s("Cast", elements * (stored + size_B(read.dtype)))
            for read in use.reads
            if read.casts and read.is_behind and use.is_tied
        ]
        each_s.append(np.where(micro.adds_up, trains_s, 0.0))
        once_s.append(np.where(micro.adds_up, sum(casts_s, nothing), 0.0) + _sent_s(pricer, elements * stored, micro))
        rest_B.append(np.where(micro.in_stages, 2 * elements * stored, 0.0))  # the weight, and the sum of its gradients
    last = (*(0.0,) * (len(use.counts) - 1), 1.0)
    each, once, rest = (np.stack(part, axis=1) for part in (each_s, once_s, rest_B))
    return terms((use.number,), last, each.shape, each_s=each, once_s=once, at_rest_B=rest)


def _sent_s(pricer: Pricer, size_B: Array, micro: MicroBatches) -> Array:
    """Seconds in which the first stage sends so much of a weight to the last one, or that one as much of its gradient; bytes and
    seconds [members].
    """
    found = np.zeros(pricer.family.members)
    for member in np.flatnonzero(micro.in_stages):
        last = (int(micro.stages[member]) - 1) * int(pricer.family.device_nums[member])
        found[member] = message_s(pricer.cluster, "Send", (0, last), float(size_B[member]))
    return found


def _adding_s(pricer: Pricer, elements: Array, dtype: str) -> Array:
    """Seconds in which a gradient is added to those of the micro-batches before."""
    return pricer.local_s("AssignAdd", adding_B(elements, dtype))


def _added_s(pricer: Pricer, reads: Sequence[Read], tied: bool, elements: Array, stored: int) -> Array:
    """Seconds in which the gradients of a parameter's users are added up and cast, whole, element type by element type; of one
    that is `tied`, as it is stored.
    """
    found = np.zeros(pricer.family.members)
    for read in reads:
        if read.casts and (read.users > 0 or not tied):
            found = found + pricer.local_s("Cast", elements * (size_B(read.dtype) + stored))
    users = sum(read.users for read in reads)
    if users > 1:
        found = found + pricer.local_s("AddN", (users + 1) * elements * (stored if tied else size_B(reads[0].dtype)))
    return found


def _scattered_s(
    pricer: Pricer, reads: Sequence[Read], scatter_s: Array, elements: Array, share: Array, stored: int
) -> Array:
    """Seconds in which the gradients of a parameter's users are cast and scattered, each by itself, and their shares added up."""
    found = np.zeros(pricer.family.members)
    for read in reads:
        cast_s = pricer.local_s("Cast", elements * (size_B(read.dtype) + stored)) if read.casts else 0.0
        found = found + read.users * (cast_s + scatter_s)
    users = sum(read.users for read in reads)
    if users > 1:
        found = found + pricer.local_s("AddN", (users + 1) * share * stored)
    return found
