"""No step is faster than its cases show, however its blocks are divided and recomputed."""

import random
from itertools import combinations, pairwise

import numpy as np
import pytest

from ms_symtensor.program.passes import Flights
from ms_symtensor.program.pipeline import dealt
from ms_symtensor.search.folded.chain import Chain, Part
from ms_symtensor.search.folded.places import occurrences
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.case_bounds import best_price, corners
from ms_symtensor.search.stages.stage_cases import Case, cases
from ms_symtensor.search.tables.terms import Costs

MICRO_BATCHES = 6


def random_costs(draw, places):
    """Costs of every place; blocks that are recomputed keep less, the ends of the network cannot be."""
    kept = np.array([draw.choice((0.5, 1.0, 3.0)) for _ in range(places)])
    again = np.array([0.0, *(draw.uniform(0.2, 1.0) for _ in range(places - 2)), 0.0])
    left = np.where(again > 0, kept * draw.choice((0.0, 0.3)), kept)
    each, once, rest = (
        np.array([draw.uniform(low, high) for _ in range(places)]) for low, high in ((1, 3), (0, 4), (0, 3))
    )
    once[0] *= draw.choice((1, 10))
    return Costs(each, again, once, kept, left, rest)


def parts_of(costs, depths):
    chain = []
    for place, n in enumerate(occurrences(depths)):
        c = [v[place] for v in (costs.each_s, costs.again_s, costs.kept_B, costs.kept_recomputed_B, costs.at_rest_B)]
        chain += [Part(*c, 0 < place < len(costs.each_s) - 1, costs.once_s[place])] * n
    return chain


def peak_B(chain, start, end, waiting, again):
    """Bytes of a stage, of whose blocks the first are recomputed, while so many micro-batches wait in each of its runs."""
    parts = chain.parts[start:end]
    blocks = [part for part in parts if part.is_block]
    kept_B = [part.kept_recomputed_B if n < again else part.kept_B for n, part in enumerate(blocks)]
    runs = np.repeat(waiting, dealt((len(blocks),), len(waiting)))
    ends = (
        waiting[0] * (not parts[0].is_block) * parts[0].kept_B,
        waiting[-1] * (not parts[-1].is_block) * parts[-1].kept_B,
    )
    return sum(p.at_rest_B for p in parts) + runs @ kept_B + sum(ends) + chain.moment_B(start, end, again)


def fastest_step(costs, depths, shape, limit_B):
    """The best of all divisions and all numbers of recomputed blocks."""
    parts, blocks = parts_of(costs, depths), sum(depths[1:-1])
    chain, once = Chain(parts), np.repeat(costs.once_s, occurrences(depths))
    best = np.inf
    for ends in combinations(range(1, blocks), shape.stages - 1):
        starts, stages = [0, *(end + 1 for end in ends), len(parts)], []
        for number, (a, b) in enumerate(pairwise(starts)):
            numbers = range(int(chain.blocks[b] - chain.blocks[a]) + 1)
            if len(numbers) <= shape.interleave:
                stages.append([])  # every run has a block
                continue
            some = [chain.with_recomputed(a, b, shape.flights(number), k) for k in numbers]
            peaks = [peak_B(chain, a, b, shape.flights(number).runs, k) for k in numbers]
            stages.append([one.each_s for one, most_B in zip(some, peaks, strict=True) if most_B <= limit_B])
        if all(stages):
            each = [min(one) for one in stages]
            once_s = max(once[a:b].sum() for a, b in pairwise(starts))
            best = min(best, shape.turns.step_s(each, once_s))
    return best


@pytest.mark.parametrize("seed", range(60))
def test_no_step_is_faster_than_its_cases_show(seed):
    """The layouts are these and no others, so that the duals are the least of their lines."""
    draw = random.Random(seed)
    depths = draw.choice(((1, 7, 1), (1, 3, 5, 1)))
    shape = Shape(draw.choice((2, 3)), MICRO_BATCHES, (1,), 1, draw.choice((1, 2)))
    every = [random_costs(draw, len(occurrences(depths))) for _ in range(3)]
    limit_B = draw.uniform(15, 60)
    best_s = min(fastest_step(one, depths, shape, limit_B) for one in every)
    free_s = min(fastest_step(one, depths, shape, np.inf) for one in every)
    known = every[: draw.choice((1, 3))]
    shown, asked_s = {}, min(best_s, 200.0) * draw.uniform(0.8, 1.1)
    for _ in range(3):
        found = cases(
            [Chain(parts_of(one, depths)) for one in known], occurrences(depths), shape, limit_B, 0.0, asked_s, shown
        )
        values, free = {}, {}
        for corner in corners(found, occurrences(depths), shape, known, limit_B, asked_s):
            least_s = min(value(one, corner, limit_B) for one in every)
            if corner.is_asked:
                values[corner.case] = min(least_s, values.get(corner.case, np.inf))
            if corner.is_free:
                free[corner.case] = least_s
        assert min(values.values()) <= best_s * (1 + 1e-9)
        assert min(free.values()) <= free_s * (1 + 1e-9)
        assert set(free) == set(values) == set(found)
        shown |= values


def value(costs, corner, limit_B):
    each, again, once, kept, saved, rest = np.array(corner.weights)
    memory = costs.kept_B @ kept - (costs.kept_B - costs.kept_recomputed_B) @ saved + costs.at_rest_B @ rest
    step = costs.each_s @ each + costs.again_s @ again + costs.once_s @ once
    return step + corner.price_s_per_B * (memory - limit_B)


def test_the_price_makes_the_best_of_the_layouts_as_slow_as_can_be():
    """A fast one that does not fit, and a slow one that does: at the price where both take the same."""
    price = best_price(np.array([1.0, 3.0]), np.array([5.0, -5.0]), 100.0)
    assert price == pytest.approx(0.2)


def test_the_number_of_recomputed_blocks_is_whole():
    """Four blocks of two micro-batches each, for room of three: two and a half would have to be recomputed, three are."""
    costs = Costs(*(np.array(row, dtype=float) for row in (
        (0, 1, 1, 1, 0), (0, 1, 1, 1, 0), (0, 0, 0, 0, 0), (0, 1, 1, 1, 0), (0, 0, 0, 0, 0), (0, 0, 0, 0, 0)
    )))  # fmt: skip
    case, shape, limit_B = Case((0, 0, 4, 0, 0), Flights(2.0, (2,))), Shape(2, MICRO_BATCHES, (1,), 1), 3.0
    step_s = (MICRO_BATCHES - 1) * (4 + 3) + 8 + 3
    every = corners([case], occurrences((1, 8, 1)), shape, [costs], limit_B, 2 * step_s)
    assert min(value(costs, corner, limit_B) for corner in every if corner.is_asked) == pytest.approx(step_s)
    (free,) = [value(costs, corner, limit_B) for corner in every if corner.is_free]
    assert free == pytest.approx((MICRO_BATCHES - 1) * 4 + 8)
