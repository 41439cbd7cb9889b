"""How long a step takes at least in a case: if one stage s of P holds a run of blocks, and keeps f of M micro-batches.

Of the run the first k blocks are recomputed. With t, a what its parts take for a micro-batch, and for computing it again, and v
runs of blocks per stage, which count as one here,

    T >= (M - 1/v) (t_run + a_k) + (Σ t + a_k) / v + once      and      M_s >= f (kept_run - saved_k) + at rest_run

where the end of a step takes no less than for the run, nor than on an average stage. Where memory is short, the Lagrangian dual
D(λ) = min over layouts and k of T + λ (M_s - limit), λ >= 0, is a bound. Two branches, few and many recomputed blocks, have a λ
each, so that in between there is nothing: a block is recomputed as a whole. For one layout T and M_s are linear in k as long as
blocks are alike: k is tried where that ends, and at the ends of a branch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.folded.places import first_blocks
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.stage_cases import DECIDES, Case
from ms_symtensor.search.tables.terms import Costs, Weights

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Branch:
    """A case in which at least `least` and at most `most` blocks of the run are recomputed."""

    case: Case
    least: int
    most: int

    def corners(self) -> tuple[int, ...]:
        """Numbers of recomputed blocks between which everything is linear."""
        ends = [self.least, self.most, *accumulate(self.case.held[1:-1])]
        if self.least < self.most == sum(self.case.held[1:-1]):
            ends.append(self.most - 1)  # with the last one, see `_saved`, there is no more room than without
        return tuple(sorted({k for k in ends if self.least <= k <= self.most}))


@lru_cache(maxsize=1 << 12)
def _first(case: Case) -> Array:
    """How much the first blocks of the run keep of every place, [1 + blocks, places]."""
    inside = np.arange(len(case.held))[1:-1].repeat(case.held[1:-1])
    found = np.zeros((1 + len(inside), len(case.held)))
    found[np.arange(1, len(found)), inside] = case.flight.of_blocks(len(inside))
    return found.cumsum(axis=0)


def _kept(case: Case) -> list[float]:
    """How much of every place is kept."""
    before, *blocks, behind = _first(case)[-1].tolist()
    return [before + case.flight.runs[0] * case.held[0], *blocks, behind + case.flight.runs[-1] * case.held[-1]]


def _saved(case: Case, count: int) -> list[float]:
    """How much of every place recomputation saves. Where all of a run is recomputed, its last block is there while it is
    computed again, unless a block of another kind may stand behind it on the stage; what stands behind the blocks is gone then.
    """
    found: list[float] = _first(case)[count].tolist()
    last = max((place for place, n in enumerate(case.held[:-1]) if n), default=0)
    if 0 < count == sum(case.held[1:-1]):
        if case.held[-1]:
            found[-1] = 1  # what it reads of the last block
        elif last >= len(case.held) - 4:
            found[last] -= 1
    return found


def _seconds(
    occurrences: Sequence[int], shape: Shape, case: Case, known: Sequence[Costs]
) -> tuple[list[float], list[float]]:
    """How much every place counts in the seconds of a micro-batch, and in those once per step."""
    turns = shape.turns
    each = [n / turns.interleave + turns.slowest * m for n, m in zip(occurrences, case.held, strict=True)]
    ending = [[n / shape.stages for n in occurrences], [float(n) for n in case.held]]
    if case.also is not None:
        ending.append([float(n) for n in case.also])
    # Each is a bound of the end. An average stage sees what every layout costs there: another one must be worth it.
    each_s, once_s = (np.array([getattr(one, name) for one in known]) for name in ("each_s", "once_s"))
    least_s = (each_s @ each + np.array(ending) @ once_s.T).min(axis=1)
    most = int(least_s.argmax())
    return each, ending[most if least_s[most] >= (1 + DECIDES) * least_s[0] else 0]


def _corner_weights(
    seconds: tuple[list[float], list[float]], shape: Shape, case: Case, count: int
) -> list[list[float]]:
    """How much every place counts where `count` blocks of the run are recomputed: a row for each field of `Weights`."""
    each, ending = seconds
    kept = _kept(case)
    again = [float(shape.micro_batch_num * n) for n in first_blocks(case.held, count)]
    return [each, again, ending, kept, [float(n) for n in _saved(case, count)], [float(n) for n in case.held]]


def branches(case: Case, shape: Shape, known: Sequence[Costs], limit_B: float) -> tuple[Branch, ...]:
    """The branches of a case: fewer recomputed blocks than the fastest of the layouts `known` needs there, and the others."""
    held = np.array(case.held)
    run = np.repeat(np.arange(len(held)), held)
    run = run[(run > 0) & (run < len(held) - 1)]
    saved, kept = _first(case).copy(), np.array(_kept(case))
    if len(run):
        saved[-1] = _saved(case, len(run))
    best_s, needed = np.inf, 0
    for one in known:
        room_B = limit_B - float(kept @ one.kept_B + held @ one.at_rest_B)
        fitting = np.flatnonzero(saved @ (one.kept_B - one.kept_recomputed_B) + room_B >= 0)
        if len(fitting):
            again_s = float(one.again_s[run[: fitting[0]]].sum())
            step_s = float(one.each_s @ held) * shape.turns.slowest + shape.micro_batch_num * again_s
            if step_s < best_s:
                best_s, needed = step_s, int(fitting[0])
    if not needed:
        return (Branch(case, 0, len(run)),)
    return Branch(case, 0, needed - 1), Branch(case, needed, len(run))


def best_price(value_s: Array, over_B: Array, asked_s: float) -> float:
    """The price λ at which the least of the lines value_s + λ over_B [lines] is as large as can be, or at least `asked_s`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        crossings = (value_s[None, :] - value_s[:, None]) / (over_B[:, None] - over_B[None, :])
        prices = np.concatenate([np.zeros(1), (asked_s - value_s) / over_B, crossings.ravel()])
    prices = np.unique(prices[np.isfinite(prices) & (prices >= 0)])
    least = (value_s + prices[:, None] * over_B).min(axis=1)
    return float(prices[np.argmax(np.minimum(least, asked_s))])


@dataclass(frozen=True)
class Corner:
    """A problem to solve: a case with so many blocks recomputed, the `weights` of places (a row for each field of `Weights`), and
    the price of memory. Not `is_asked`: memory is free though it is short.
    """

    case: Case
    weights: Sequence[Sequence[float]]
    price_s_per_B: float
    is_asked: bool = True

    @property
    def is_free(self) -> bool:
        """Whether memory has no part in it: nothing is recomputed, and a byte costs nothing."""
        return self.price_s_per_B == 0 and not any(self.weights[1])


def corners(
    cases: Sequence[Case],
    occurrences: Sequence[int],
    shape: Shape,
    known: Sequence[Costs],
    limit_B: float,
    asked_s: float,
) -> list[Corner]:
    """All corners of `cases`, at the prices at which the best of the layouts `known` is as slow as can be, or as `asked_s`; among
    them one of every case where memory is free.
    """
    found: list[Corner] = []
    seconds = {case: _seconds(occurrences, shape, case, known) for case in cases}
    for branch in (one for case in cases for one in branches(case, shape, known, limit_B)):
        rows = [_corner_weights(seconds[branch.case], shape, branch.case, count) for count in branch.corners()]
        price = best_price(*_lines(Weights(*np.array(rows).transpose(1, 2, 0)), known, limit_B), asked_s)
        # Where memory costs nothing, nothing is recomputed but what must be.
        found += [Corner(branch.case, row, price) for row in (rows if price > 0 else rows[:1])]
    free = {corner.case for corner in found if corner.is_free}
    return found + [
        Corner(case, _corner_weights(seconds[case], shape, case, 0), 0.0, is_asked=False)
        for case in cases
        if case not in free
    ]


def _lines(weights: Weights, known: Sequence[Costs], limit_B: float) -> tuple[Array, Array]:
    """Seconds, and bytes beyond `limit_B`, of every layout at every corner."""
    value, over = [], []
    for one in known:
        value.append(one.each_s @ weights.each_s + one.again_s @ weights.again_s + one.once_s @ weights.once_s)
        memory = one.kept_B @ weights.kept_B + one.at_rest_B @ weights.at_rest_B
        over.append(memory - (one.kept_B - one.kept_recomputed_B) @ weights.saved_B - limit_B)
    return np.concatenate(value), np.concatenate(over)
