"""What blocks gain by making parts again: no more than the tables say, whatever the layouts, and as much as programs have it."""

import random

import numpy as np
import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.search.bounds.remaking import Remaking
from ms_symtensor.search.bounds.selection_bound import dearest
from ms_symtensor.search.selections.selected import levels
from ms_symtensor.search.tables.elimination import minimise
from ms_symtensor.search.tables.tables import factors
from tests.search.problems import problem

A2 = load("atlas_800t_a2")
ONLY = np.zeros(1, dtype=np.intp)
PRICES = (3e-12, 1.5e-11, 2.5e-11, 1e-10)
MIDDLE = 2
"""The place of a block between the first and the last one."""


@pytest.fixture(scope="module", params=["llama2_7b", "gpt2_xl", "mixtral_8x7b"])
def case(request):
    """A problem, what its blocks may make again, and the layouts that are the fastest where memory is free."""
    of = problem(build_graph(dimensions_of(request.param, num_layers=3, batch_size=8)), A2, (4, 2))
    fastest = minimise(of.sizes, factors(of, [], 0.0, 0.0), of.order).assignment[0]
    return of, Remaking(of), tuple(fastest.tolist())


def _value_s(of, given, price):
    """Seconds of what all blocks make again, less the worth of what that saves."""
    found, counts = given.at(price), np.array(of.places.occurrences)
    return float(counts @ (found.again_s - price * found.saved_B))


def test_tables_bound_what_any_layouts_gain_and_are_exact_where_their_multipliers_are_from(case):
    of, remaking, fastest = case
    draw, again = random.Random(0), np.array(of.places.occurrences, dtype=float)[:, None]
    others = [tuple(draw.randrange(n) for n in of.sizes) for _ in range(20)]
    for price in PRICES:
        prices = remaking.given(fastest).at(price).prices
        multipliers = remaking.of_implications.of([(fastest, prices)])[:, None]
        tables = list(remaking.gains(np.array([price]), multipliers, again, ONLY))

        def bound_s(choice, tables=tables):
            return sum(float(one.table[(0, *(choice[v] for v in one.scope))]) for one in tables)

        exact_s = _value_s(of, remaking.given(fastest), price)
        assert exact_s < 0 and bound_s(fastest) == pytest.approx(exact_s, rel=1e-6)
        for choice in others:
            assert bound_s(choice) <= _value_s(of, remaking.given(choice), price) + 1e-9 * abs(exact_s)


def test_a_block_gains_what_its_program_does(case):
    of, remaking, fastest = case
    given, plain, *more = remaking.given(fastest), *levels(of.shorts, of.strategies(fastest), of.settings, A2).every
    (before,) = plain
    for price in PRICES:
        found = given.at(price)
        bound_s = found.again_s[MIDDLE] - price * found.saved_B[MIDDLE]
        corners = [corner for level in more for corner in level]
        true_s = min(one.again_s - price * (before.kept_B - one.kept_B) for one in corners)
        assert bound_s <= true_s + 1e-10  # seconds of nodes are rounded one by one
        if (
            price > PRICES[0]
        ):  # that Casts have no marks of their own is not known to the tables: it counts while all is cheap
            assert bound_s >= true_s - 0.02 * price * before.kept_B


def test_at_its_dearest_price_as_much_is_saved_as_must_be(case):
    of, remaking, fastest = case
    counts = [float(n) for n in of.places.occurrences]
    given = remaking.given(fastest)
    most_B = float(given.at(1e-6).saved_B @ counts)
    assert dearest(given, -1.0, counts).more_s == 0.0
    assert np.isinf(dearest(given, 1.01 * most_B, counts).more_s)
    before_s = 0.0
    for share in (0.2, 0.5, 0.9):
        found = dearest(given, share * most_B, counts)
        at = given.at(found.price_s_per_B)
        value_s = float(at.again_s @ counts) + found.price_s_per_B * (share * most_B - float(at.saved_B @ counts))
        assert found.more_s == pytest.approx(value_s, rel=1e-6) and found.more_s > before_s
        for price in (0.5 * found.price_s_per_B, 0.9 * found.price_s_per_B, 1.2 * found.price_s_per_B):
            other = given.at(price)
            value_s = float(other.again_s @ counts) + price * (share * most_B - float(other.saved_B @ counts))
            assert value_s <= found.more_s * (1 + 1e-6)
        before_s = found.more_s
