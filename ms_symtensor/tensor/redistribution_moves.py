"""The moves that carry a tensor from one layout to another, and MindSpore's rules for finding and merging them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ms_symtensor.tensor.layout import DeviceGroup

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Gather:
    """Every device of `group` gets the slices of all, joined along `dim`."""

    dim: int
    group: DeviceGroup


@dataclass(frozen=True)
class Slice:
    """Every device keeps its own part along `dim`; its position counts along `group.axes`, major to minor."""

    dim: int
    group: DeviceGroup


@dataclass(frozen=True)
class Exchange:
    """All-to-all: cut along `split_dim`, joined along `concat_dim`."""

    split_dim: int
    concat_dim: int
    group: DeviceGroup


@dataclass(frozen=True)
class View:
    """A Reshape of the local slice."""

    shape: Shape


Move = Gather | Slice | Exchange | View


def local_shape(shape: Shape, move: Move) -> Shape:
    """Shape of the local slice after `move`."""
    if isinstance(move, View):
        return move.shape
    sizes = list(shape)
    if isinstance(move, Gather):
        sizes[move.dim] *= move.group.size
    elif isinstance(move, Slice):
        sizes[move.dim] //= move.group.size
    else:
        sizes[move.split_dim] //= move.group.size
        sizes[move.concat_dim] *= move.group.size
    return tuple(sizes)


def _local_shapes(shape: Shape, moves: Sequence[Move]) -> list[Shape]:
    """The local shape before the first move, and after each."""
    shapes = [shape]
    for move in moves:
        shapes.append(local_shape(shapes[-1], move))
    return shapes


@lru_cache(maxsize=1 << 16)
def find_moves(
    device_matrix: tuple[int, ...], before: tuple[int, ...], after: tuple[int, ...], enable_alltoall: bool
) -> tuple[Move, ...]:
    """The moves of a tensor on `device_matrix` from tensor map `before` to `after`.

    MindSpore's order: first whatever can be sliced or exchanged without gathering, dim by dim, until nothing changes;
    then gather the axes that the target does not use; if nothing of this applies (a cycle of axes), gather one dim.
    """
    found = _Moves(device_matrix, before, after, enable_alltoall)
    while found.pending:
        count = len(found.moves)
        found.until_stuck(found.slice_all, lambda: found.until_stuck(found.exchange_all))
        found.gather_unused()
        if len(found.moves) == count and found.pending:
            found.gather(next(iter(found.pending)))
    return tuple(found.moves)


class _Moves:
    """The moves so far, and the dims that are still `pending`, each with the axis that cuts it (-1: none)."""

    def __init__(
        self, device_matrix: tuple[int, ...], before: tuple[int, ...], after: tuple[int, ...], enable_alltoall: bool
    ) -> None:
        self.moves: list[Move] = []
        self.pending = {dim: before[dim] for dim in _ORDERS[len(before)]}
        self._device_matrix, self._before, self._after, self._exchanges = device_matrix, before, after, enable_alltoall

    def until_stuck(self, *steps: Callable[[], None]) -> None:
        """Take `steps` again and again until nothing is pending, or they add no move."""
        count = -1
        while self.pending and count != len(self.moves):
            count = len(self.moves)
            for step in steps:
                step()

    def slice_all(self) -> None:
        """Slice every dim that is whole, by an axis that cuts no other one."""
        for dim in list(self.pending):
            if not self._settle(dim) and self.pending[dim] == -1 and self._after[dim] not in self.pending.values():
                self.moves.append(Slice(dim, self._group(self._after[dim])))
                del self.pending[dim]

    def exchange_all(self) -> None:
        """Cut every dim that is whole by the axis that another one gives up."""
        for dim in list(self.pending):
            axis = self._after[dim]
            if self._settle(dim) or self.pending[dim] != -1 or axis not in self.pending.values():
                continue
            holder, group = self._before.index(axis), self._group(axis)
            self.moves += (
                [Exchange(dim, holder, group)] if self._exchanges else [Gather(holder, group), Slice(dim, group)]
            )
            del self.pending[dim]
            self.pending[holder] = -1

    def gather_unused(self) -> None:
        """Gather every dim whose axis the target does not use."""
        for dim, axis in list(self.pending.items()):
            if axis != -1 and axis not in self._after:
                self.gather(dim)
                self._settle(dim)

    def gather(self, dim: int) -> None:
        self.moves.append(Gather(dim, self._group(self.pending[dim])))
        self.pending[dim] = -1

    def _settle(self, dim: int) -> bool:
        if self.pending[dim] == self._after[dim]:
            del self.pending[dim]
            return True
        return False

    def _group(self, axis: int) -> DeviceGroup:
        return DeviceGroup(self._device_matrix, (len(self._device_matrix) - 1 - axis,))


def _visiting_order(dim_num: int) -> tuple[int, ...]:
    """The order in which MindSpore looks at the dims: that of the hash table (robin_hood::unordered_map) it keeps them in.

    It decides which of several possible gathers or exchanges comes first, and so the bytes of each.
    """
    size = 8
    while dim_num > size * 80 // 100:
        size *= 2

    def slot(dim: int) -> tuple[int, int]:
        value = dim
        for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            value = (value ^ value >> 33) * multiplier & (1 << 64) - 1
        value ^= value >> 33
        return value >> 5 & size - 1, -(value & 31)

    return tuple(sorted(range(dim_num), key=slot))


_ORDERS = tuple(map(_visiting_order, range(65)))
"""By the number of dims: of a tensor, each split where an axis of the device matrix is."""


def merge_moves(moves: Sequence[Move], shape: Shape) -> Sequence[Move]:
    """What MindSpore makes of a list of moves that starts at local `shape`: gathers first, neighbours merged.

    A list with an all-to-all stays as it is, and so does a single operator (a gather along dim 0, a slice, a reshape).
    """
    if any(isinstance(move, Exchange) for move in moves):
        return moves
    if len(moves) <= 1 and not any(isinstance(move, Gather) and move.dim for move in moves):
        return moves
    moves = _without_idle_views(moves, shape)
    moves = _gathers_first(moves)
    moves = _gathers_along_dim_0(moves, shape)
    moves = _views_before_slices(moves, shape)
    moves = _without_idle_views(moves, shape)
    moves = _merged_gathers(moves)
    return _merged_slices(moves)


def _without_idle_views(moves: Sequence[Move], shape: Shape) -> Sequence[Move]:
    """Consecutive views made one; a view that changes nothing is dropped."""
    if not any(isinstance(move, View) for move in moves):
        return moves
    kept: list[Move] = []
    shapes = [shape]
    for move in moves:
        if isinstance(move, View) and kept and isinstance(kept[-1], View):
            kept.pop()
            shapes.pop()
        if not isinstance(move, View) or move.shape != shapes[-1]:
            kept.append(move)
            shapes.append(local_shape(shapes[-1], move))
    return kept


def _gathers_first(moves: Sequence[Move]) -> list[Move]:
    """Between two views: gathers (last dim first), then slices (first dim first)."""
    runs: list[list[Move]] = [[]]
    for move in moves:
        if isinstance(move, View):
            runs += [[move], []]
        else:
            runs[-1].append(move)
    return [move for run in runs for move in sorted(run, key=_order)]


def _order(move: Move) -> tuple[int, int]:
    if isinstance(move, Gather):
        return 0, -move.dim
    if isinstance(move, Slice):
        return 1, move.dim
    return 0, 0  # a view, alone in its run


def _gathers_along_dim_0(moves: Sequence[Move], shape: Shape) -> Sequence[Move]:
    """A gather whose earlier dims all have size 1 is made along dim 0, which needs no Split and Concat."""
    if not any(isinstance(move, Gather) and move.dim for move in moves):
        return moves
    result: list[Move] = []
    shapes = _local_shapes(shape, moves)
    for index, move in enumerate(moves):
        before, after = shapes[index], shapes[index + 1]
        if not isinstance(move, Gather) or move.dim == 0 or math.prod(before[: move.dim]) != 1:
            result.append(move)
            continue
        last = next((i for i in range(len(result) - 1, -1, -1) if not isinstance(result[i], View)), None)
        flat = before[move.dim :] if last is None else _local_shapes(shape, result)[last + 1]
        result += [View(flat), Gather(0, move.group), View(after)]
    return result


def _views_before_slices(moves: Sequence[Move], shape: Shape) -> Sequence[Move]:
    """A slice of the outermost (non-unit) dim followed by a view: the view first, then the slice along dim 0."""
    if not any(isinstance(move, View) for move in moves):
        return moves
    moves = list(moves)
    for index in range(len(moves) - 2, -1, -1):
        move, view = moves[index], moves[index + 1]
        if not isinstance(move, Slice) or not isinstance(view, View):
            continue
        if math.prod(_local_shapes(shape, moves)[index][: move.dim]) != 1:
            continue
        moves[index] = View((view.shape[0] * move.group.size, *view.shape[1:]))
        moves[index + 1] = Slice(0, move.group)
    return moves


def _merged_gathers(moves: Sequence[Move]) -> list[Move]:
    """Neighbouring gathers along one dim, the second over the next wider stride, are one gather."""
    merged: list[Move] = []
    for move in moves:
        previous = merged[-1] if merged else None
        if (
            isinstance(move, Gather)
            and isinstance(previous, Gather)
            and move.dim == previous.dim
            and _stride(previous.group) * previous.group.size == _stride(move.group)
        ):
            merged[-1] = replace(move, group=_joined(move.group, previous.group))
        else:
            merged.append(move)
    return merged


def _merged_slices(moves: Sequence[Move]) -> list[Move]:
    """Slices of one dim, with nothing but views between, are one slice; the views between them are lost."""
    merged: list[Move] = []
    for move in moves:
        last = next((i for i in range(len(merged) - 1, -1, -1) if not isinstance(merged[i], View)), None)
        if isinstance(move, Slice) and last is not None:
            previous = merged[last]
            if isinstance(previous, Slice) and previous.dim == move.dim:
                merged[last:] = [replace(move, group=_joined(previous.group, move.group))]
                continue
        merged.append(move)
    return merged


def _joined(major: DeviceGroup, minor: DeviceGroup) -> DeviceGroup:
    return DeviceGroup(major.device_matrix, major.axes + minor.axes)


def _stride(group: DeviceGroup) -> int:
    ranks = group.ranks()
    return ranks[1] - ranks[0]
