"""However blocks are divided into stages, one of the cases is true."""

import random
from itertools import combinations

import numpy as np
import pytest

from ms_symtensor.program.pipeline import in_flight
from ms_symtensor.search.places import occurrences
from ms_symtensor.search.shapes import Shape
from ms_symtensor.search.stage_cases import best_price, cases, layout
from ms_symtensor.search.stage_layers import Part, divide
from ms_symtensor.search.terms import Costs, Weights

DEPTHS = (1, 3, 7, 1)


def network(draw):
    """Costs of every place, and the chain of them; blocks of one kind cost alike but for the first and the last."""
    kinds = [draw.uniform(1, 3) for _ in range(2)]
    times = [0.1, *(t * draw.uniform(0.9, 1.1) for t in kinds for _ in range(3)), draw.uniform(0, 5)]
    places = [Part(t, t / 3, 1.0, 0.1, 1.0, 0 < i < len(times) - 1) for i, t in enumerate(times)]
    return [place for place, n in zip(places, occurrences(DEPTHS)) for _ in range(n)]


def held(start, end, stages, stage):
    """How often every place lies on a stage with the blocks from `start` to `end`."""
    place_of = [p for p, n in enumerate(occurrences(DEPTHS)) for _ in range(n)]
    parts = place_of[0 if stage == 0 else start + 1 : len(place_of) if stage == stages - 1 else end + 1]
    return [parts.count(p) for p in range(len(occurrences(DEPTHS)))]


@pytest.mark.parametrize("seed", range(20))
def test_one_case_is_true_of_every_division(seed):
    draw = random.Random(seed)
    stages, limit_B = draw.choice((2, 3, 5)), draw.choice((1e9, 30.0))
    known = [layout(network(draw), 0.0) for _ in range(draw.choice((1, 3)))]
    found = cases(known, occurrences(DEPTHS), Shape(stages, 8, (1,), 1), limit_B, 0.0, draw.uniform(20, 200))
    blocks = sum(DEPTHS[1:-1])
    for ends in combinations(range(1, blocks), stages - 1):
        runs = list(zip((0, *ends), (*ends, blocks), strict=True))
        lies = [(held(*run, stages, s), in_flight(s, stages, 8)) for s, run in enumerate(runs)]
        assert any(
            all(n >= m for n, m in zip(have, case.held, strict=True)) and flight >= case.flight
            for case in found
            for have, flight in lies
        )


@pytest.mark.parametrize("seed", range(20))
def test_where_memory_is_free_the_cases_of_a_layout_are_as_slow_as_its_best_division(seed):
    draw = random.Random(seed)
    parts, stages = network(draw), draw.choice((2, 3, 5))
    shape = Shape(stages, 8, (1,), 1)
    best = divide(parts, stages, 8, 1e9)
    step_s = 7 * max(stage.each_s for stage in best) + sum(part.each_s for part in parts)
    first = [sum(occurrences(DEPTHS)[:p]) for p in range(len(occurrences(DEPTHS)))]
    found = cases([layout(parts, 0.0)], occurrences(DEPTHS), shape, 1e9, 0.0, step_s * (1 - 1e-6))
    for case in found:
        run_s = sum(n * parts[i].each_s for n, i in zip(case.held, first, strict=True))
        assert 7 * run_s + sum(part.each_s for part in parts) >= step_s * (1 - 1e-5)


def test_the_price_makes_the_best_of_the_layouts_as_slow_as_can_be():
    """A fast one that does not fit, and a slow one that does: at the price where both take the same."""
    weights = Weights(*(np.ones((1, 1)) for _ in range(6)))
    fast, slow = (Costs(*(np.array([n]) for n in costs)) for costs in ((1, 9, 0, 20, 19, 0), (3, 9, 0, 10, 9, 0)))
    (price,) = best_price(weights, [fast, slow], 15.0, 100.0)
    assert price == pytest.approx(0.2)
    assert 1 + price * 5 == pytest.approx(3 - price * 5)
