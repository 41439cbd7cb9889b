"""Flows move the bytes that the price pays for, and all that a collective has to move."""

from collections import Counter

import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.cost.move import message_s
from ms_symtensor.traffic.algorithms import flows
from ms_symtensor.traffic.exchanged import Message, traffic
from ms_symtensor.traffic.fabric import loads_B, seconds_of

NODE, BETWEEN = tuple(range(8)), tuple(range(0, 64, 8))
SIZE_B = 1 << 30
KINDS = ("AllReduce", "AllGather", "ReduceScatter", "AlltoAll")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [NODE, (1, 4), BETWEEN, (0, 8, 16), tuple(range(0, 40, 8))], ids=len)
def test_the_most_loaded_link_takes_what_the_price_says(kind: str, ranks: tuple[int, ...]) -> None:
    """On one level a collective takes its latency, and then as long as its most loaded link."""
    cluster = load("atlas_800t_a2")
    of = traffic([Message("forward", kind, ranks, SIZE_B, 1)], cluster, 64)
    longest_s = max(
        seconds_of(link, size_B, cluster, None) for link, size_B in loads_B(of, cluster, None, [0] * 8).items()
    )
    slope_s = message_s(cluster, kind, ranks, 2 * SIZE_B) - message_s(cluster, kind, ranks, SIZE_B)
    assert longest_s == pytest.approx(slope_s, rel=1e-9)


@pytest.mark.parametrize("cluster", ["atlas_800t_a2", "atlas_800t_a3", "h100_80g"])
@pytest.mark.parametrize("size_B", [1 << 12, 1 << 30])
@pytest.mark.parametrize(
    "ranks", [tuple(range(32)), tuple(range(0, 32, 2)), (0, 1, 2, 8)], ids=["even", "strided", "uneven"]
)
def test_what_a_rank_sends_it_receives(cluster: str, size_B: int, ranks: tuple[int, ...]) -> None:
    for kind in KINDS:
        sent, taken = Counter[int](), Counter[int]()
        for flow in flows(load(cluster), kind, ranks, size_B):
            assert flow.source != flow.target and {flow.source, flow.target} <= set(ranks) and flow.size_B > 0
            sent[flow.source] += flow.size_B
            taken[flow.target] += flow.size_B
        least_B = (1 if kind != "AllReduce" else 2) * (len(ranks) - 1) / len(ranks) * size_B
        assert sum(sent.values()) >= least_B * len(ranks) * (1 - 1e-9)
        if kind != "AllReduce" or cluster != "h100_80g":  # the root of a tree sends less than its leaves
            assert all(sent[rank] == pytest.approx(taken[rank]) for rank in ranks)


def test_an_all_to_all_in_a_node_by_hand() -> None:
    found = list(flows(load("atlas_800t_a2"), "AlltoAllV", (4, 5, 6, 7), 400))
    assert (
        sorted(found)[:3] == [("Mesh", 4, 5, 100.0), ("Mesh", 4, 6, 100.0), ("Mesh", 4, 7, 100.0)] and len(found) == 12
    )


def test_nhr_of_three_by_hand() -> None:
    """Steps to the next and to the second next member, one slice each."""
    found = sorted(flows(load("atlas_800t_a2"), "AllGather", (0, 8, 16), 300))
    assert [flow[1:] for flow in found if flow.source == 0] == [(0, 8, 200.0)] or [
        flow[1:] for flow in found if flow.source == 0
    ] == [(0, 8, 100.0), (0, 16, 100.0)]
