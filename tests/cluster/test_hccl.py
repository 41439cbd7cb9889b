"""The formulas of one level, compared with those of the HCCL user guide written out."""

import math

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from ms_symtensor.algebra.symbols import bandwidth, gamma, group_size, latency, n
from ms_symtensor.algebra.text import plain
from ms_symtensor.cluster import hccl
from ms_symtensor.cluster.hccl import Algorithm, ring_or_nhr

p, a, B = group_size("node"), latency("node"), bandwidth("node")


@pytest.mark.parametrize(
    "algorithm, text",
    [
        (Algorithm.MESH, "2·alpha_node + gamma·n·(p_node - 1)/p_node + 2·n/(B_node·p_node)"),
        (
            Algorithm.RING,
            "2·alpha_node·(p_node - 1) + gamma·n·(p_node - 1)/p_node + 2·n·(p_node - 1)/(B_node·p_node)",
        ),
        (
            Algorithm.NHR,
            "2·alpha_node·⌈log2(p_node)⌉ + gamma·n·(p_node - 1)/p_node + 2·n·(p_node - 1)/(B_node·p_node)",
        ),
    ],
)
def test_all_reduce_reads_like_the_user_guide(algorithm, text):
    assert plain(hccl.all_reduce(algorithm, n, p, a, B, gamma)) == text


def test_other_collectives_on_a_mesh_and_a_switch():
    assert plain(hccl.all_gather(Algorithm.MESH, n, p, a, B)) == "alpha_node + n/(B_node·p_node)"
    assert plain(hccl.all_to_all(Algorithm.PAIRWISE, n, p, a, B)) == (
        "alpha_node·(p_node - 1) + n·(p_node - 1)/(B_node·p_node)"
    )
    assert plain(hccl.all_to_all(Algorithm.RING, n, p, a, B)) == "alpha_node·(p_node - 1) + n·(p_node - 1)/(2·B_node)"
    assert plain(hccl.broadcast(Algorithm.NHR, n, p, a, B)) == (
        "2·alpha_node·⌈log2(p_node)⌉ + 2·n·(p_node - 1)/(B_node·p_node)"
    )
    assert plain(hccl.send(n, a, B)) == "alpha_node + n/B_node"


@pytest.mark.parametrize("algorithm", [Algorithm.MESH, Algorithm.RING, Algorithm.NHR])
def test_all_reduce_is_reduce_scatter_and_all_gather(algorithm):
    both = hccl.reduce_scatter(algorithm, n, p, a, B, gamma) + hccl.all_gather(algorithm, n, p, a, B)
    assert sympy.simplify(hccl.all_reduce(algorithm, n, p, a, B, gamma) - both) == 0


@given(st.integers(2, 4096))
def test_the_choice_has_the_fewest_steps_and_prefers_ring(size):
    steps = {Algorithm.RING: size - 1, Algorithm.NHR: math.ceil(math.log2(size))}
    chosen = ring_or_nhr(size)
    assert steps[chosen] == min(steps.values())
    assert chosen is (Algorithm.RING if size <= 3 else Algorithm.NHR)


def ring_links(size: int) -> list[int]:
    """Blocks over each link when every member of a one-way ring sends one block to every other."""
    load = [0] * size
    for sender in range(size):
        for distance in range(1, size):
            for hop in range(distance):
                load[(sender + hop) % size] += 1
    return load


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_all_to_all_on_a_ring_counts_every_link_passed(size):
    blocks = ring_links(size)
    assert len(set(blocks)) == 1
    time = hccl.all_to_all(Algorithm.RING, sympy.Integer(size), sympy.Integer(size), 0, sympy.Integer(1))
    assert time == blocks[0]  # blocks of one byte at one byte per second
