"""What MindSpore inserts between a tensor's producer and a consumer that wants it in another layout.

`redistribute` gives the forward operators: the sequences are MindSpore's own, operator by operator, for 2.7.1 to 2.10.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.tensor.layout import DeviceGroup, Layout
from ms_symtensor.tensor.redistribution_groups import is_feasible, simplest
from ms_symtensor.tensor.redistribution_moves import (
    Exchange,
    Gather,
    Move,
    Shape,
    Slice,
    View,
    find_moves,
    local_shape,
    merge_moves,
)
from ms_symtensor.tensor.redistribution_unify import unify

SCATTERED = frozenset({"bfloat16", "bool", "complex64", "float16", "float32", "int8", "int16", "int32", "int64"})
"""Element types that MindSpore's ReduceScatter takes, and so AllGather, whose gradient it is (checked for integers too)."""


class Step(NamedTuple):
    """One operator on the local slice.

    `kind` is MindSpore's: AllGather (always along dim 0), AlltoAll, StridedSlice, Split, Concat, Reshape; its gradient's is
    `program.backward.MOVE_GRADIENT`. `group` holds the ranks that take part, or among which a StridedSlice takes its
    `redistribution_groups.position`; None for Split, Concat and Reshape. `dim` is the tensor dim that is gathered, sliced,
    split or joined; an AlltoAll splits `dim` and joins `concat_dim`. Shapes are local; a Split's output and a Concat's
    input are the whole tensor, in `pieces` parts.
    """

    kind: str
    input_shape: Shape
    output_shape: Shape
    group: DeviceGroup | None = None
    dim: int | None = None
    concat_dim: int | None = None
    pieces: int = 1


@lru_cache(maxsize=1 << 18)
def redistribute(source: Layout, target: Layout, enable_alltoall: bool = False) -> tuple[Step, ...]:
    """The operators that carry a tensor from layout `source` to layout `target`, in order; empty if nothing is needed.

    The tensor shapes may differ: then it is what becomes of an `ops.Reshape` between the two. Raises
    InvalidStrategyError if the layouts are of different device counts or element counts, or do not divide their tensor.
    """
    _check(source, target)
    shape = source.slice_shape
    if source == target:
        return ()
    moves = _moves(source, target, enable_alltoall)
    merged = merge_moves(moves, shape)
    for move in (*moves, *merged):
        if isinstance(move, Gather | Exchange) and not is_feasible(move.group):
            raise InvalidStrategyError(
                f"redistribution from {source} to {target} needs groups of ranks like {move.group.ranks()}, some of which "
                "MindSpore does not create on Ascend; cut by powers of two within each 8 devices"
            )
    steps: list[Step] = []
    for move in merged:
        steps += _steps(move, shape)
        shape = steps[-1].output_shape
    if shape != target.slice_shape:
        raise InvalidStrategyError(
            f"no redistribution from {source} to {target}: MindSpore would arrive at local shape {shape}; "
            "choose a strategy that cuts the outer dims first"
        )
    return tuple(steps)


def _check(source: Layout, target: Layout) -> None:
    source_elements, target_elements = source.element_num, target.element_num
    if source.device_num != target.device_num:
        raise InvalidStrategyError(f"no redistribution between {source.device_num} and {target.device_num} devices")
    if not is_feasible(DeviceGroup((source.device_num,), (0,))):
        raise InvalidStrategyError(f"MindSpore has no group of {source.device_num} Ascend devices: use 2, 4 or 8k")
    if source_elements != target_elements:
        raise InvalidStrategyError(f"a tensor of shape {source.shape} cannot be reshaped to {target.shape}")


def _moves(source: Layout, target: Layout, enable_alltoall: bool) -> Sequence[Move]:
    unified = unify((source.fine or source).squeezed, (target.fine or target).squeezed)
    if unified is None:
        return _gather_then_slice(source, target)
    first, second = unified
    moves = find_moves(first.device_matrix, first.tensor_map, second.tensor_map, enable_alltoall)
    if not moves:
        return [] if source.slice_shape == target.slice_shape else [View(target.slice_shape)]
    before = [View(first.slice_shape)] if first.slice_shape != source.slice_shape else []
    after = [View(target.slice_shape)] if second.slice_shape != target.slice_shape else []
    return [*before, *moves, *after]


def _gather_then_slice(source: Layout, target: Layout) -> Sequence[Move]:
    """The way out where the layouts have no common device matrix or shape: make the tensor whole, and cut it anew."""
    first, second = (source.fine or source).plain, (target.fine or target).plain
    gathers = find_moves(first.device_matrix, first.tensor_map, (-1,) * len(first.shape), False)
    slices = find_moves(second.device_matrix, (-1,) * len(second.shape), second.tensor_map, False)
    return [
        *([View(first.slice_shape)] if first.slice_shape != source.slice_shape else []),
        *gathers,
        *([View(second.shape)] if first.shape != second.shape else []),
        *slices,
        *([View(target.slice_shape)] if second.slice_shape != target.slice_shape else []),
    ]


def _steps(move: Move, shape: Shape) -> tuple[Step, ...]:
    """The operators of one move of a slice of local `shape`."""
    after = local_shape(shape, move)
    if isinstance(move, View):
        return (Step("Reshape", shape, after),)
    group = simplest(move.group)
    if isinstance(move, Slice):
        return (Step("StridedSlice", shape, after, group, move.dim),)
    if isinstance(move, Exchange):
        return (Step("AlltoAll", shape, after, group, move.split_dim, move.concat_dim),)
    # AllGather joins along dim 0 only: for another dim the parts are taken apart again and joined where they belong.
    stacked = (shape[0] * group.size, *shape[1:])
    gather = Step("AllGather", shape, stacked, group, 0)
    if move.dim == 0:
        return (gather,)
    return (
        gather,
        Step("Split", stacked, stacked, None, 0, pieces=group.size),
        Step("Concat", after, after, None, move.dim, pieces=group.size),
    )
