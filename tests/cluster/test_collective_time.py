import random
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_symtensor.algebra.expression import compile_expression
from ms_symtensor.cluster.collective_time import (
    Piece,
    _upper_envelope,
    collective_time,
    collective_time_of_sizes,
    collective_time_s,
    group_formula,
)
from ms_symtensor.cluster.hccl import Collective
from ms_symtensor.cluster.load import known_clusters, load
from ms_symtensor.cluster.topology import Library, group_sizes
from ms_symtensor.errors import InputError

A2 = load("atlas_800t_a2")
MiB = 2**20

_LOADED = [load(name) for name in known_clusters()]
clusters = st.sampled_from(_LOADED)
of_hccl = st.sampled_from([cluster for cluster in _LOADED if cluster.rules.library is Library.HCCL])
kinds = st.sampled_from(["AllReduce", "AllGather", "ReduceScatter", "AlltoAll", "Broadcast"])
# Groups as meshes make them: `count` ranks at a stride.
groups = st.tuples(st.sampled_from([1, 2, 4, 8, 16, 32]), st.integers(1, 24)).map(
    lambda drawn: tuple(range(0, drawn[0] * drawn[1], drawn[0]))
)
sizes_B = st.floats(0, 1e11)


def by_expression(cluster, kind, ranks, size_B):
    """The printed expression itself, evaluated with the cluster's numbers."""
    expression = group_formula(cluster, kind, ranks).expression
    members = {f"p_{level.name}": p for level, p in zip(cluster.levels, group_sizes(cluster, ranks), strict=True)}
    known = {**cluster.arguments, **members, "n": size_B}
    symbols = expression.free_symbols
    return compile_expression(expression, symbols)(**{s.name: known[s.name] for s in symbols})


@given(clusters, kinds, groups, sizes_B)
def test_numbers_are_those_of_the_printed_expression(cluster, kind, ranks, size_B):
    expected = by_expression(cluster, kind, ranks, size_B)
    assert collective_time_s(cluster, kind, ranks, size_B) == pytest.approx(float(expected), rel=1e-9, abs=1e-15)


@given(clusters, kinds, groups, st.lists(sizes_B, min_size=1, max_size=8))
def test_arrays_agree_with_single_values(cluster, kind, ranks, sizes):
    one_by_one = [collective_time_s(cluster, kind, ranks, size) for size in sizes]
    np.testing.assert_allclose(collective_time(cluster, kind, ranks).array_s(sizes), one_by_one, rtol=1e-12)


@given(clusters, kinds, groups, sizes_B, sizes_B)
def test_more_bytes_take_no_less_time_with_the_same_algorithm(cluster, kind, ranks, first, second):
    pieces = collective_time(cluster, kind, ranks).pieces
    assert pieces[0].from_B == 0
    assert all(piece.alpha_s >= 0 and piece.beta_s_per_B >= 0 for piece in pieces)
    regimes = group_formula(cluster, kind, ranks).regimes
    if len(regimes) == 1:
        small, large = sorted((first, second))
        slack = 1 + 1e-12
        assert collective_time_s(cluster, kind, ranks, small) <= collective_time_s(cluster, kind, ranks, large) * slack


@given(clusters, kinds, sizes_B, st.integers(0, 300))
def test_a_single_rank_costs_nothing(cluster, kind, size_B, rank):
    assert collective_time_s(cluster, kind, (rank,), size_B) == 0


@given(of_hccl, groups, sizes_B)
def test_all_reduce_is_reduce_scatter_and_all_gather_on_one_level(cluster, ranks, size_B):
    if sum(size > 1 for size in group_sizes(cluster, ranks)) == 1:
        both = sum(collective_time_s(cluster, kind, ranks, size_B) for kind in ("ReduceScatter", "AllGather"))
        assert collective_time_s(cluster, "AllReduce", ranks, size_B) == pytest.approx(both)


@given(of_hccl, kinds, groups, sizes_B)
def test_several_levels_take_at_least_as_long_as_each_on_its_share(cluster, kind, ranks, size_B):
    sizes = group_sizes(cluster, ranks)
    total = collective_time_s(cluster, kind, ranks, size_B)
    for index, members in enumerate(sizes):
        alone = tuple(members if i == index else 1 for i in range(len(sizes)))
        # What reaches a level is at least the share left when all inner levels have been reduced.
        share = size_B / np.prod(sizes[:index]) if kind != "AlltoAll" else size_B
        level_alone = collective_time_of_sizes(cluster, Collective(kind), alone).seconds(share)
        assert total * (1 + 1e-9) >= level_alone


@given(st.integers(2, 7), sizes_B)
def test_a_larger_group_in_a_mesh_uses_more_links(members, size_B):
    smaller = collective_time_s(A2, "AllGather", tuple(range(members)), size_B)
    assert collective_time_s(A2, "AllGather", tuple(range(members + 1)), size_B) <= smaller


def test_figures_of_a2_by_hand():
    eight = tuple(range(8))
    assert collective_time_s(A2, "AllGather", eight, 8 * MiB) == pytest.approx(2.5e-6 + MiB / 18.2e9)
    assert collective_time_s(A2, "AllReduce", eight, 8 * MiB) == pytest.approx(2 * (2.5e-6 + MiB / 18.2e9))
    apart = tuple(range(0, 32, 8))  # one rank on each of four nodes: NHR, two steps each way
    assert collective_time_s(A2, "AllReduce", apart, 4 * MiB) == pytest.approx(4 * 8e-6 + 2 * 3 * MiB / 20e9)
    assert collective_time_s(A2, "Send", (7, 8), MiB) == pytest.approx(8e-6 + MiB / 20e9)
    assert collective_time_s(A2, "Receive", (6, 7), MiB) == pytest.approx(2.5e-6 + MiB / 18.2e9)


def test_two_nodes_overlap_from_32_kib_per_rank_on():
    pieces = collective_time(A2, "AllGather", tuple(range(16))).pieces
    assert [piece.from_B for piece in pieces[:2]] == [0, 16 * 32768]
    share = 64 * MiB / 16
    slower = max(8e-6 + share / 20e9, 2.5e-6 + share / 18.2e9)
    assert collective_time_s(A2, "AllGather", tuple(range(16)), 64 * MiB) == pytest.approx(
        slower + 2.5e-6 + share / 18.2e9
    )


def test_the_upper_envelope_of_three_lines():
    lines = [(3.0, 0.0), (2.0, 1.0), (0.0, 2.0)]
    assert _upper_envelope(lines, 0.0, float("inf")) == [Piece(0, 3, 0), Piece(1, 2, 1), Piece(2, 0, 2)]
    assert _upper_envelope(lines, 0.0, 1.5) == [Piece(0, 3, 0), Piece(1, 2, 1)]
    assert _upper_envelope([(3.0, 0.0), (0.0, 3.0), (1.0, 2.0)], 0.0, 9.0) == [Piece(0, 3, 0), Piece(1, 0, 3)]


def test_a_hundred_thousand_evaluations_are_cheap():
    draw = random.Random(0)
    groups = [tuple(range(0, stride * count, stride)) for stride in (1, 2, 8) for count in (2, 4, 8, 16)]
    sizes = np.array([draw.uniform(1e3, 1e9) for _ in range(10_000)])
    for ranks in groups:
        collective_time(A2, "AllReduce", ranks)
    start = time.perf_counter()
    for ranks in groups:
        collective_time(A2, "AllReduce", ranks).array_s(sizes)
    assert time.perf_counter() - start < 0.5  # 120,000 times


def test_user_errors():
    with pytest.raises(InputError, match="unknown collective 'AllSum'; known: AllReduce"):
        collective_time_s(A2, "AllSum", (0, 1), 1)
    with pytest.raises(InputError, match="Send between 3 ranks: it joins exactly two"):
        collective_time_s(A2, "Send", (0, 1, 2), 1)
