"""However blocks are divided into stages, one part of a division is true, also where it is made finer."""

import random
from itertools import combinations, pairwise

import pytest

from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.division_cases import Division, first_least

BLOCKS = 9
ONE_KIND = (1, 1, BLOCKS - 2, 1, 1)
TWO_KINDS = (1, 1, 0, 1, 1, BLOCKS - 4, 1, 1)
"""Two blocks of a kind before seven of another one."""


def divisions(stages, interleave):
    """So many blocks on every stage, in every division that leaves each run a block."""
    for cuts in combinations(range(1, BLOCKS), stages - 1):
        layers = tuple(end - start for start, end in pairwise((0, *cuts, BLOCKS)))
        if min(layers) >= interleave:
            yield layers


def held(layers, occurrences):
    """How often every place lies on each stage."""
    place_of, start = [place for place, n in enumerate(occurrences) for _ in range(n)], 0
    ends = [1 + sum(layers[: stage + 1]) for stage in range(len(layers) - 1)]
    for end in (*ends, len(place_of)):
        yield tuple(place_of[start:end].count(place) for place in range(len(occurrences)))
        start = end


def is_true(part, most, layers):
    """Whether a stage of it holds its blocks; and, of a whole, the others no more than they may (`most`)."""
    if not part.is_whole:
        return any(layers[stage] >= part.blocks for stage in part.stages)
    others = [(n, m) for stage, (n, m) in enumerate(zip(layers, most, strict=True)) if stage not in part.stages]
    return layers[part.stages[0]] == part.blocks and all(n <= m for n, m in others)


@pytest.mark.parametrize("occurrences", (ONE_KIND, TWO_KINDS))
@pytest.mark.parametrize("seed", range(40))
def test_some_part_is_true_of_every_division(seed, occurrences):
    draw = random.Random(seed)
    runs = draw.choice((1, 2)) if occurrences == ONE_KIND else 1
    shape = Shape(draw.choice((2, 3, 4)), 12, (1,), 1, runs)
    least = first_least(occurrences, shape)
    every = [layers for layers in divisions(shape.stages, shape.interleave) if layers[0] >= least]
    division = Division(occurrences, shape, draw.choice(every))
    parts = [(part, division.most) for part in division.parts(draw.randrange(shape.stages))]
    for _ in range(draw.randrange(6)):
        part, _ = draw.choice(parts)
        division, finer = division.finer(part)
        if finer:
            parts = [one for one in parts if one[0] is not part] + [(one, division.most) for one in finer]
    for layers in every:
        lies = list(zip(held(layers, occurrences), (shape.flights(s) for s in range(shape.stages)), strict=True))
        true = [part for part, most in parts if is_true(part, most, layers)]
        assert true, layers
        for part in true:
            stage = next(s for s in part.stages if layers[s] >= part.blocks)
            mine, flight = lies[stage]
            assert all(n >= m for n, m in zip(mine, part.case.held, strict=True)) and flight >= part.case.flight
            assert all(n >= m for n, m in zip(lies[0][0], part.case.also, strict=True))
            for others, lie in ((part.case.before, lies[:stage]), (part.case.behind, lies[stage + 1 :])):
                assert_keeps_no_more(others, lie if part.is_whole else [])


def assert_keeps_no_more(others, lie):
    """For each block of `others` there is one of `lie` in which no fewer micro-batches wait."""
    ours, theirs = (sorted(waiting(stages), reverse=True) for stages in (others, lie))
    assert len(ours) <= len(theirs) and all(n <= m for n, m in zip(ours, theirs, strict=False))


def waiting(stages):
    """The micro-batches that wait in every block."""
    return [n for its, flight in stages for n in flight.of_blocks(sum(its[1:-1]))]


def test_a_division_says_what_all_its_stages_hold():
    shape = Shape(4, 16, (1,), 1, 1)
    division = Division((1, 1, 10, 1, 1), shape, (3, 3, 4, 2))
    more, just = division.parts(2)[:-1], division.parts(2)[-1]
    assert [(part.stages, part.blocks) for part in more] == [((0,), 4), ((1,), 4), ((2,), 5), ((3,), 3)]
    assert just.is_whole and just.case.held == (0, 0, 4, 0, 0) and just.case.also == (1, 1, 2, 0, 0)
    assert [sum(one[1:-1]) for one, _ in (*just.case.before, *just.case.behind)] == [3, 3, 2]
    one_more = division.finer(more[3])[1]
    assert [(part.blocks, part.is_whole) for part in one_more] == [(4, False), (3, True)]
    assert [sum(one[1:-1]) for one, _ in one_more[1].case.before] == [2, 3, 4]
