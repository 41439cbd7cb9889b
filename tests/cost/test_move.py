"""What the nodes of redistributions cost."""

import pytest

from ms_symtensor.cluster.collective_time import collective_time_s
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.move import local_time_s, node_cost
from ms_symtensor.tensor.layout import DeviceGroup

A2 = load("atlas_800t_a2")
GROUP = DeviceGroup((8,), (0,))


def test_a_collective_is_priced_by_its_larger_side():
    found = node_cost(A2, "AllGather", GROUP, 1e6 / 8, 1e6)
    expected = collective_time_s(A2, "AllGather", tuple(range(8)), 1e6) + A2.device.op_overhead_s
    assert (found.communication_s, found.local_s) == (pytest.approx(expected), 0.0)
    assert node_cost(A2, "ReduceScatter", GROUP, 1e6, 1e6 / 8).communication_s > 0


def test_a_slice_is_local():
    found = node_cost(A2, "StridedSlice", None, 1024.0, 128.0)
    assert (found.communication_s, found.local_s) == (0.0, local_time_s(A2, "StridedSlice", 1024 + 128))
    assert local_time_s(A2, "Reshape", 1e9) == 0.0


def test_more_bytes_take_longer():
    times = [node_cost(A2, "AllReduce", GROUP, n, n).time_s for n in (1e3, 1e6, 1e9)]
    assert times == sorted(set(times))
