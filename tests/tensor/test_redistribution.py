"""Redistributions: executed with numpy on every rank's slice, and against sequences that MindSpore 2.10 compiled."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.redistribution_gradients import backward, fan_out
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.program.program import COLLECTIVES
from ms_symtensor.tensor.layout import DeviceGroup, Layout
from ms_symtensor.tensor.redistribution import Step, redistribute
from ms_symtensor.tensor.redistribution_groups import is_feasible, position, simplest

Slices = list[np.ndarray]  # of every rank


@st.composite
def factors(draw: st.DrawFn, number: int, count: int) -> tuple[int, ...]:
    result, prime = [1] * count, 2
    while number > 1:
        while number % prime == 0:
            result[draw(st.integers(0, count - 1))] *= prime
            number //= prime
        prime += 1
    return tuple(result)


@st.composite
def layouts(draw: st.DrawFn, device_num: int, shape: tuple[int, ...]) -> Layout:
    matrix = draw(factors(device_num, draw(st.integers(1, 4))))
    places = draw(st.permutations([*range(len(matrix)), *[-1] * len(shape)]))[: len(shape)]
    fits = [axis if axis >= 0 and size % matrix[-1 - axis] == 0 else -1 for axis, size in zip(places, shape)]
    return Layout(matrix, tuple(fits), shape)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Layout, Layout]:
    """Two layouts of a tensor, or of a tensor and its reshaped self, on 2 to 64 devices (24 is no power of two)."""
    device_num = draw(st.sampled_from((2, 4, 8, 16, 24, 32, 64)))
    shape = tuple(draw(st.lists(st.sampled_from((1, 2, 3, 4, 6, 8, 16, 24)), min_size=1, max_size=4)))
    reshaped = draw(factors(math.prod(shape), draw(st.integers(1, 4)))) if draw(st.booleans()) else shape
    return draw(layouts(device_num, shape)), draw(layouts(device_num, reshaped))


def slices(layout: Layout, tensor: np.ndarray) -> Slices:
    """What every rank holds of `tensor`, from the definition of a layout."""
    held = []
    for rank in range(layout.device_num):
        place = np.unravel_index(rank, layout.device_matrix)[::-1]
        starts = [0 if axis < 0 else int(place[axis]) * n for axis, n in zip(layout.tensor_map, layout.slice_shape)]
        held.append(tensor[tuple(slice(s, s + n) for s, n in zip(starts, layout.slice_shape))])
    return held


def execute(steps: tuple[Step, ...], local: Slices) -> Slices:
    """`steps` on all ranks at once; shapes are checked on the way."""
    parts: list[list[np.ndarray]] = []
    for step in steps:
        if step.kind == "Concat":
            local = [np.concatenate(own, step.dim or 0) for own in parts]
            assert {len(own) for own in parts} == {step.pieces}
        else:
            assert {a.shape for a in local} == {step.input_shape}
        ranks = [step.group.ranks(rank) if step.group else () for rank in range(len(local))]
        group, dim = step.group or DeviceGroup((1,), ()), step.dim or 0
        size = group.size
        match step.kind:
            case "Reshape":
                local = [a.reshape(step.output_shape) for a in local]
            case "Split" | "SplitWithSize":
                parts = [np.split(a, step.pieces, dim) for a in local]
            case "AllGather":
                local = [np.concatenate([local[r] for r in members]) for members in ranks]
            case "ReduceScatter":
                sums = [np.split(sum(local[r] for r in members), size) for members in ranks]
                local = [sums[rank][ranks[rank].index(rank)] for rank in range(len(local))]
            case "StridedSlice":
                local = [np.split(a, size, dim)[position(group, rank)] for rank, a in enumerate(local)]
            case "StridedSliceGrad":
                padded = []
                for rank, a in enumerate(local):
                    whole = np.zeros(step.output_shape, a.dtype)
                    np.split(whole, size, dim)[position(group, rank)][...] = a
                    padded.append(whole)
                local = padded
            case "AlltoAll":
                sent = [np.split(a, size, dim) for a in local]
                local = [
                    np.concatenate([sent[r][members.index(rank)] for r in members], step.concat_dim or 0)
                    for rank, members in enumerate(ranks)
                ]
        assert {a.shape for a in local} == {step.output_shape}
    return local


@settings(max_examples=300)
@given(pairs(), st.booleans())
def test_every_rank_ends_with_its_slice_of_the_target(pair: tuple[Layout, Layout], enable_alltoall: bool) -> None:
    source, target = pair
    try:
        steps = redistribute(source, target, enable_alltoall)
    except InvalidStrategyError:
        assume(False)
    tensor = np.arange(math.prod(source.shape))
    received = execute(steps, slices(source, tensor.reshape(source.shape)))
    wanted = slices(target, tensor.reshape(target.shape))
    assert all(np.array_equal(a, b) for a, b in zip(received, wanted, strict=True))


@settings(max_examples=150)
@given(pairs(), st.booleans(), st.integers(0, 2**32 - 1))
def test_backward_is_the_transpose_of_forward(
    pair: tuple[Layout, Layout], enable_alltoall: bool, seed: int
) -> None:  # fmt: skip
    # <forward(x), y> = <x, backward(y)> over all ranks defines the gradient of a linear program
    source, target = pair
    try:
        steps = redistribute(source, target, enable_alltoall)
    except InvalidStrategyError:
        assume(False)
    rng = np.random.default_rng(seed)
    x = [rng.integers(-9, 9, source.slice_shape) for _ in range(source.device_num)]
    y = [rng.integers(-9, 9, target.slice_shape) for _ in range(source.device_num)]
    forward_product = sum(int((a * b).sum()) for a, b in zip(execute(steps, x), y))
    assert forward_product == sum(int((a * b).sum()) for a, b in zip(x, execute(backward(steps), y)))


@settings(max_examples=100)
@given(pairs(), st.booleans())
def test_no_step_without_need(pair: tuple[Layout, Layout], enable_alltoall: bool) -> None:
    source, _ = pair
    assert redistribute(source, source, enable_alltoall) == ()


def kinds_and_ranks(steps: tuple[Step, ...], rank: int) -> list[tuple]:
    return [(s.kind, s.output_shape, s.group.ranks(rank)) if s.group else (s.kind, s.output_shape) for s in steps]


def collectives(steps: tuple[Step, ...]) -> list[str]:
    return [step.kind for step in steps if step.kind in COLLECTIVES]


def test_gather_along_dim_1_takes_the_parts_apart_and_joins_them() -> None:
    steps = redistribute(Layout((2, 4), (1, 0), (16, 32)), Layout((2, 4), (1, -1), (16, 32)))
    assert kinds_and_ranks(steps, 5) == [
        ("AllGather", (32, 8), (4, 5, 6, 7)), ("Split", (32, 8)), ("Concat", (8, 32)),
    ]  # fmt: skip
    assert kinds_and_ranks(backward(steps), 5) == [
        ("SplitWithSize", (8, 32)), ("Concat", (32, 8)), ("ReduceScatter", (8, 8), (4, 5, 6, 7)),
    ]  # fmt: skip


def test_swapped_axes_with_and_without_alltoall() -> None:
    source, target = Layout((2, 4), (1, 0), (16, 32)), Layout((2, 4), (0, 1), (16, 32))
    assert kinds_and_ranks(redistribute(source, target), 5) == [
        ("AllGather", (32, 8), (4, 5, 6, 7)), ("Split", (32, 8)), ("Concat", (8, 32)), ("AllGather", (16, 32), (1, 5)),
        ("StridedSlice", (4, 32), (4, 5, 6, 7)), ("StridedSlice", (4, 16), (1, 5)),
    ]  # fmt: skip
    assert kinds_and_ranks(redistribute(source, target, True), 5) == [
        ("AllGather", (16, 8), (1, 5)), ("AlltoAll", (4, 32), (4, 5, 6, 7)), ("StridedSlice", (4, 16), (1, 5)),
    ]  # fmt: skip


def test_different_device_matrices_are_refined_to_a_common_one() -> None:
    # compiled by MindSpore 2.10.0 for rank 5: ReLU ((2, 2, 2)) -> Tanh ((2, 1, 4)) on a (16, 32, 8) tensor
    steps = redistribute(Layout((2, 2, 2), (2, 1, 0), (16, 32, 8)), Layout((2, 1, 4), (2, 1, 0), (16, 32, 8)))
    assert kinds_and_ranks(steps, 5) == [
        ("Reshape", (8, 16, 1, 4)),
        ("AllGather", (16, 16, 1, 4), (4, 5)), ("Split", (16, 16, 1, 4)), ("Concat", (8, 16, 2, 4)),
        ("AllGather", (16, 16, 2, 4), (5, 7)), ("Split", (16, 16, 2, 4)), ("Concat", (8, 32, 2, 4)),
        ("StridedSlice", (8, 32, 1, 4), (5, 7)), ("StridedSlice", (8, 32, 1, 2), (4, 5)),
        ("Reshape", (8, 32, 2)),
    ]  # fmt: skip


def test_reshape_that_needs_no_communication_is_a_local_reshape() -> None:
    steps = redistribute(Layout((4, 2), (1, 0), (8, 64)), Layout((4, 2, 1), (2, 1, 0), (8, 16, 4)))
    assert kinds_and_ranks(steps, 0) == [("Reshape", (2, 8, 4))]


def test_reshape_that_splits_a_batch_keeps_its_cut() -> None:
    # (batch * seq, hidden) -> (batch, seq, hidden), batch cut by 4
    steps = redistribute(Layout((4, 2), (1, -1), (32, 64)), Layout((4, 2), (1, -1, -1), (8, 4, 64)))
    assert kinds_and_ranks(steps, 0) == [("Reshape", (2, 4, 64))]


def test_layouts_without_a_common_matrix_gather_everything() -> None:
    source, target = Layout((3, 8), (1, -1), (24, 8)), Layout((8, 3), (1, -1), (24, 8))
    assert kinds_and_ranks(redistribute(source, target), 9) == [
        ("AllGather", (24, 8), (1, 9, 17)), ("StridedSlice", (3, 8), tuple(range(0, 24, 3))),
    ]  # fmt: skip


def test_three_consumers_share_what_the_compiler_shares() -> None:
    source = Layout((2, 4), (1, 0), (16, 32))
    cut, whole = Layout((2, 4), (1, -1), (16, 32)), Layout((2, 4), (-1, -1), (16, 32))
    chains = (redistribute(source, cut), redistribute(source, whole))
    shared = fan_out(chains)
    assert [s.kind for s in shared.forward] == ["AllGather", "Split", "Concat", "AllGather"]
    # the second gather stands after the shared one in one chain only; both gradients meet before the first
    assert collectives(shared.backward) == ["ReduceScatter", "ReduceScatter"]
    # two equal chains with two gathers: only the leading one is shared in the gradient
    twice = fan_out((chains[1], chains[1]))
    assert collectives(twice.forward) == ["AllGather", "AllGather"]
    assert len(collectives(twice.backward)) == 3
    # another leading gather of the same producer: nothing is shared in the gradient
    other = redistribute(source, Layout((2, 4), (-1, 0), (16, 32)))
    assert len(collectives(fan_out((chains[0], chains[0], other)).backward)) == 3


def test_feasible_groups_are_those_that_mindspore_creates() -> None:
    assert is_feasible(DeviceGroup((2, 4, 8), (1,)))
    assert is_feasible(DeviceGroup((3, 8), (0,)))
    assert not is_feasible(DeviceGroup((8, 6), (1,)))  # 0..5 within a server
    assert not is_feasible(DeviceGroup((2, 4, 6, 1), (1,)))  # 4, 10, 16, 22: other local ranks on each server
    assert not is_feasible(DeviceGroup((12,), (0,)))


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (Layout((8, 6), (-1, 0), (8, 96)), Layout((48,), (-1, -1), (8, 96)), "does not create"),
        (Layout((6,), (0,), (96,)), Layout((6,), (-1,), (96,)), "6 Ascend devices"),
        (Layout((8,), (0,), (12,)), Layout((8,), (-1,), (12,)), "cannot be cut in 8"),
        (Layout((8,), (0,), (16,)), Layout((4,), (-1,), (16,)), "between 8 and 4"),
        (Layout((8,), (0,), (16,)), Layout((8,), (0,), (32,)), "cannot be reshaped"),
    ],
)
def test_what_mindspore_rejects_is_an_error(source: Layout, target: Layout, reason: str) -> None:
    with pytest.raises(InvalidStrategyError, match=reason):
        redistribute(source, target)


@given(st.data())
def test_simplest_form_of_a_group_keeps_its_ranks_and_positions(data: st.DataObject) -> None:
    matrix = tuple(data.draw(st.lists(st.sampled_from((1, 2, 3, 4)), min_size=1, max_size=5)))
    group = DeviceGroup(matrix, tuple(data.draw(st.lists(st.sampled_from(range(len(matrix))), unique=True))))
    simple = simplest(group)
    for rank in range(math.prod(matrix)):
        assert simple.ranks(rank) == group.ranks(rank)
        assert position(simple, rank) == position(group, rank)
    assert len(simple.device_matrix) <= len(matrix)
    assert simplest(simple) == simple
