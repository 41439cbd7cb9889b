"""However blocks are divided into stages, one of the cases is true."""

import random
from dataclasses import replace
from itertools import combinations

import pytest

from ms_symtensor.search.folded.chain import Chain, Part
from ms_symtensor.search.folded.places import occurrences
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.stage_cases import cases, on_few
from ms_symtensor.search.stages.stage_layers import divide

DEPTHS = (1, 3, 7, 1)
PLACE_OF = [p for p, n in enumerate(occurrences(DEPTHS)) for _ in range(n)]


def network(draw, once_s=None):
    """Costs of every place, and the chain of them; blocks of one kind cost alike but for the first and the last."""
    kinds = [draw.uniform(1, 3) for _ in range(2)]
    times = [0.1, *(t * draw.uniform(0.9, 1.1) for t in kinds for _ in range(3)), draw.uniform(0, 5)]
    places = [Part(t, t / 3, 1.0, 0.1, 1.0, 0 < i < len(times) - 1) for i, t in enumerate(times)]
    parts = [places[place] for place in PLACE_OF]
    return parts if once_s is None else [replace(p, once_s=s) for p, s in zip(parts, once_s, strict=True)]


def held(start, end, stages, stage):
    """How often every place lies on a stage with the blocks from `start` to `end`."""
    parts = PLACE_OF[0 if stage == 0 else start + 1 : len(PLACE_OF) if stage == stages - 1 else end + 1]
    return [parts.count(p) for p in range(len(occurrences(DEPTHS)))]


def contains(have, wanted):
    return all(n >= m for n, m in zip(have, wanted, strict=True))


@pytest.mark.parametrize("seed", range(30))
def test_one_case_is_true_of_every_division(seed):
    draw = random.Random(seed)
    stages, limit_B = draw.choice((2, 3, 5)), draw.choice((1e9, 30.0))
    once_s = [draw.choice((0.0, 5.0, 40.0)), *(draw.uniform(0, 2) for _ in PLACE_OF[1:])]
    known = [Chain(network(draw, once_s)) for _ in range(draw.choice((1, 3)))]
    shape, shown = Shape(stages, 8, (1,), 1, draw.choice((1, 2))), {}
    for _ in range(3):
        found = cases(known, occurrences(DEPTHS), shape, limit_B, 0.0, draw.uniform(20, 200), shown)
        shown |= {case: draw.uniform(0, 200) for case in found}
        for ends in combinations(range(1, sum(DEPTHS[1:-1])), stages - 1):
            runs = list(zip((0, *ends), (*ends, sum(DEPTHS[1:-1])), strict=True))
            if min(end - start for start, end in runs) < shape.interleave:
                continue  # every run has a block
            lies = [(held(*run, stages, s), shape.flights(s)) for s, run in enumerate(runs)]
            assert any(
                contains(have, case.held)
                and flight >= case.flight
                and (case.also is None or contains(lies[0][0], case.also))
                for case in found
                for have, flight in lies
            )


@pytest.mark.parametrize("seed", range(20))
def test_one_case_of_few_blocks_on_the_first_stage_is_true_of_every_such_division(seed):
    draw = random.Random(seed)
    stages, most = draw.choice((2, 3, 5)), draw.choice((1, 2, 3))
    known, shape = [Chain(network(draw))], Shape(stages, 8, (1,), 1)

    def few(asked_s, most=most):
        return on_few(known, occurrences(DEPTHS), shape, 1e9, most, asked_s, {})

    found = few(draw.uniform(1, 10))
    assert found and few(1e6) is None and few(1.0, most=0) == ()
    for ends in combinations(range(1, sum(DEPTHS[1:-1])), stages - 1):
        runs = list(zip((0, *ends), (*ends, sum(DEPTHS[1:-1])), strict=True))
        if ends[0] <= most:
            lies = [(held(*run, stages, s), shape.flights(s)) for s, run in enumerate(runs)]
            assert any(contains(have, one.held) and flight >= one.flight for one in found for have, flight in lies)


@pytest.mark.parametrize("seed", range(20))
def test_where_memory_is_free_the_cases_of_a_layout_are_as_slow_as_its_best_division(seed):
    draw = random.Random(seed)
    parts, stages = network(draw), draw.choice((2, 3, 5))
    shape = Shape(stages, 8, (1,), 1)
    best = divide(Chain(parts), stages, 8, 1e9)
    step_s = 7 * max(stage.each_s for stage in best) + sum(part.each_s for part in parts)
    first = [sum(occurrences(DEPTHS)[:p]) for p in range(len(occurrences(DEPTHS)))]
    found = cases([Chain(parts)], occurrences(DEPTHS), shape, 1e9, 0.0, step_s * (1 - 1e-6), {})
    for case in found:
        run_s = sum(n * parts[i].each_s for n, i in zip(case.held, first, strict=True))
        assert 7 * run_s + sum(part.each_s for part in parts) >= step_s * (1 - 1e-5)


def test_what_a_case_has_not_shown_is_not_asked_again():
    parts = [Part(0.1, 0, 1, 1, 1, False), *[Part(1.0, 0.3, 1, 0, 1)] * 10, Part(1.0, 0, 1, 1, 1, False)]
    known = [Chain(parts)]
    shape, places = Shape(2, 8, (1,), 1), occurrences((1, 10, 1))
    asked_s = 7 * 5.5 + 11
    first = cases(known, places, shape, 1e9, 0.0, asked_s, {})
    again = cases(known, places, shape, 1e9, 0.0, asked_s, {case: 0.9 * asked_s for case in first})
    assert first and {*first}.isdisjoint(again)
