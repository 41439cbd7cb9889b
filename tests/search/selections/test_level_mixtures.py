"""Mixtures of levels on a stage, against all there are."""

from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_symtensor.search.selections.steps import Steps


@dataclass(frozen=True)
class _Corner:
    recompute: str
    again_s: float
    kept_B: int


@dataclass(frozen=True)
class _Level:
    corners: tuple[_Corner, ...]


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
    return [_Level(pair) for pair in zip(*corners, strict=True)], draw(
        st.lists(st.integers(0, 1), min_size=1, max_size=5)
    )


def _costs(every, held, step):
    """Seconds and bytes saved of a step, block by block."""
    names = [step.mix.way(kind, 1 + place - step.first) for place, kind in enumerate(held)]
    corners = {corner.recompute: corner for level in every for corner in level.corners}
    chosen = [None if not isinstance(name, str) else corners[name] for name in names]
    return sum(c.again_s for c in chosen if c), sum(100 - c.kept_B for c in chosen if c)


@given(stages())
def test_steps_take_and_save_what_their_blocks_do(of):
    every, held = of
    found = Steps(every, held)
    several = [*found.neighbouring(), *filter(None, [found.quickest(10.0 * n) for n in range(20)])]
    for step in several:
        assert _costs(every, held, step) == pytest.approx((step.again_s, step.saved_B))


@given(stages(), st.integers(0, 400))
def test_no_mixture_of_two_levels_and_a_block_between_is_quicker(of, wanted_B):
    every, held = of
    best = None
    for first, *levels in product(range(len(held)), *[range(len(every))] * 3):
        of_block = [levels[0] if n < first else levels[1] if n == first else levels[2] for n in range(len(held))]
        corners = [every[level].corners[kind] for level, kind in zip(of_block, held, strict=True)]
        if sum(100 - c.kept_B for c in corners) >= wanted_B:
            takes_s = sum(c.again_s for c in corners)
            best = takes_s if best is None else min(best, takes_s)
    found = Steps(every, held).quickest(float(wanted_B))
    assert (found is None) == (best is None)
    if found is not None:
        assert found.again_s == pytest.approx(best) and found.saved_B >= wanted_B
