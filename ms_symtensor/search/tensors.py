"""The tensors between operators: who makes them, who reads them in which layout, what carrying them costs."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.move import move_cost
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.program.gradients import is_kept
from ms_symtensor.search.variables import Variable, Variables
from ms_symtensor.tensor.dtype import size_B
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, Op, OpOutput, ParameterRef, Source
from ms_symtensor.tensor.layout import Layout
from ms_symtensor.tensor.redistribution import collectives, redistribute

Array = NDArray[np.float64]

End = tuple[int, str, int]
"""One end of a tensor: variable number (-1: the network's input or result), "in" or "out", and the position."""


@dataclass(frozen=True)
class Reader:
    """An operator's input that reads a tensor: where, whether its gradient needs the tensor kept, whether it is recomputed."""

    end: End
    kept: bool
    inside: bool
    """Maker and reader stand in the same block, so that recomputation of the block makes the tensor again."""


NETWORK = Reader((-1, "in", 0), False, False)
"""The network's end as the reader of a Reshape that no operator follows: it takes the tensor whole."""


@dataclass(frozen=True)
class Tensor:
    """A tensor that `maker` leaves and `readers` read; shapes differ where a Reshape stands between.

    `shape` is that of the maker's layout; `reader_shape` what the readers read.
    """

    maker: End
    readers: tuple[Reader, ...]
    shape: tuple[int, ...]
    reader_shape: tuple[int, ...]
    dtype: str
    has_gradient: bool
    maker_keeps: bool
    crosses: bool
    """Some reader stands in another block than the maker: kept even where blocks are recomputed."""


@dataclass
class _Collector:
    graph: Graph
    known: Variables
    found: Counter[Tensor] = field(default_factory=Counter)


def tensors(graph: Graph, known: Variables) -> Counter[Tensor]:
    """All tensors of `graph` between the variables, each with how often it occurs."""
    collector = _Collector(graph, known)
    sources: list[Source] = [InputRef(name) for name, _ in graph.inputs]
    sources += [OpOutput(op.name, i) for op in graph.ops for i in range(len(op.outputs))]
    for source in sources:
        _collect(collector, source)
    return collector.found


def _collect(collector: _Collector, source: Source) -> None:
    """Add the tensor `source`: its readers through no other operator, at their layouts."""
    graph, known = collector.graph, collector.known
    maker = maker_of(graph, known, source)
    if maker is None:
        return
    readers, reshaped = [], []
    for user, position in graph.users.get(source, ()):
        if user.name in known.index:
            readers.append((user, position))
        elif user.type == "Reshape":
            reshaped.append(user)
    kind = graph.type_of(source)
    assert kind is not None
    if readers:
        _add(collector, source, maker, [_reader(collector, source, u, p) for u, p in readers], kind.shape, kind.shape)
    for reshape in reshaped:
        target = reshape_target(graph, known, OpOutput(reshape.name))
        reader = NETWORK if target is None else _reader(collector, source, *target)
        _add(collector, source, maker, [reader], kind.shape, reshape.outputs[0].shape)


def _add(
    collector: _Collector,
    source: Source,
    maker: End,
    readers: list[Reader],
    shape: tuple[int, ...],
    reader_shape: tuple[int, ...],
) -> None:
    kind = collector.graph.type_of(source)
    assert kind is not None
    # A reader of a reshaped tensor already has it in its own layout: only the others move it.
    moving = tuple(r for r in readers if r.end != maker) if maker[1] == "in" else tuple(readers)
    if not moving:
        return
    made = _maker_op(collector, source)
    keeps = (
        made is not None
        and isinstance(source, OpOutput)
        and made.name == source.op
        and source.index in collector.known.signatures[made.name].keeps_outputs
    )
    crosses = any(not r.inside for r in moving) and made is not None and made.block is not None
    collector.found[
        Tensor(
            maker, moving, shape, reader_shape, kind.dtype, source in collector.known.gradients, keeps, crosses
        )
    ] += 1


def _maker_op(collector: _Collector, source: Source) -> Op | None:
    while isinstance(source, OpOutput):
        op = collector.graph.op_by_name[source.op]
        if op.name in collector.known.index or op.type == "Reshape":
            return op
        source = collector.graph.tensor_inputs(op)[0]
    return None


def _reader(collector: _Collector, source: Source, user: Op, position: int) -> Reader:
    known = collector.known
    sig = known.signatures[user.name]
    kept = is_kept(collector.graph, sig, known.gradients, user, position)
    made = _maker_op(collector, source)
    inside = made is not None and made.block is not None and made.block == user.block
    end = (known.index[user.name], "in", position)
    return Reader(end, kept, inside)


def maker_of(graph: Graph, known: Variables, source: Source) -> End | None:
    """The end at which `source` gets its layout, looking through operators that keep it; None for weights and constants."""
    while isinstance(source, OpOutput):
        op = graph.op_by_name[source.op]
        if op.name in known.index:
            return (known.index[op.name], "out", source.index)
        if op.type == "Reshape":
            if maker_of(graph, known, graph.tensor_inputs(op)[0]) is None:
                return None
            target = reshape_target(graph, known, source)
            return None if target is None else (known.index[target[0].name], "in", target[1])
        source = graph.tensor_inputs(op)[0]
    if isinstance(source, InputRef):
        return (-1, "out", 0)
    assert isinstance(source, ParameterRef | Constant)
    return None


def reshape_target(graph: Graph, known: Variables, source: Source) -> tuple[Op, int] | None:
    """The operator input whose layout a Reshape's output takes: the last user's, looking through transparent operators."""
    for user, position in reversed(graph.users.get(source, ())):
        if user.type == "Reshape":
            continue
        if user.name in known.index:
            return user, position
        found = reshape_target(graph, known, OpOutput(user.name))
        if found is not None:
            return found
    return None


# -- layouts and costs of one tensor -------------------------------------------------------------------------------------


def layouts_at(known: Variables, end: End, shape: tuple[int, ...], device_num: int) -> tuple[Layout, ...]:
    """The layout at `end` for every candidate of its variable (one, uncut, for the network's inputs and result)."""
    number, side, position = end
    if number < 0:
        return (Layout((device_num,), (-1,) * len(shape), shape),)
    variable: Variable = known.items[number]
    if side == "out":
        return tuple(p.outputs[position] for p in variable.placements)
    return tuple(p.inputs[position] for p in variable.placements)


@dataclass(frozen=True)
class PairCost:
    """Carrying a tensor from every layout of its maker (rows) to every layout of a reader (columns)."""

    forward_s: Array
    backward_s: Array
    gathers: NDArray[np.bool_]
    moves: NDArray[np.bool_]


class Pairs:
    """Move costs between lists of layouts, computed once per pair of distinct layouts."""

    def __init__(self, cluster: Cluster, enable_alltoall: bool) -> None:
        self._cluster, self._enable_alltoall = cluster, enable_alltoall
        self._cache: dict[tuple, PairCost] = {}

    def cost(self, makers: tuple[Layout, ...], readers: tuple[Layout, ...], dtype: str) -> PairCost:
        """The costs for every pair; inf where MindSpore finds no way."""
        key = (makers, readers, size_B(dtype))
        if key not in self._cache:
            self._cache[key] = self._compute(makers, readers, size_B(dtype))
        return self._cache[key]

    def _compute(self, makers: tuple[Layout, ...], readers: tuple[Layout, ...], element_B: int) -> PairCost:
        rows, row_of = _distinct(makers)
        columns, column_of = _distinct(readers)
        forward, backward = np.zeros((len(rows), len(columns))), np.zeros((len(rows), len(columns)))
        gathers, moves = np.zeros(forward.shape, bool), np.zeros(forward.shape, bool)
        for i, source in enumerate(rows):
            for j, target in enumerate(columns):
                (there, back), moves[i, j], gathers[i, j] = self._one(plain_layout(source), plain_layout(target), element_B)
                forward[i, j], backward[i, j] = there, back
        index = np.ix_(row_of, column_of)
        return PairCost(forward[index], backward[index], gathers[index], moves[index])

    def _one(self, source: Layout, target: Layout, element_B: int) -> tuple[tuple[float, float], bool, bool]:
        """Seconds there and back, whether anything moves, whether it communicates.

        The steps depend on the sizes of dims only through what divides them: they are found on a small tensor of the same
        kind (shared by all tensors of that kind) and priced for the bytes of the real one.
        """
        scale = 1.0
        if source.shape == target.shape:
            small = tuple(_small(n, source.device_num) for n in source.shape)
            scale = math.prod(source.shape) / max(math.prod(small), 1)
            source = Layout(source.device_matrix, source.tensor_map, small)
            target = Layout(target.device_matrix, target.tensor_map, small)
        try:
            steps = redistribute(source, target, self._enable_alltoall)
        except InvalidStrategyError:
            return (math.inf, 0.0), True, True
        if not steps:
            return (0.0, 0.0), False, False
        there, back = move_cost(self._cluster, steps, element_B * scale)
        return (there.time_s, back.time_s), any(s.kind != "Reshape" for s in steps), bool(collectives(steps))


def _small(size: int, device_num: int) -> int:
    """The smallest size that `device_num`, twice over, divides like `size`, and that leaves a rest where `size` does."""
    common = math.gcd(size, device_num * device_num)
    return common if common == size else 2 * common


def _distinct(layouts: tuple[Layout, ...]) -> tuple[list[Layout], NDArray[np.intp]]:
    """The different layouts of a row of candidates, and which one each candidate has."""
    seen: dict[Layout, int] = {}
    chosen: list[Layout] = []
    which = []
    for layout in layouts:
        plain = plain_layout(layout)
        if plain not in seen:
            seen[plain] = len(chosen)
            chosen.append(layout)
        which.append(seen[plain])
    return chosen, np.array(which, dtype=np.intp)


@lru_cache(maxsize=1 << 16)
def plain_layout(layout: Layout) -> Layout:
    """The same layout without device axes of one device: what decides which rank holds what."""
    axes = [i for i, n in enumerate(layout.device_matrix) if n > 1]
    matrix = tuple(layout.device_matrix[i] for i in axes)
    last = len(layout.device_matrix) - 1
    place: Mapping[int, int] = {last - i: len(axes) - 1 - k for k, i in enumerate(axes)}
    return Layout(matrix, tuple(place.get(a, -1) for a in layout.tensor_map), layout.shape)


def same_layout(first: tuple[Layout, ...], second: tuple[Layout, ...]) -> NDArray[np.bool_]:
    """Whether candidate i of one end and candidate j of another hold the tensor alike."""
    number: dict[Layout, int] = {}
    code: Callable[[Layout], int] = lambda layout: number.setdefault(plain_layout(layout), len(number))  # noqa: E731 # one use
    left, right = np.array([code(x) for x in first]), np.array([code(x) for x in second])
    same: NDArray[np.bool_] = left[:, None] == right[None, :]
    return same
