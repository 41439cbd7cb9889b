"""NCCL's formulas, against its own cost model's figures (src/graph/tuning.cc) worked out by hand."""

import pytest

from ms_symtensor.cluster.collective_time import collective_time, collective_time_s, group_formula
from ms_symtensor.cluster.load import load

A100 = load("a100_80g")
NODE = tuple(range(8))
TWO_NODES = tuple(range(16))
ONE_PER_NODE = (0, 8, 16, 24)
GIB = 2.0**30
NVLINK, NETWORK = (level.effective_bandwidth_Bps for level in A100.levels)


def test_a_ring_inside_a_node_is_bound_by_its_links():
    assert collective_time_s(A100, "AllReduce", NODE, GIB) == pytest.approx(2 * 7 / 8 * GIB / NVLINK, rel=0.02)
    assert collective_time_s(A100, "AllGather", NODE, GIB) == pytest.approx(7 / 8 * GIB / NVLINK, rel=0.02)


def test_rings_over_nodes_use_every_network_port():
    ports = min(NVLINK, 8 * NETWORK)
    assert collective_time_s(A100, "AllReduce", TWO_NODES, GIB) == pytest.approx(2 * 15 / 16 * GIB / ports, rel=0.02)
    assert collective_time_s(A100, "AllReduce", ONE_PER_NODE, GIB) == pytest.approx(2 * 3 / 4 * GIB / NETWORK, rel=0.02)


def test_trees_carry_small_messages_between_many_ranks():
    many = tuple(range(256))
    assert group_formula(A100, "AllReduce", many).algorithm == "Tree, Ring for large messages"
    tree, *_, ring = collective_time(A100, "AllReduce", many).pieces
    assert tree.alpha_s < ring.alpha_s and tree.beta_s_per_B > ring.beta_s_per_B
    crossing = ring.from_B
    assert tree.alpha_s + tree.beta_s_per_B * crossing == pytest.approx(ring.alpha_s + ring.beta_s_per_B * crossing)


def test_all_to_all_sends_the_share_of_other_nodes_through_the_ranks_own_port():
    time_s = collective_time_s(A100, "AlltoAll", TWO_NODES, GIB)
    assert time_s == pytest.approx(8 / 16 * GIB / NETWORK, rel=0.02)


def test_a_transfer_takes_the_outermost_level_between_its_ends():
    assert collective_time_s(A100, "Send", (7, 8), GIB) == pytest.approx(GIB / NETWORK, rel=0.01)
    assert collective_time_s(A100, "Send", (6, 7), GIB) == pytest.approx(GIB / NVLINK, rel=0.01)
