"""What the nodes of redistributions cost."""

import numpy as np
import pytest

from ms_symtensor.cluster.collective_time import collective_time_s
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.move import local_time_s, node_cost
from ms_symtensor.tensor.layout import DeviceGroup

A2 = load("atlas_800t_a2")
GROUP = DeviceGroup((8,), (0,))


def test_a_collective_is_priced_by_its_larger_side():
    found = node_cost(A2, "AllGather", GROUP, 1e6 / 8, 1e6)
    expected = collective_time_s(A2, "AllGather", tuple(range(8)), 1e6) + A2.device.collective_s
    assert found == pytest.approx(expected)
    assert node_cost(A2, "ReduceScatter", GROUP, 1e6, 1e6 / 8) > A2.device.collective_s


def test_a_slice_is_local():
    assert node_cost(A2, "StridedSlice", None, 1024.0, 128.0) == local_time_s(A2, "StridedSlice", 1024 + 128)
    assert local_time_s(A2, "Reshape", 1e9) == 0.0


def test_what_fits_into_the_cache_is_moved_faster():
    device = A2.device
    fits_s, exceeds_s = (
        local_time_s(A2, "Cast", size_B) - device.op_overhead_s for size_B in (192 << 20, (192 << 20) + 1)
    )
    assert device.l2_B == 192 << 20 and exceeds_s / fits_s == pytest.approx(device.l2_speedup)
    assert exceeds_s == pytest.approx((192 << 20) / 1.1704e12)  # 1.76e12 bytes a second, 0.665 of it
    both = np.array([192.0 * 2**20, 1e9])
    assert local_time_s(A2, "Cast", both).tolist() == [local_time_s(A2, "Cast", size_B) for size_B in both]


def test_more_bytes_take_longer():
    times = [node_cost(A2, "AllReduce", GROUP, n, n) for n in (1e3, 1e6, 1e9)]
    assert times == sorted(set(times))
