"""Layouts and groups of ranks against their definition, written out with numpy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ms_symtensor.tensor.layout import DeviceGroup, Layout


@st.composite
def groups(draw: st.DrawFn) -> DeviceGroup:
    matrix = tuple(draw(st.lists(st.sampled_from((1, 2, 3, 4)), min_size=1, max_size=4)))
    axes = draw(st.lists(st.sampled_from(range(len(matrix))), unique=True))
    return DeviceGroup(matrix, tuple(axes))


def test_cuts_and_slice_of_a_matmul_output() -> None:
    # MatMul's device matrix (m, k, n) = (2, 1, 4); its output is cut by m and n
    layout = Layout((2, 1, 4), (2, 0), (64, 4096))
    assert layout.cuts == (2, 4)
    assert layout.slice_shape == (32, 1024)
    assert layout.device_num == 8
    assert layout.copies == DeviceGroup((2, 1, 4), (1,))
    assert layout.copies.ranks(5) == (5,)


def test_whole_dims_are_not_cut_and_copies_lie_on_unused_axes() -> None:
    layout = Layout((2, 4), (-1, 0), (6, 8))
    assert layout.cuts == (1, 4)
    assert layout.slice_shape == (6, 2)
    assert layout.copies.ranks(3) == (3, 7)
    assert Layout((2, 4), (-1, -1), (6, 8)).copies.size == 8


@given(groups(), st.data())
def test_group_holds_the_ranks_that_differ_only_along_its_axes(group: DeviceGroup, data: st.DataObject) -> None:
    grid = np.arange(np.prod(group.device_matrix)).reshape(group.device_matrix)
    rank = data.draw(st.integers(0, grid.size - 1))
    index = [int(i) for i in np.argwhere(grid == rank)[0]]
    members = grid[tuple(slice(None) if axis in group.axes else i for axis, i in enumerate(index))]
    assert group.ranks(rank) == tuple(sorted(int(r) for r in members.flat))
    assert group.size == len(group.ranks(rank))


@given(groups())
def test_groups_of_all_ranks_partition_the_devices(group: DeviceGroup) -> None:
    device_num = int(np.prod(group.device_matrix))
    distinct = {group.ranks(rank) for rank in range(device_num)}
    assert sorted(rank for ranks in distinct for rank in ranks) == list(range(device_num))
