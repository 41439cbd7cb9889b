"""Closures of least weight against all subsets."""

import random
from itertools import combinations

import pytest

from ms_symtensor.search.selections.closure import Closures


def _best(weights, implies, wanted):
    items = list(weights)
    subsets = [set(c) for n in range(len(items) + 1) for c in combinations(items, n)]
    closed = [s for s in subsets if wanted <= s and all(b in s for a, b in implies if a in s)]
    return min(sum(weights[i] for i in s) for s in closed)


@pytest.mark.parametrize("seed", range(40))
def test_no_subset_is_lighter(seed):
    rng = random.Random(seed)
    items = range(rng.randint(1, 9))
    weights = {i: rng.randint(-9, 9) for i in items}
    implies = [(a, b) for a in items for b in items if a != b and rng.random() < 0.2]
    wanted = {i for i in items if rng.random() < 0.2}
    found = Closures(len(items), implies, wanted=wanted).least(list(weights.values()))
    assert wanted <= set(found) and all(b in found for a, b in implies if a in found)
    assert sum(weights[i] for i in found) == _best(weights, implies, wanted)


def test_of_equal_ones_the_smallest_is_found():
    assert Closures(2, [(1, 0)], wanted=[0]).least([0, 0]) == [0]
    assert Closures(2, [(1, 0)]).least([3, -3]) == []
