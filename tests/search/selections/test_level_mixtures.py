"""Mixtures of levels on a stage, against all there are."""

from dataclasses import dataclass
from itertools import combinations_with_replacement

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_symtensor.search.selections.levels import Levels, Steps

EVENLY, FALLING = [1.0] * 5, [2.0, 1.25, 0.75, 0.5, 0.5]
"""How many micro-batches wait in every block, in times of the average."""


@dataclass(frozen=True)
class _Corner:
    recompute: str
    recompute_s: float
    kept_B: int


@st.composite
def stages(draw):
    """Levels of two kinds of blocks that take more and keep less, and the kinds that a stage holds."""
    number = draw(st.integers(2, 5))
    corners = []
    for kind in range(2):
        takes = sorted(draw(st.lists(st.integers(1, 99), min_size=number - 1, max_size=number - 1)))
        keeps = sorted(draw(st.lists(st.integers(1, 99), min_size=number - 1, max_size=number - 1)), reverse=True)
        pairs = [(0, 100), *zip(takes, keeps, strict=True)]
        corners.append([_Corner(f"{kind}/{level}", float(t), k) for level, (t, k) in enumerate(pairs)])
    every = tuple(zip(*corners, strict=True))

    def of_one(name):
        points = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 99), st.integers(1, 99)), max_size=3))
        for number, (kind, takes_s, keeps_B) in enumerate(points):
            point = _Corner(f"{kind}/{name} {number}", float(takes_s), keeps_B)
            yield (point, every[0][1]) if kind == 0 else (every[0][0], point)

    levels = Levels(every, tuple(of_one("singly")))
    return levels, draw(st.lists(st.integers(0, 1), min_size=1, max_size=5))


def _costs(levels, held, step, counts_in_flight):
    """Seconds and bytes saved of a step, block by block."""
    names = [step.mix.way(kind, place < step.first) for place, kind in enumerate(held)]
    known = (*levels.every, *levels.singly)
    corners = {corner.recompute: corner for level in known for corner in level}
    chosen = [None if not isinstance(name, str) else corners[name] for name in names]
    saved_B = sum(n * (100 - c.kept_B) for c, n in zip(chosen, counts_in_flight, strict=False) if c)
    return sum(c.recompute_s for c in chosen if c), saved_B


@given(stages(), st.sampled_from((EVENLY, FALLING)))
def test_steps_take_and_save_what_their_blocks_do(of, counts_in_flight):
    levels, held = of
    found = Steps(levels, held, counts_in_flight[: len(held)])
    for step in (*(found[n] for n in range(len(found))), *found.singly(levels.every[-1])):
        assert _costs(levels, held, step, counts_in_flight) == pytest.approx((step.recompute_s, step.saved_B))


@given(stages())
def test_before_a_single_tensor_everything_is_made_again(of):
    levels, held = of
    found = Steps(levels, held, EVENLY[: len(held)]).singly(levels.every[-1])
    assert len(found) == len(levels.singly) and found == sorted(found, key=lambda step: step.recompute_s)
    for step in found:
        assert step.first == len(held) - 1 and step.mix.first == tuple(c.recompute for c in levels.every[-1])


@given(stages(), st.sampled_from((EVENLY, FALLING)), st.integers(0, 400))
def test_no_mixture_of_two_levels_is_quicker(of, counts_in_flight, wanted_B):
    levels, held = of
    best = None
    for less, more in combinations_with_replacement(range(len(levels.every)), 2):
        for first in range(len(held) + 1):
            corners = [levels.every[more if n < first else less][kind] for n, kind in enumerate(held)]
            saved_B = sum(n * (100 - c.kept_B) for c, n in zip(corners, counts_in_flight, strict=False))
            if saved_B >= wanted_B:
                takes_s = sum(c.recompute_s for c in corners)
                best = takes_s if best is None else min(best, takes_s)
    steps = Steps(levels, held, counts_in_flight[: len(held)])
    found = steps.saving(float(wanted_B), 0, len(steps))
    assert (found is None) == (best is None)
    if found is not None:
        assert steps.recompute_s[found] == pytest.approx(best) and steps.saved_B[found] >= wanted_B
