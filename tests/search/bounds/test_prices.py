"""Prices at which the least of some lines is as large as can be, against another solver."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from ms_symtensor.search.bounds.prices import rounded_up, slowest


def _largest_s(seconds, over, enough_s):
    """The same by HiGHS."""
    bounds, limits = seconds.shape[1], over.shape[1]
    rows = np.concatenate([-seconds, -over / 1e10, np.ones((len(seconds), 1))], axis=1)
    shares = np.concatenate([np.ones(bounds), np.zeros(limits + 1)])
    gain = np.concatenate([np.zeros(bounds + limits), -np.ones(1)])
    most = np.concatenate([np.zeros(len(rows)), np.ones(1)])
    ends = [(0, None)] * (bounds + limits) + [(0, enough_s)]
    return -linprog(gain, A_ub=np.vstack([rows, shares]), b_ub=most, bounds=ends).fun


@pytest.mark.parametrize("seed", range(20))
def test_the_least_line_is_as_large_as_can_be(seed):
    draw = np.random.default_rng(seed)
    lines, bounds, limits = draw.integers(1, 40), draw.integers(1, 5), draw.integers(1, 6)
    seconds, over = draw.uniform(30, 60, (lines, bounds)), draw.uniform(-1e11, 1e11, (lines, limits))
    for enough_s in (1000.0, 45.0):
        shares, prices = slowest(seconds, over, enough_s)
        assert shares.sum() == pytest.approx(1.0) and (shares >= 0).all() and (prices >= 0).all()
        least_s = min(float((seconds @ shares + over @ prices).min()), enough_s)
        assert least_s == pytest.approx(_largest_s(seconds, over, enough_s), rel=1e-5)


def test_nothing_is_paid_where_all_fits():
    shares, prices = slowest(np.array([[3.0, 2.0]]), np.array([[-1e9, -2e9]]), 10.0)
    assert shares.tolist() == [1.0, 0.0] and prices.tolist() == [0.0, 0.0]


@given(st.lists(st.floats(1e-14, 1e-6), min_size=1, max_size=20))
def test_rounded_prices_are_no_lower_and_hardly_higher(prices):
    found = rounded_up(np.array(prices))
    assert (found >= prices).all() and (found <= np.array(prices) * (1 + 1e-10)).all()
    assert (rounded_up(found) == found).all() and rounded_up(np.zeros(1)) == 0.0


def test_prices_that_differ_by_how_sums_are_rounded_are_one():
    draw = np.random.default_rng(5)
    sums = [draw.permutation(draw.uniform(0, 1e-11, 8)) for _ in range(200)]
    pairs = np.array([(sum(one.tolist()), sum(one[::-1].tolist())) for one in sums])
    first, second = rounded_up(pairs).T
    assert (pairs[:, 0] != pairs[:, 1]).any() and (first == second).all()
