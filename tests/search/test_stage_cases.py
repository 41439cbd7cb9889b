"""However blocks are divided into stages, one of the cases is true."""

import random
from itertools import combinations

import pytest

from ms_symtensor.program.pipeline import in_flight
from ms_symtensor.search.places import occurrences
from ms_symtensor.search.stage_cases import cases
from ms_symtensor.search.stage_layers import Part, divide

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
    parts, stages, number = network(draw), draw.choice((2, 3, 5)), 8
    limit_B = draw.choice((1e9, 30.0))
    best = divide(parts, stages, number, limit_B)
    if best is None:
        return
    pace_s = max(stage.each_s for stage in best)
    found = cases(parts, occurrences(DEPTHS), stages, number, limit_B, pace_s)
    blocks = sum(DEPTHS[1:-1])
    for ends in combinations(range(1, blocks), stages - 1):
        runs = list(zip((0, *ends), (*ends, blocks), strict=True))
        lies = [(held(*run, stages, s), in_flight(s, stages, number)) for s, run in enumerate(runs)]
        assert any(
            all(n >= m for n, m in zip(have, case.held, strict=True)) and flight >= case.flight
            for case in found
            for have, flight in lies
        )


@pytest.mark.parametrize("seed", range(20))
def test_no_case_is_faster_than_the_division(seed):
    """Where memory is free, each of them takes the pace of the best division, or longer."""
    draw = random.Random(seed)
    parts, stages = network(draw), draw.choice((2, 3, 5))
    times = [part.each_s for part in parts]
    first = [sum(occurrences(DEPTHS)[:p]) for p in range(len(occurrences(DEPTHS)))]
    best = divide(parts, stages, 8, 1e9)
    pace_s = max(stage.each_s for stage in best)
    for case in cases(parts, occurrences(DEPTHS), stages, 8, 1e9, pace_s):
        assert sum(n * times[i] for n, i in zip(case.held, first, strict=True)) >= pace_s * (1 - 1e-6)
