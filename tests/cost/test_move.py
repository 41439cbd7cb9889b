"""What redistributions cost."""

import pytest

from ms_symtensor.cluster.collective_time import collective_time_s
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.move import local_time_s, move_cost, node_cost
from ms_symtensor.tensor.layout import DeviceGroup, Layout
from ms_symtensor.tensor.redistribution import redistribute

A2 = load("atlas_800t_a2")
WHOLE, ROWS = Layout((8,), (-1, -1), (1024, 512)), Layout((8,), (0, -1), (1024, 512))


def test_a_gather_communicates_both_ways():
    there, back = move_cost(A2, redistribute(ROWS, WHOLE), 2.0)
    expected = collective_time_s(A2, "AllGather", tuple(range(8)), 1024 * 512 * 2) + A2.device.op_overhead_s
    assert there.communication_s == pytest.approx(expected)
    assert there.local_s == 0.0
    scatter = collective_time_s(A2, "ReduceScatter", tuple(range(8)), 1024 * 512 * 2)
    assert back.communication_s == pytest.approx(scatter + A2.device.op_overhead_s)


def test_a_slice_is_local():
    there, back = move_cost(A2, redistribute(WHOLE, ROWS), 2.0)
    assert there.communication_s == back.communication_s == 0.0
    assert there.time_s == local_time_s(A2, "StridedSlice", (1024 + 128) * 512 * 2)


def test_nothing_to_do_costs_nothing():
    there, back = move_cost(A2, redistribute(ROWS, ROWS), 2.0)
    assert there.time_s == back.time_s == 0.0
    assert local_time_s(A2, "Reshape", 1e9) == 0.0


def test_more_bytes_take_longer():
    group = DeviceGroup((8,), (0,))
    times = [node_cost(A2, "AllReduce", group, n, n).time_s for n in (1e3, 1e6, 1e9)]
    assert times == sorted(set(times))
