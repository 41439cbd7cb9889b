"""What screening has tried and learnt: shapes divided into stages, the most promising ones first."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ms_symtensor.search.folded.places import occurrences
from ms_symtensor.search.space.step_layouts import StepLayout
from ms_symtensor.search.stages.estimate import Estimate, chain_of, divided, quickest_s
from ms_symtensor.search.stages.layout_candidates import Candidate, ConfigGroup


@dataclass(frozen=True)
class Screened:
    """A setting of screening: its rows where memory is free, one for a shape, with bounds that hold for all its layouts."""

    setting: ConfigGroup
    free: tuple[Candidate, ...]


@dataclass(frozen=True)
class ScreeningResult:
    """All that was learnt: feasible estimates by rising step time.

    `candidates` operator strategies were priced; `rows` are all choices of layouts that were priced, by rising bounds.
    """

    estimates: tuple[Estimate, ...]
    candidates: int
    infeasible: tuple[StepLayout, ...]
    rows: tuple[Candidate, ...]
    screened: tuple[Screened, ...] = ()

    @property
    def bounds_s(self) -> dict[StepLayout, float]:
        """Seconds that no step on a shape is faster than."""
        found: dict[StepLayout, float] = {}
        for row in (row for one in self.screened for row in one.free):
            found[row.shape] = min(row.bound_s, found.get(row.shape, math.inf))
        return found


NOTHING = ScreeningResult((), 0, (), ())
"""Nothing was screened."""


class Incumbents:
    """Shapes divided into stages, in the order of what they take at least, until that is not below the `keep` best steps."""

    def __init__(self, depths: tuple[int, ...], limit_B: float, keep: int, incumbent_s: float) -> None:
        self._depths, self._limit_B, self._keep, self._known_s = depths, limit_B, keep, incumbent_s
        self._known: dict[tuple, Estimate | None] = {}
        self._found: dict[StepLayout, Estimate] = {}
        self._times_s: list[float] = []  # of `_found`, rising
        self._refused: set[StepLayout] = set()

    @property
    def worst_s(self) -> float:
        """What a step must be faster than to be of interest."""
        return self._times_s[self._keep - 1] if len(self._times_s) >= self._keep else self._known_s

    @property
    def best_s(self) -> float:
        return self._times_s[0] if self._times_s else math.inf

    def look_at(self, rows: Iterable[Candidate]) -> None:
        """Divide those of `rows` that may be of interest: fast enough, or else all that may fit on their shape."""
        worst_s = self.worst_s
        every = [(max(row.bound_s, self._quickest_s(row)), row) for row in rows if row.bound_s < worst_s]
        for least_s, row in sorted(every, key=lambda pair: pair[0]):
            worst_s = self.worst_s
            if least_s < worst_s or (row.bound_s < worst_s and row.shape in self._refused):
                self._look_at(row)

    def _look_at(self, row: Candidate) -> None:
        one, known = self._divided(row), self._found.get(row.shape)
        if one is not None and (known is None or one.step_time_s < known.step_time_s):
            self._found[row.shape] = one
            self._times_s = sorted(e.step_time_s for e in self._found.values())
        if row.shape in self._found:
            self._refused.discard(row.shape)
        else:
            self._refused.add(row.shape)

    def screening(
        self,
        rows: Sequence[Candidate],
        candidates: int,
        screened: Sequence[Screened] = (),
    ) -> ScreeningResult:
        """What was learnt, `rows` being all that was priced, with their best bounds."""
        ordered = sorted(rows, key=lambda row: row.bound_s)
        refused = {row.shape: None for row in ordered if row.shape in self._refused and row.bound_s < self.worst_s}
        best = tuple(
            sorted(self._found.values(), key=lambda e: (e.step_time_s, e.shape.stages, len(e.shape.mesh), e.shape.mesh))
        )
        return ScreeningResult(best, candidates, tuple(refused), tuple(ordered), tuple(screened))

    def _divided(self, row: Candidate) -> Estimate | None:
        key = row.shape, row.level, row.choice.tobytes()
        if key not in self._known:
            self._known[key] = divided(row, chain_of(row, self._depths), self._limit_B)
        return self._known[key]

    def _quickest_s(self, row: Candidate) -> float:
        return quickest_s(row, occurrences(self._depths))
