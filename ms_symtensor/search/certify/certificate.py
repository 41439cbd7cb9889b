"""How far a plan can be from the optimum: step layouts whose bound is below it are looked at closely, the lowest bound first."""

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ms_symtensor.search.certify.blocks_of_stages import bound
from ms_symtensor.search.certify.fronts import Fronts
from ms_symtensor.search.space.step_layouts import StepLayout
from ms_symtensor.search.stages.layout_candidates import Candidate, ConfigGroup
from ms_symtensor.search.stages.screening import ScreeningResult

MOST = 2000
"""So many step layouts are looked at closely at most (empirical): a number, not seconds, so that every machine finds the same."""

ATTEMPTS = 8
"""Of so many step layouts, whose bound stays too low, plans are made of the layouts that the bound was seen at
(empirical)."""


@dataclass(frozen=True)
class Certificate:
    """No step takes less than `bound_s`; on step layouts, than `bounds_s`; `looked_at` were looked at closely.

    `lowest`: where the bound is not as near as was asked for, the step layout that keeps it from that.
    """

    bound_s: float
    bounds_s: Mapping[StepLayout, float]
    looked_at: int
    lowest: StepLayout | None = None


Attempt = Callable[[Sequence[Candidate], float], float]
"""Seconds of the step of a plan of one of these layouts, if it takes less than so many; else these."""


def certificate(
    screening: ScreeningResult,
    step_s: float,
    limit_B: float,
    gap: float,
    attempt: Attempt,
    progress: Callable[[str], None],
) -> Certificate:
    """Raise the bounds of `screening` until none is below that of a step of `step_s` by more than `gap`, a fraction.

    Where an `attempt` makes a faster plan, that is the step from then on.
    """
    queue, done = _in_order(screening), list[Queued]()
    fronts: dict[tuple[int, int], Fronts] = {}
    seen, closely = dict[int, list[Candidate]](), set[int]()
    while queue and queue[0][0] * (1 + gap) < step_s and len(done) < ATTEMPTS and len(seen) < MOST:
        one = heapq.heappop(queue)
        bound_s, number, setting, row = one
        if number in closely:
            step_s = attempt(seen[number], step_s)
            done.append(one)
            continue
        progress(f"certificate: {len(seen)} step layouts")
        own = fronts.setdefault((id(setting), row.member), Fronts(setting, row.member))
        found = bound(setting, row.bound_by(bound_s), own, limit_B, finely=number in seen)
        if number in seen:
            closely.add(number)
        which = np.full(len(found.layouts), row.number)
        seen[number] = setting.rows_of(which, found.layouts, np.full(len(which), found.step_s))
        heapq.heappush(queue, (found.step_s, number, setting, row))
    bounds_s: dict[StepLayout, float] = {}
    for bound_s, _, _, row in (*queue, *done):
        bounds_s[row.shape] = min(bound_s, bounds_s.get(row.shape, math.inf))
    least_s = min(bounds_s.values(), default=math.inf)
    lowest = next(
        (shape for shape, bound_s in bounds_s.items() if bound_s == least_s and least_s * (1 + gap) < step_s), None
    )
    return Certificate(least_s, bounds_s, len(seen), lowest)


Queued = tuple[float, int, ConfigGroup, Candidate]
"""Seconds that no step of these layouts' shape and setting is faster than, a number of their own, and they."""


def _in_order(screening: ScreeningResult) -> list[Queued]:
    """All that was screened, as a heap by their bounds."""
    rows = ((setting, row) for setting, free in screening.screened for row in free)
    found = [(row.bound_s, number, setting, row) for number, (setting, row) in enumerate(rows)]
    heapq.heapify(found)
    return found
