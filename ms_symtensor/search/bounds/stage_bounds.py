"""Bounds of shapes whose blocks may make parts again: `duals` of what is true on any stages, and, where these show too little, in
cases (`in_cases`) or branches of the layouts (`branching`).
"""

from collections.abc import Iterator, Sequence

from ms_symtensor.search.bounds.branching import branched
from ms_symtensor.search.bounds.duals import STEADY, Asked
from ms_symtensor.search.bounds.in_cases import CaseBounds
from ms_symtensor.search.bounds.met import Met
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.rows import Row

AVERAGES = 4
"""So often the bound of a shape on stages is asked for before there are cases (empirical)."""

ALONE = 10
"""So often the bound of a shape of one stage is asked for, which has no cases (empirical)."""

TOGETHER = 8
"""So many shapes of one family take their first step together: that costs twice as much as one (empirical)."""


class Bounds:
    """The bounds of one setting, up to `enough_s`.

    Inside they are those of steps but for what is sent between runs of a stage, as far as that is sent for certain.
    """

    def __init__(self, met: Met) -> None:
        self.met, self._in_cases = met, CaseBounds(met)
        waiting = sorted(
            (row for row in met.free if row.bound_s < met.enough_s[row.shape]), key=lambda row: row.bound_s
        )
        self._waiting = [row.shape for row in waiting]
        self._first: dict[Shape, tuple[float, list[Row], float]] = {}
        self._averages: dict[Shape, Asked] = {}

    def rising(self, row: Row) -> Iterator[float]:
        """The bounds of the shape of `row`, which holds where memory is free, from step to step."""
        yield from (bound_s + self.met.borders_s[row.shape] for bound_s in self._rising(row))

    def _rising(self, row: Row) -> Iterator[float]:
        """Its bounds but for that."""
        shape, bound_s = row.shape, row.bound_s
        known, met = self.met.rows[shape], list[Row]()
        for round_ in range(AVERAGES if shape.stages > 1 else ALONE):
            value_s, rows, most_s = self._first_step(shape) if round_ == 0 else self._average(shape, met)
            rises = value_s > (1 + STEADY) * bound_s
            bound_s = max(bound_s, value_s)
            self.met.learn(rows)
            met += rows
            yield bound_s
            # On stages, cases show more.
            if (
                not rows
                or value_s >= min(most_s, self.met.enough_s[shape]) * (1 - STEADY)
                or (shape.stages > 1 and not rises)
            ):
                break
        if shape.stages > 1:
            yield from self._in_cases.rising(shape, bound_s)
        elif shape.accumulates:
            yield max(bound_s, branched(self.met.duals, known, self.met.views_of(shape), bound_s))

    def _first_step(self, shape: Shape) -> tuple[float, list[Row], float]:
        """The first value of the dual without cases; others that wait for theirs take it too."""
        if shape not in self._first:
            others = [one for one in self._waiting if one != shape]
            taken = [shape, *others[: TOGETHER - 1]]
            self._waiting = [one for one in self._waiting if one not in taken]
            for one in taken:
                if one.on_any_mesh not in self._averages:
                    self._averages[one.on_any_mesh] = self._of_shape(one)
            asked = [self.met.asked_at(one, self._averages[one.on_any_mesh]) for one in taken]
            for one, its, (value_s, rows) in zip(taken, asked, self.met.duals.least(asked), strict=True):
                self._first[one] = value_s, rows(), its.most_s
        return self._first[shape]

    def _average(self, shape: Shape, met: Sequence[Row]) -> tuple[float, list[Row], float]:
        """Another value of it, after the layouts `met`."""
        asked = self._of_shape(shape, met)
        ((value_s, rows),) = self.met.duals.least([asked])
        return value_s, rows(), asked.most_s

    def _of_shape(self, shape: Shape, met: Sequence[Row] = ()) -> Asked:
        return self.met.duals.ask(self.met.rows[shape], self.met.views_of(shape), met)
