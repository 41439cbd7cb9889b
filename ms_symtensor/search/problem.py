"""The optimisation problem of one stage, written as tables.

    min over strategies x  T(x) + λ (M(x) - M_max)

    T(x) = Σ_v n_v [ (1 + r ρ_v) F_v(x_v) + B_v(x_v) ] + Σ_p P_p(x) + Σ_t n_t [ (1 + r ρ_t) F_t(x) + B_t(x) ]
    M(x) = Σ_p W_p(x) + Σ_t n_t [ (1 - r) K_t(x) + r R_t(x) ]

over classes of operators v (own work and partial sums, forward F and backward B), parameters p (synchronisation, update,
memory W) and tensors t between operators (moves F and B, bytes kept for the backward pass: K without, R with
recomputation). r is the fraction of the repeated blocks that is recomputed; ρ tells whether something is computed again
there. T is exactly what `cost.step` charges for the partitioned program, but for gradients that meet after different
moves; M leaves out what lives only for a moment, so that it never exceeds the true peak.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.move import local_time_s
from ms_symtensor.cost.parameter import parameter_cost
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.placement import strategy_of
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.gradients import gradient_users, is_kept, sends_gradient
from ms_symtensor.program.parameters import is_summed, is_synchronised, place_parameter
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import ParameterPlacement, Phase, Role
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings, StagePlan
from ms_symtensor.search.elimination import Factor, elimination_order
from ms_symtensor.search.fan_out import FanOut
from ms_symtensor.search.folding import Fold, fold
from ms_symtensor.search.memory import ShortGraphs, short_graphs
from ms_symtensor.search.moves import Pairs, same_layout
from ms_symtensor.search.tensors import Reader, Tensor, is_moved, layouts_at, maker_of, tensors
from ms_symtensor.search.variables import Variables, layout_B, transparent_s, variables
from ms_symtensor.tensor.dtype import size_B
from ms_symtensor.tensor.graph import Graph, OpOutput, Parameter, ParameterRef, Source
from ms_symtensor.tensor.layout import Layout
from ms_symtensor.tensor.redistribution_groups import is_feasible

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Terms:
    """Tables over one scope: seconds forward (again where recomputed), backward, bytes kept without and with recomputation."""

    scope: tuple[int, ...]
    forward_s: Array
    again_s: Array
    backward_s: Array
    kept_B: Array
    kept_recomputed_B: Array


@dataclass(frozen=True)
class Read:
    """A parameter in one element type, through `casts` Cast operators, as `users` operators that send a gradient read it.

    `in_gradient`: the gradient of one of them reads it too.
    """

    dtype: str
    casts: int
    users: int
    in_gradient: bool


@dataclass(frozen=True)
class ParameterUse:
    """Parameters that the operators of variable `number` read as input `position`: `count` of them, all like `parameter`.

    `layouts` are those of the candidates; `reads` has more than one entry where several operators share the parameter in
    different element types.
    """

    number: int
    position: int
    parameter: Parameter
    layouts: tuple[Layout, ...]
    reads: tuple[Read, ...]
    count: int = 1


@dataclass(frozen=True)
class Problem:
    """The tables of `graph` on `device_num` devices of `cluster`; parameters are added per setting by `parameter_terms`."""

    graph: Graph
    cluster: Cluster
    device_num: int
    known: Variables
    shorts: ShortGraphs
    terms: tuple[Terms, ...]
    order: tuple[int, ...]
    parameters: tuple["ParameterUse", ...]

    @property
    def blocks(self) -> tuple[str, ...]:
        """The repeated blocks, which may be recomputed."""
        return self.shorts.blocks

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(v.strategies) for v in self.known.items)

    def at_rest_B(self, settings: Settings, choice: tuple[int, ...]) -> Iterator[int]:
        """Bytes of every parameter with its gradient and optimizer states, under one choice of candidates."""
        for use in self.parameters:
            placement = place_parameter(use.parameter, use.layouts[choice[use.number]], settings)
            cost = parameter_cost(self.cluster, placement, settings, use.reads[0].dtype)
            yield use.count * (cost.weight_B + cost.gradient_B + cost.states_B)

    @property
    def candidates(self) -> int:
        """How many operator strategies are priced, over all classes."""
        return sum(self.sizes)


def problem(graph: Graph, cluster: Cluster, mesh: tuple[int, ...], rules: Mapping[str, Rule] | None = None) -> Problem:
    """Write down the problem of `graph` on the devices of `mesh`.

    Errors: UnknownOperatorError.
    """
    device_num = math.prod(mesh)
    folded = fold(graph)
    known = variables(graph, folded, cluster, mesh, rules)
    shorts = short_graphs(graph, folded, known.meanings)
    again, cast_again = _computed_again(known, folded, shorts, device_num)
    pairs = Pairs(cluster, enable_alltoall=False)
    terms = [_own_terms(known, number, again) for number in range(len(known.items))]
    terms += _transparent_terms(graph, known, folded, cluster, device_num, cast_again)
    for tensor, count in tensors(graph, known).items():
        terms += _tensor_terms(known, tensor, count, pairs, cluster, device_num, again)
    shared = list(_parameters(graph, known))
    terms += _tied([use for _, use in shared])
    sizes = tuple(len(v.strategies) for v in known.items)
    order = elimination_order(sizes, [t.scope for t in terms])
    return Problem(graph, cluster, device_num, known, shorts, tuple(terms), order, _counted(shared))


def factors(of: Problem, parameters: list[Terms], recomputed: float, price_s_per_B: float) -> list[Factor]:
    """The tables to minimise for a fraction `recomputed` of the blocks and a price λ of memory, one per scope."""
    joint: dict[tuple[int, ...], Array] = {}
    for t in (*of.terms, *parameters):
        table = t.forward_s + recomputed * t.again_s + t.backward_s
        if price_s_per_B:
            table = table + price_s_per_B * ((1 - recomputed) * t.kept_B + recomputed * t.kept_recomputed_B)
        joint[t.scope] = joint[t.scope] + table if t.scope in joint else table
    return [Factor(scope, table) for scope, table in joint.items()]


def objective(of: Problem, parameters: list[Terms], recomputed: float, choice: tuple[int, ...]) -> tuple[float, float]:
    """Seconds and kept bytes of one choice of candidates."""
    time = memory = 0.0
    for t in (*of.terms, *parameters):
        at = tuple(choice[v] for v in t.scope)
        time += t.forward_s[at] + recomputed * t.again_s[at] + t.backward_s[at]
        memory += (1 - recomputed) * t.kept_B[at] + recomputed * t.kept_recomputed_B[at]
    return float(time), float(memory)


# -- operators -------------------------------------------------------------------------------------------------------------


def _computed_again(
    known: Variables, folded: Fold, shorts: ShortGraphs, device_num: int
) -> tuple[frozenset[int], frozenset[int]]:
    """The variables, and the classes of casts, whose work is done again in a recomputed block.

    Read off a small program, partitioned with no cuts.
    """
    if not shorts.blocks:
        return frozenset(), frozenset()
    small, meanings = min(shorts.by_length.items())[1]
    strategies = {op.name: strategy_of(known.signatures[op.name], {}) for op in small.ops if op.name in known.index}
    settings = Settings(device_num, recompute=dict.fromkeys(shorts.blocks, Recompute()))
    program = partition(small, StagePlan(strategies, settings), known=meanings)
    again = {n.op for n in program.nodes if n.phase is Phase.RECOMPUTE and n.role is Role.WORK}
    return (
        frozenset(known.index[name] for name in again if name in known.index),
        frozenset(folded.class_of[name] for name in again if name not in known.index),
    )


def _own_terms(known: Variables, number: int, again: frozenset[int]) -> Terms:
    v = known.items[number]
    zero = np.zeros(len(v.strategies))
    forward = v.count * v.forward_s
    return Terms((number,), forward, forward if number in again else zero, v.count * v.backward_s, zero, zero)


def _transparent_terms(
    graph: Graph, known: Variables, folded: Fold, cluster: Cluster, device_num: int, again: frozenset[int]
) -> list[Terms]:
    """Casts of activations, in the layout of the tensor they cast; and the additions where gradients of several users meet."""
    found: Counter[tuple] = Counter()
    for op in graph.ops:
        if op.name in known.index or op.type in ("Reshape", "StopGradient"):
            continue
        source = graph.tensor_inputs(op)[0]
        end = maker_of(graph, known, source)
        kind = graph.type_of(source)
        if end is not None and end[0] >= 0 and kind is not None:
            trains, repeats = OpOutput(op.name) in known.gradients, folded.class_of[op.name] in again
            found[end, kind.shape, kind.dtype, op.outputs[0].dtype, trains, repeats] += 1
    terms = []
    for (end, shape, source_type, target_type, trains, repeats), count in found.items():
        layouts = layouts_at(known, end, shape, device_num)
        one = np.array([transparent_s(cluster, x, source_type, target_type) for x in layouts]) * float(count)
        zero = np.zeros(len(layouts))
        terms.append(Terms((end[0],), one, one if repeats else zero, one if trains else zero, zero, zero))
    for source in known.gradients:
        if not isinstance(source, OpOutput) or is_moved(graph, known, source):
            continue  # of a tensor that is moved to its readers, the moves' table knows where gradients meet
        users = gradient_users(graph, known.signatures, known.gradients, source)
        if users < 2:
            continue
        end = maker_of(graph, known, source)
        kind = graph.type_of(source)
        if end is None or end[0] < 0 or kind is None:
            continue
        layouts = layouts_at(known, end, kind.shape, device_num)
        bytes_ = np.array([layout_B(x, kind.dtype) for x in layouts], dtype=float)
        add = np.array([local_time_s(cluster, "AddN", (users + 1) * b) for b in bytes_])
        zero = np.zeros(len(layouts))
        terms.append(Terms((end[0],), zero, zero, add, zero, zero))
    return terms


# -- tensors ---------------------------------------------------------------------------------------------------------------

JOINT_READERS = 3
"""Readers of one tensor that share a table (q, k, v): more are taken in groups of so many."""


def _tensor_terms(
    known: Variables, tensor: Tensor, count: int, pairs: Pairs, cluster: Cluster, device_num: int, again: frozenset[int]
) -> list[Terms]:
    terms = []
    for start in range(0, len(tensor.readers), JOINT_READERS):
        readers = tensor.readers[start : start + JOINT_READERS]
        others = None if start else tensor.others + sum(r.sends for r in tensor.readers[JOINT_READERS:])
        terms.append(_group_terms(known, tensor, readers, others, count, pairs, cluster, device_num, again))
    if tensor.maker[0] >= 0 and tensor.maker[1] == "out" and (tensor.maker_keeps or tensor.crosses):
        size = np.array(
            [layout_B(x, tensor.dtype) for x in layouts_at(known, tensor.maker, tensor.shape, device_num)], dtype=float
        )
        zero = np.zeros(len(size))
        kept = size * float(count) if tensor.maker_keeps else zero
        again_kept = size * float(count) if tensor.crosses else zero
        inside = known.items[tensor.maker[0]].op.block is not None
        terms.append(Terms((tensor.maker[0],), zero, zero, zero, kept, again_kept if inside else kept))
    return terms


def _group_terms(
    known: Variables,
    tensor: Tensor,
    readers: tuple[Reader, ...],
    others: int | None,
    count: int,
    pairs: Pairs,
    cluster: Cluster,
    device_num: int,
    again: frozenset[int],
) -> Terms:
    """The table of one tensor and some of its readers: what their ways have in common is paid once.

    `others` more users send a gradient back (None: where these meet is counted elsewhere).
    """
    makers = layouts_at(known, tensor.maker, tensor.shape, device_num)
    wanted = [layouts_at(known, r.end, tensor.reader_shape, device_num) for r in readers]
    ways = FanOut(tuple(pairs.cost(makers, layouts, tensor.dtype) for layouts in wanted))
    size = size_B(tensor.dtype)
    # What a recomputed operator reads, and what a gradient reads of what a block makes or moves, is moved again.
    made_again = [
        r.end[0] in again or (bool(again) and r.kept and (tensor.in_block or _in_block(known, (r,)))) for r in readers
    ]
    forward, again_s = ways.forward_s([True] * len(readers)), ways.forward_s(made_again)
    sends = [tensor.has_gradient and r.sends for r in readers]
    maker_B = np.array([float(_elements(x) * size) for x in makers])
    backward = ways.backward_s(sends, others, maker_B, cluster) if tensor.has_gradient else np.zeros(ways.shape)
    kept = np.zeros(ways.shape)
    for i, reader in enumerate(readers):
        if reader.kept:
            bytes_ = ways.spread(np.array([float(_elements(x) * size) for x in wanted[i]]), i + 1)
            new = np.ones((), bool)
            for j in range(i):
                if readers[j].kept:
                    new = new & ~ways.spread(same_layout(wanted[j], wanted[i]), j + 1, i + 1)
            if tensor.maker_keeps:
                new = new & ways.spread(ways.pairs[i].moves, 0, i + 1)
            kept = kept + np.where(new, bytes_, 0.0)
    scope = [tensor.maker[0], *(r.end[0] for r in readers)]
    again_s = np.where(np.isinf(again_s), 0.0, again_s)
    tables: list[Array] = [float(count) * t for t in (forward, again_s, backward, kept)]
    scope_out, reduced = _distinct_axes(scope, tables)
    zero = np.zeros(reduced[0].shape)
    recomputed = zero if (tensor.in_block and again) or _in_block(known, readers) else reduced[3]
    return Terms(scope_out, reduced[0], reduced[1], reduced[2], reduced[3], recomputed)


def _in_block(known: Variables, readers: tuple[Reader, ...]) -> bool:
    return all(r.end[0] >= 0 and known.items[r.end[0]].op.block is not None for r in readers)


def _elements(layout: Layout) -> int:
    count = 1
    for n in layout.slice_shape:
        count *= n
    return count


def _distinct_axes(scope: list[int], tables: list[Array]) -> tuple[tuple[int, ...], list[Array]]:
    """Drop the axes of the network's ends, join axes of the same variable (a diagonal), and sort axes by variable."""
    ends = tuple(axis for axis, v in enumerate(scope) if v < 0)
    inner = [v for v in scope if v >= 0]
    letters = {v: chr(ord("a") + k) for k, v in enumerate(sorted(set(inner)))}
    source, target = "".join(letters[v] for v in inner), "".join(letters.values())
    plain = [np.ascontiguousarray(np.einsum(f"{source}->{target}", t.squeeze(ends))) for t in tables]
    return tuple(letters), plain


# -- parameters ------------------------------------------------------------------------------------------------------------


def _parameters(graph: Graph, known: Variables) -> Iterator[tuple[Source, ParameterUse]]:
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
                yield source, ParameterUse(number, position, graph.parameter_by_name[root.name], layouts, (read,))


def _counted(uses: list[tuple[Source, ParameterUse]]) -> tuple[ParameterUse, ...]:
    """The first use of every parameter, where its layout and cost are counted, with all its reads; equal ones joined."""
    first: dict[str, ParameterUse] = {}
    reads: dict[str, dict[Source, Read]] = {}
    for source, use in uses:
        name, (new,) = use.parameter.name, use.reads
        first.setdefault(name, use)
        known = reads.setdefault(name, {}).setdefault(source, replace(new, users=0))
        reads[name][source] = replace(
            known, users=known.users + new.users, in_gradient=known.in_gradient or new.in_gradient
        )
    joined: dict[tuple, ParameterUse] = {}
    for name, use in first.items():
        use = replace(use, reads=tuple(reads[name].values()))
        key = (use.number, use.position, use.parameter.type, use.parameter.requires_grad, use.reads)
        joined[key] = replace(joined[key], count=joined[key].count + 1) if key in joined else use
    return tuple(joined.values())


def _tied(uses: list[ParameterUse]) -> list[Terms]:
    """Two operators that read one parameter must cut it alike: tables that forbid everything else."""
    first: dict[str, ParameterUse] = {}
    terms = []
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
        table = np.where(agree, 0.0, np.inf)
        zero = np.zeros(table.shape)
        terms.append(Terms((a.number, b.number), table, zero, zero, zero, zero))
    return terms


def parameter_terms(of: Problem, settings: Settings) -> list[Terms]:
    """The parameters' tables under `settings`: gradients, gathers, update; weights, gradients, states, copies in use."""
    totals: dict[int, Array] = {}
    for use in of.parameters:
        summed = is_summed(of.known.items[use.number].op.type, use.position)
        priced = np.array([_priced(of.cluster, use, layout, settings, summed) for layout in use.layouts]).T
        totals[use.number] = totals.get(use.number, 0.0) + use.count * priced
    found = []
    for number, (time, memory) in totals.items():
        zero = np.zeros(len(time))
        found.append(Terms((number,), time, zero, zero, memory, memory))
    return found


def _priced(
    cluster: Cluster, use: ParameterUse, layout: Layout, settings: Settings, summed: bool
) -> tuple[float, float]:
    """Seconds per step and bytes of one parameter in `layout`; infinite where MindSpore would not train it rightly."""
    parameter = use.parameter
    try:
        placement = place_parameter(parameter, layout, settings, summed, not summed)
    except InvalidStrategyError:
        return math.inf, 0.0
    if parameter.requires_grad and not (is_feasible(layout.copies) and is_synchronised(placement)):
        return math.inf, 0.0
    if len(use.reads) > 1:
        return _shared(cluster, use, placement, settings)
    (read,) = use.reads
    cost = parameter_cost(cluster, placement, settings, read.dtype, read.in_gradient)
    time = cost.synchronisation_s + cost.gather_s + cost.update_s
    share = cost.weight_B // size_B(placement.dtype)
    whole, stored, used = share * placement.shard, size_B(placement.dtype), size_B(read.dtype)
    if read.casts:
        again = settings.optimizer_level is OptimizerLevel.LEVEL3 and placement.shard > 1 and read.in_gradient
        time += (1 + again) * local_time_s(cluster, "Cast", share * (stored + used))
        if parameter.requires_grad:
            time += local_time_s(cluster, "Cast", whole * (used + stored))
    if parameter.requires_grad and read.users > 1:
        time += local_time_s(cluster, "AddN", (read.users + 1) * whole * used)
    return time, float(cost.weight_B + cost.gradient_B + cost.states_B + cost.used_B)


def _shared(
    cluster: Cluster, use: ParameterUse, placement: ParameterPlacement, settings: Settings
) -> tuple[float, float]:
    """As `_priced`, of a parameter in use in several element types: gathered, and its gradients summed, as it is stored."""
    cost = parameter_cost(cluster, placement, settings, placement.dtype, in_gradient=False)
    time = cost.synchronisation_s + cost.gather_s + cost.update_s
    memory = cost.weight_B + cost.gradient_B + cost.states_B
    whole, stored = cost.weight_B // size_B(placement.dtype) * placement.shard, size_B(placement.dtype)
    for read in use.reads:
        used = size_B(read.dtype)
        if read.casts:
            directions = 1 + (use.parameter.requires_grad and read.users > 0)
            time += directions * local_time_s(cluster, "Cast", whole * (stored + used))
        if read.in_gradient and (read.casts or placement.shard > 1):
            memory += whole * used
    users = sum(read.users for read in use.reads)
    if use.parameter.requires_grad and users > 1:
        time += local_time_s(cluster, "AddN", (users + 1) * whole * stored)
    return time, float(memory)
