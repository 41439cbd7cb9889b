"""Dims cut by several device axes, and groups of ranks as device axes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_symtensor.errors import InputError
from ms_symtensor.tensor.extended_layout import extended_layout, group_on
from ms_symtensor.tensor.layout import DeviceGroup, Layout
from ms_symtensor.tensor.redistribution import redistribute


def test_one_axis_per_dim_stays_as_it_is():
    assert extended_layout((2, 4), (1, 0), (8, 8)) == Layout((2, 4), (1, 0), (8, 8))


def test_neighbouring_axes_become_one():
    found = extended_layout((2, 2, 4), ((1, 0), 2), (16, 8))
    assert found == Layout((2, 8), (0, 1), (16, 8), Layout((2, 2, 4), (1, 0, 2), (2, 8, 8)))
    assert found.slice_shape == (2, 4)


def test_a_dim_of_two_axes_is_gathered_over_one_after_the_other():
    whole = Layout((8,), (-1,), (64,))
    gathers = [s for s in redistribute(extended_layout((2, 2, 2), ((2, 1),), (64,)), whole) if s.kind == "AllGather"]
    assert [(s.group.ranks(), s.output_shape) for s in gathers if s.group] == [((0, 2), (32,)), ((0, 4), (2, 32))]
    (one,) = redistribute(Layout((4, 2), (1,), (64,)), whole)
    assert one.group is not None and one.group.ranks() == (0, 2, 4, 6)


def test_layouts_that_differ_in_axes_alone_need_nothing():
    assert redistribute(extended_layout((2, 2, 2), ((2, 1),), (64,)), Layout((4, 2), (1,), (64,))) == ()


def test_axes_of_size_one_do_not_matter():
    found = extended_layout((2, 1, 4), ((2, 0), 1, -1), (16, 8, 3))
    assert found.cuts == (8, 1, 1)
    assert found.copies.size == 1


def test_axes_that_are_no_neighbours_are_refused():
    for entry in ((2, 0), (0, 1)):
        with pytest.raises(InputError, match="no neighbours in order: reorder the device matrix"):
            extended_layout((2, 2, 2), (entry, -1), (8, 8))


def test_what_makes_no_sense_is_refused():
    with pytest.raises(InputError, match="one entry per dim"):
        extended_layout((2, 2), (0,), (8, 8))
    with pytest.raises(InputError, match="a device axis for two dims"):
        extended_layout((2, 2), (0, 0), (8, 8))
    with pytest.raises(InputError, match="axis 2 of the layout is none"):
        extended_layout((2, 2), (2, 0), (8, 8))
    with pytest.raises(InputError, match=r"dim 0 of a tensor of shape \[6, 8\] does not divide into 4"):
        extended_layout((2, 2), ((1, 0), -1), (6, 8))


@given(st.lists(st.sampled_from((1, 2, 3, 4)), min_size=1, max_size=4), st.integers(0, 15), st.data())
def test_groups_along_axes_are_recognised_for_every_rank(matrix, chosen, data):
    group = DeviceGroup(tuple(matrix), tuple(a for a in range(len(matrix)) if chosen >> a & 1))
    device_num = 1
    for size in matrix:
        device_num *= size
    rank = data.draw(st.integers(0, device_num - 1))
    found = group_on(group.ranks(rank), device_num)
    assert [found.ranks(r) for r in range(device_num)] == [group.ranks(r) for r in range(device_num)]


@pytest.mark.parametrize("ranks", [(0, 1, 3), (1, 2), (0, 1, 4, 6)])
def test_irregular_groups_are_refused(ranks):
    with pytest.raises(InputError, match="do not lie regularly on 8 devices"):
        group_on(ranks, 8)
