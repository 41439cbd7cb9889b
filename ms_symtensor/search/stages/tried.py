"""What a survey has tried and learnt: shapes divided into stages, in the order of their bounds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.estimate import Estimate, divided
from ms_symtensor.search.stages.rows import Row, Setting


@dataclass(frozen=True)
class Surveyed:
    """A setting of a survey: its rows where memory is free, with bounds that hold whatever is made again; and all its rows."""

    setting: Setting
    free: tuple[Row, ...]
    known: tuple[Row, ...]


@dataclass(frozen=True)
class Outcome:
    """All that was learnt: feasible estimates by rising step time, and a bound on every step.

    `candidates` operator strategies were priced over so many `shapes`, of which `tried` were divided into stages; `rows` are
    all choices of layouts that were priced, by rising bounds. `ruled_out_s`: bounds of shapes whose layouts were not looked at.
    """

    estimates: tuple[Estimate, ...]
    bound_s: float
    candidates: int
    shapes: int
    tried: int
    infeasible: tuple[Shape, ...]
    rows: tuple[Row, ...]
    ruled_out_s: Mapping[Shape, float]
    surveyed: tuple[Surveyed, ...] = ()

    @property
    def bounds_s(self) -> dict[Shape, float]:
        """The bound of every shape."""
        found = dict(self.ruled_out_s)
        for row in self.rows:
            found.setdefault(row.shape, row.bound_s)
        return found


class Tried:
    """Shapes divided into stages, in the order of their bounds, until no bound is below the `keep` best steps."""

    def __init__(self, depths: tuple[int, ...], limit_B: float, keep: int, known_s: float) -> None:
        self._depths, self._limit_B, self._keep, self._known_s = depths, limit_B, keep, known_s
        self._known: dict[tuple, Estimate | None] = {}
        self._found: dict[Shape, Estimate] = {}

    @property
    def worst_s(self) -> float:
        """What a step must be faster than to be of interest."""
        times = sorted(e.step_time_s for e in self._found.values())
        return times[self._keep - 1] if len(times) >= self._keep else self._known_s

    @property
    def best_s(self) -> float:
        return min((e.step_time_s for e in self._found.values()), default=math.inf)

    @property
    def recomputes(self) -> bool:
        """Whether the best step found recomputes blocks."""
        best = min(self._found.values(), key=lambda e: e.step_time_s, default=None)
        return best is not None and any(stage.recomputed for stage in best.stages)

    def best_of(self, shape: Shape) -> Estimate | None:
        """The fastest step that was found on `shape`."""
        return self._found.get(shape)

    def look_at(self, rows: Iterable[Row]) -> None:
        """Divide those of `rows` that may be of interest."""
        for row in sorted(rows, key=lambda row: row.bound_s):
            if row.bound_s >= self.worst_s:
                break
            one = self.divided(row)
            known = self._found.get(row.shape)
            if one is not None and (known is None or one.step_time_s < known.step_time_s):
                self._found[row.shape] = one

    def outcome(
        self,
        rows: Sequence[Row],
        ruled_out_s: Mapping[Shape, float],
        candidates: int,
        shapes: int,
        surveyed: Sequence[Surveyed] = (),
    ) -> Outcome:
        """What was learnt, `rows` being all that was priced, with their best bounds."""
        ordered = sorted(rows, key=lambda row: row.bound_s)
        refused = {row.shape: None for row in ordered if row.shape not in self._found and row.bound_s < self.worst_s}
        best = tuple(sorted(self._found.values(), key=lambda e: (e.step_time_s, e.shape.stages, e.shape.mesh)))
        bounds = [row.bound_s for row in ordered if row.shape not in refused]
        bound_s = min((*bounds, *ruled_out_s.values()), default=math.inf)
        return Outcome(
            best, bound_s, candidates, shapes, len(self._known), tuple(refused), tuple(ordered), ruled_out_s,
            tuple(surveyed),
        )  # fmt: skip

    def divided(self, row: Row) -> Estimate | None:
        key = (row.shape, row.level, row.choice.tobytes())
        if key not in self._known:
            self._known[key] = divided(row, self._depths, self._limit_B)
        return self._known[key]
