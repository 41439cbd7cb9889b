"""What blocks gain by making parts again: no more than the tables say, whatever the layouts, and as much as programs have it."""

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.search.bounds.remaking import Remaking
from ms_symtensor.search.bounds.selection_bound import dearest
from ms_symtensor.search.folded.memory import PeakMemory
from ms_symtensor.search.selections.closure import PICOSECONDS
from ms_symtensor.search.selections.forward_block import forward_block
from ms_symtensor.search.selections.marks import but_for
from ms_symtensor.search.selections.selected import levels
from ms_symtensor.search.selections.selection import Choices
from ms_symtensor.search.tables.elimination import minimise
from ms_symtensor.search.tables.tables import Tables, factors
from tests.search.problems import problem

A2 = load("atlas_800t_a2")
ONLY = np.zeros(1, dtype=np.intp)
PRICES = (3e-12, 1.5e-11, 2.5e-11, 1e-10)
LAYERS = {"deepseek_v3": 6}


@pytest.fixture(
    scope="module",
    params=["llama2_7b", "gpt2_xl", "mixtral_8x7b", "deepseek_v3", "qwen3_32b", "qwen3_30b_a3b"],
)
def case(request):
    """A problem, what its blocks may make again, and the layouts that are the fastest where memory is free."""
    layers = LAYERS.get(request.param, 3)
    of = problem(build_graph(dimensions_of(request.param, num_layers=layers, batch_size=8)), A2, (4, 2))
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


def _between(of):
    """The kinds of blocks, each with the place of one between its first and its last one."""
    return [(kind, 3 * kind + 2) for kind, names in enumerate(of.places.kinds) if len(names) > 2]


def _bound_s(of, remaking, choice, place, price):
    """Seconds of what a block makes again, and the worth of what it still keeps."""
    found, plain = remaking.given(choice).at(price), Tables(of, ()).by_place(np.array([choice]), ONLY)
    return found.again_s[place] + price * (plain.kept_B.ravel()[place] - found.saved_B[place])


def _program_s(of, choice, kind, price):
    """The same for a block of the program and the best selection that MindSpore can be told."""
    every = levels(PeakMemory(of.shorts, of.strategies(choice), of.settings), A2).every
    return min(level[kind].again_s + price * level[kind].kept_B for level in every)


def _freely(of, choice, kind):
    """What a block may make again if every operator, Cast and move had a mark of its own, but moves and sums of one operator."""
    peaks = PeakMemory(of.shorts, of.strategies(choice), of.settings)
    runs = of.shorts.short_runs(of.shorts.runs(0))
    graph, plan, program = of.shorts.of(runs), peaks.plan(runs), peaks.program(runs)
    names = of.shorts.named(runs)[1::2][kind]
    block = forward_block(graph, plan, program, names[len(names) // 2], A2, of.shorts.known)
    marks = but_for(block)
    views = [pair for pair in marks.further if pair[0][0] == "needed" and block.is_view(pair[1][1])]
    together = [pair for pair in marks.further if pair[0][0] == "made"]
    return Choices(block, replace(marks, further=[*views, *together]))


def _freely_s(of, choice, kind, price):
    one = _freely(of, choice, kind).at((round(price * 1e24), 10**12))
    return one.again / PICOSECONDS + price * one.kept_B


def test_a_block_gains_what_its_program_does(case):
    of, remaking, fastest = case
    for (kind, place), price in product(_between(of), PRICES):
        bound_s, freely_s = _bound_s(of, remaking, fastest, place, price), _freely_s(of, fastest, kind, price)
        assert bound_s == pytest.approx(freely_s, rel=1e-3)  # but for a few kilobytes, and seconds rounded node by node
        assert bound_s <= _program_s(of, fastest, kind, price) * (1 + 1e-6)  # not all of it can be said


def test_no_layouts_gain_more_than_the_tables_know(case):
    of, remaking, fastest = case
    draw, tried = random.Random(0), 0
    for _ in range(8):
        choice = list(fastest)
        for number in draw.sample(range(len(choice)), draw.randrange(1, 6)):
            choice[number] = draw.randrange(of.sizes[number])
        for (kind, place), price in product(_between(of), PRICES):
            try:
                true_s = _program_s(of, choice, kind, price)
            except InvalidStrategyError:
                continue
            tried += 1
            assert _bound_s(of, remaking, choice, place, price) <= true_s * (1 + 1e-6)
    assert tried > 10


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
