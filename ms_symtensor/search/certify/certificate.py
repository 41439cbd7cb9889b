"""How far a plan can be from the optimum: step layouts whose bound is below it are looked at closely, the lowest bound first.

A bound may be seen at a mixture of layouts, which no plan has. Then one variable's candidates are split in two, and each part
has a bound of its own (branch and bound).
"""

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ms_symtensor.search.certify.blocks_of_stages import Bound, bound
from ms_symtensor.search.certify.fronts import Among, Fronts
from ms_symtensor.search.space.step_layouts import StepLayout
from ms_symtensor.search.stages.layout_candidates import Candidate, ConfigGroup
from ms_symtensor.search.stages.screening import ScreeningResult

MOST = 2000
"""So many step layouts are looked at closely at most (empirical): a number, not seconds, so that every machine finds the same."""

ATTEMPTS = 3
"""It ends when the bounds of so many parts stay too low that cannot be split (empirical)."""

SPLITS = 4
"""A part comes from so many splits at most, one of the other (empirical)."""

MOST_SPLITS = 10
"""So many parts are split at most (empirical: networks with experts take seconds for each)."""

SLIGHT = 3e-4
"""What two splits, one of the other, raised by no more than such a share each is not split again (empirical)."""


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


@dataclass(frozen=True)
class Part:
    """The layouts of one shape under a setting with candidates `among` some; no step of them is faster than `bound_s`.

    `found`: how that is known, `finely` or not; None where it is by screening or by what this is a part of. It comes from so many
    `splits`, of which the last ones, `in_vain`, hardly raised its bound.
    """

    setting: ConfigGroup
    row: Candidate
    bound_s: float
    among: Among = field(default_factory=dict)
    found: Bound | None = None
    finely: bool = False
    splits: int = 0
    in_vain: int = 0

    @property
    def is_done(self) -> bool:
        """Whether its bound is the closest there is."""
        return self.finely and self.found is not None

    def closer(self, fronts: Fronts, limit_B: float) -> "Part":
        """The same with a closer bound."""
        finely = self.finely or self.found is not None
        found = bound(self.setting, self.row.bound_by(self.bound_s), fronts, limit_B, finely, self.among)
        is_raised = not self.splits or found.step_s > (1 + SLIGHT) * self.bound_s
        in_vain = 0 if is_raised else self.in_vain + 1
        return replace(self, bound_s=found.step_s, found=found, finely=finely, in_vain=in_vain)

    @property
    def layouts(self) -> list[Candidate]:
        """The layouts that its bound was seen at."""
        if self.found is None:
            return []
        which = np.full(len(self.found.layouts), self.row.number)
        return self.setting.rows_of(which, self.found.layouts, np.full(len(which), self.bound_s))

    @property
    def halves(self) -> list["Part"]:
        """With a candidate of the variable that its bound is mixed in, and without; empty where it is not split."""
        if self.found is None or self.found.mixed is None or self.splits == SPLITS or self.in_vain == 2:
            return []
        v, candidate = self.found.mixed
        allowed = self.among.get(v, np.ones(self.setting.problem.sizes[v], dtype=bool))
        chosen = np.arange(len(allowed)) == candidate
        masks, splits = (allowed & chosen, allowed & ~chosen), self.splits + 1
        return [replace(self, among={**self.among, v: mask}, found=None, splits=splits) for mask in masks]


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
    screened = [Part(setting, row, row.bound_s) for setting, free in screening.screened for row in free]
    queue = [(part.bound_s, number, part) for number, part in enumerate(screened)]
    heapq.heapify(queue)
    fronts: dict[tuple[int, int], Fronts] = {}
    seen, done, splits, number = set[int](), list[Part](), 0, len(queue)
    while queue and queue[0][0] * (1 + gap) < step_s and len(done) < ATTEMPTS and len(seen) < MOST:
        part = heapq.heappop(queue)[-1]
        progress(f"certificate: {len(seen)} step layouts")
        if part.is_done:
            step_s = attempt(part.layouts, step_s)
            further = part.halves if splits < MOST_SPLITS else []
            splits += bool(further)
            done += [] if further else [part]
        else:
            own = fronts.setdefault((id(part.setting), part.row.member), Fronts(part.setting, part.row.member))
            further = [part.closer(own, limit_B)]
            seen.add(id(part.row))
        for one in further:
            heapq.heappush(queue, (one.bound_s, number, one))
            number += 1
    bounds_s: dict[StepLayout, float] = {}
    for part in (*(one for *_, one in queue), *done):
        bounds_s[part.row.shape] = min(part.bound_s, bounds_s.get(part.row.shape, math.inf))
    least_s = min(bounds_s.values(), default=math.inf)
    lowest = next(
        (shape for shape, bound_s in bounds_s.items() if bound_s == least_s and least_s * (1 + gap) < step_s), None
    )
    return Certificate(least_s, bounds_s, len(seen), lowest)
