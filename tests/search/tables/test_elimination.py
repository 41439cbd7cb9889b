"""The exact minimum of a sum of tables, against trying everything."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ms_symtensor.errors import InputError
from ms_symtensor.search.tables import elimination
from ms_symtensor.search.tables.elimination import Factor, elimination_order, minimise

FEW = st.sampled_from([0.0, 1.0, 2.0, 3.5, -1.0, math.inf])
"""Few values, so that ties and impossible choices are common."""

PROBLEMS = 2
"""How many problems are solved at once."""


@st.composite
def problems(draw):
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=8))
    factors = []
    for _ in range(draw(st.integers(0, 10))):
        scope = tuple(sorted(draw(st.sets(st.integers(0, len(sizes) - 1), max_size=3))))
        shape = (PROBLEMS, *(sizes[v] for v in scope))
        values = draw(st.lists(FEW, min_size=math.prod(shape), max_size=math.prod(shape)))
        factors.append(Factor(scope, np.array(values, dtype=float).reshape(shape)))
    return sizes, factors


def total(factors, problem, assignment):
    return sum(float(f.table[(problem, *(assignment[v] for v in f.scope))]) for f in factors)


@settings(max_examples=150)
@given(problems())
def test_the_minimum_is_that_of_brute_force(problem):
    sizes, factors = problem
    found = minimise(sizes, factors)
    for number, (value, assignment) in enumerate(zip(found.value, found.assignment)):
        best = min(total(factors, number, x) for x in itertools.product(*map(range, sizes)))
        assert value == pytest.approx(best)
        assert total(factors, number, assignment) == pytest.approx(best)


@settings(max_examples=50)
@given(problems(), st.randoms())
def test_every_order_finds_the_same_value(problem, random):
    sizes, factors = problem
    order = list(range(len(sizes)))
    random.shuffle(order)
    assert minimise(sizes, factors, order).value == pytest.approx(minimise(sizes, factors).value)


def test_of_equals_the_first_is_taken():
    assert minimise([3, 2], [Factor((0, 1), np.zeros((1, 3, 2)))]).assignment.tolist() == [[0, 0]]


def test_variables_of_one_value_need_no_axis():
    """An array has 32 axes at most; here a table is over 40 variables of one value, and one of two."""
    scope = tuple(range(41))
    found = minimise([1] * 40 + [2], [Factor(scope[:i], np.ones((1,) * (i + 1))) for i in (20, 30)] + [
        Factor((i, 40), np.array([[[2.0, 1.0]]])) for i in range(40)
    ])  # fmt: skip
    assert found.value.tolist() == [42.0] and found.assignment[0, 40] == 1


def test_an_order_along_a_chain_keeps_tables_small():
    sizes = [9, 2, 9, 2, 9]
    order = elimination_order(sizes, [(i, i + 1) for i in range(4)])
    assert sorted(order) == [0, 1, 2, 3, 4]
    assert order[0] in (0, 4)  # an end: its neighbour has two values, inner ones leave larger tables


def entries(sizes, scopes, order):
    """How many entries are summed when variables are eliminated in `order`."""
    left, number = [set(scope) for scope in scopes], 0
    for v in order:
        joined = set().union(*(scope for scope in left if v in scope))
        number += math.prod(sizes[u] for u in joined | {v})
        left = [scope for scope in left if v not in scope] + [joined - {v}]
    return number


@settings(max_examples=50)
@given(problems())
def test_an_order_sums_no_more_entries_than_that_of_any_rule(problem):
    sizes, factors = problem
    scopes = [factor.scope for factor in factors]
    each = [elimination._greedy(sizes, scopes, rule) for rule in (elimination._fill, elimination._left)]
    assert [number for number, _ in each] == [entries(sizes, scopes, order) for _, order in each]
    assert entries(sizes, scopes, elimination_order(sizes, scopes)) == min(number for number, _ in each)


def test_problems_whose_tables_are_too_large_together_are_solved_one_after_the_other(monkeypatch):
    rng = np.random.default_rng(0)
    factors = [Factor((i, i + 1), rng.random((7, 4, 4))) for i in range(5)]
    together = minimise([4] * 6, factors)
    monkeypatch.setattr(elimination, "TOGETHER", 40)  # those of two problems
    apart = minimise([4] * 6, factors)
    assert apart.value.tolist() == together.value.tolist()
    assert apart.assignment.tolist() == together.assignment.tolist()


def test_a_table_that_would_be_too_large_is_refused():
    sizes = [40] * 7
    with pytest.raises(InputError, match="joins too many operators"):
        minimise(sizes, [Factor((0, i), np.zeros((1, 40, 40))) for i in range(1, 7)], order=range(7))
