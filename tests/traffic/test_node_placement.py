"""Nodes under leaves: exact where there are few, never worse than rank order, bounded where there are many."""

import itertools

import numpy as np
import pytest

from ms_symtensor.traffic.placement import most_B, placed


def test_a_hundred_fabrics_are_placed_as_brute_force_does() -> None:
    for case in range(100):
        rng = np.random.default_rng(case)
        number = int(rng.integers(3, 9))
        room = int(rng.integers(2, 5))
        between = rng.integers(0, 10, (number, number)) * (rng.random((number, number)) < 0.6) * 1.0
        np.fill_diagonal(between, 0)
        leaves = -(-number // room)
        found = placed(between, room)
        every = (
            of
            for of in itertools.product(range(leaves), repeat=number - 1)
            if max(of.count(one) for one in range(leaves)) <= room and of.count(0) < room
        )
        best_B = min(most_B(between, (0, *of)) for of in every)
        assert found.is_exact and found.most_B == pytest.approx(best_B) == most_B(between, found.leaf_of)
        assert found.most_B <= found.rank_order_B and max(found.leaf_of.count(one) for one in range(leaves)) <= room


@pytest.mark.parametrize("number, room", [(32, 4), (40, 16), (64, 8)])
def test_groups_that_a_permutation_hides_are_found(number: int, room: int) -> None:
    order = np.random.default_rng(number).permutation(number)
    between = np.full((number, number), 0.01)
    for first in range(0, number, room):
        group = order[first : first + room]
        between[np.ix_(group, group)] = 1.0
    np.fill_diagonal(between, 0)
    found = placed(between, room)
    assert found.bound_B <= found.most_B < 0.2 * found.rank_order_B


def test_the_bound_holds_for_what_is_placed() -> None:
    for case in range(5):
        between = np.random.default_rng(case).random((24, 24))
        np.fill_diagonal(between, 0)
        found = placed(between, 4)
        assert found.bound_B <= found.most_B <= found.rank_order_B and not found.is_exact
