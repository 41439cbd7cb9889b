"""Bounds of shapes whose blocks may make parts again: `duals` of what is true on any stages, and, where these show too little, of
cases of which one is true whatever the stages (`stage_cases`), and of branches of the layouts (`branching`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.bounds.branching import branched
from ms_symtensor.search.bounds.duals import STEADY, Asked, Duals
from ms_symtensor.search.bounds.fronts import Fronts
from ms_symtensor.search.bounds.remaking import Remaking
from ms_symtensor.search.bounds.views import Views, of_case, of_shape
from ms_symtensor.search.folded.chain import Stage
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.borders import borders_s, least_borders_s
from ms_symtensor.search.stages.division_cases import ONE_KIND, Division, Part
from ms_symtensor.search.stages.estimate import quickest_s
from ms_symtensor.search.stages.rows import Row
from ms_symtensor.search.stages.stage_cases import Case, cases
from ms_symtensor.search.stages.stage_layers import divided_chain, step_s
from ms_symtensor.search.stages.tried import Surveyed

Array = NDArray[np.float64]

ROUNDS = 8
"""So often cases are made of what is known, each time with the layouts that were the best in the last ones (empirical)."""

STALLS = 2
"""So many rounds of cases in a row that show no more than others did are the last ones (empirical)."""

AVERAGES = 4
"""So often the bound of a shape on stages is asked for before there are cases (empirical)."""

ALONE = 10
"""So often the bound of a shape of one stage is asked for, which has no cases (empirical)."""

TOGETHER = 8
"""So many shapes of one family take their first step together: that costs twice as much as one (empirical)."""

AGAIN = 8
"""So often the case that shows least is asked for again with what it has met (empirical)."""

POLISHED = 12
"""So often, where that is the last that can raise a bound (empirical)."""

DIVIDED = 7e-3
"""A bound that is nearer to what is asked for is not looked for in a whole division of the blocks (empirical)."""

FINER = 6
"""So often cases of a division are asked for, each time the least of them in finer ones (empirical)."""

SAME = 1e-4
"""What has moved by less than this share stands still (empirical)."""

SOLVED = 1e-5
"""So near a bound comes to what it can be where that is the last that can raise it (empirical)."""


class Bounds:
    """The bounds of one setting, up to `enough_s`.

    Inside they are those of steps but for what is sent between runs of a stage, as far as that is sent for certain.
    """

    def __init__(
        self,
        of: Surveyed,
        remaking: dict[int, Remaking],
        fronts: Fronts,
        depths: tuple[int, ...],
        limit_B: float,
        enough_s: float,
    ) -> None:
        self.setting, self.free = of.setting, of.free
        self._borders_s = {row.shape: least_borders_s(row) for row in of.free}
        # A little more: bounds of cases count as raised that come STEADY near to what is asked for.
        self.enough_s = {shape: (1 + STEADY) * (enough_s - border_s) for shape, border_s in self._borders_s.items()}
        self._known: dict[Shape, list[Row]] = {row.shape: [row] for row in of.free}
        for row in of.known:
            same = self._known.setdefault(row.shape, [])
            same += [row] if not row.is_among(same) else []
        waiting = sorted(
            (row for row in of.free if row.bound_s < self.enough_s[row.shape]), key=lambda row: row.bound_s
        )
        self._waiting = [row.shape for row in waiting]
        self._first: dict[Shape, tuple[float, list[Row], float]] = {}
        self._alike: dict[Shape, list[Row]] = {}
        self._averages: dict[Shape, Asked] = {}
        self._shown_by: dict[Shape, list[Asked]] = {}
        for row in of.free:
            self._alike.setdefault(replace(row.shape, interleave=1), []).append(row)
        self.duals = Duals(of.setting, self._known, remaking, fronts, depths, limit_B, self.enough_s)

    def rising(self, row: Row) -> Iterator[float]:
        """The bounds of the shape of `row`, which holds where memory is free, from step to step."""
        yield from (bound_s + self._borders_s[row.shape] for bound_s in self._rising(row))

    def _rising(self, row: Row) -> Iterator[float]:
        """Its bounds but for that."""
        shape, bound_s = row.shape, row.bound_s
        known, met = self._known[shape], list[Row]()
        for round_ in range(AVERAGES if shape.stages > 1 else ALONE):
            value_s, rows, most_s = self._first_step(shape) if round_ == 0 else self._average(shape, met)
            rises = value_s > (1 + STEADY) * bound_s
            bound_s = max(bound_s, value_s)
            self._learn(rows)
            met += rows
            yield bound_s
            # On stages, cases show more.
            if (
                not rows
                or value_s >= min(most_s, self.enough_s[shape]) * (1 - STEADY)
                or (shape.stages > 1 and not rises)
            ):
                break
        if shape.stages > 1:
            yield from self._in_cases(shape, bound_s)
        elif shape.accumulates:
            yield max(bound_s, branched(self.duals, known, self._views_of(shape), bound_s))

    def steps(self, below_s: float, wanted: Callable[[Row], bool]) -> Iterator[tuple[float, Row]]:
        """All `wanted` layouts in micro-batches that are known and as fast as `below_s`, with seconds of a step of each: on the
        best stages, if these made again just what lets them fit, but for what lives for a moment only.
        """
        for shape, rows in self._known.items():
            if not shape.accumulates:
                continue
            turns = shape.turns
            for row in rows:
                if wanted(row) and quickest_s(row, self.setting.occurrences) < below_s:
                    stages = self._divided(row)
                    if stages is not None and (found_s := step_s(stages, turns) + borders_s(row)) < below_s:
                        yield found_s, row

    def _learn(self, rows: Sequence[Row]) -> None:
        """Layouts that are good on a shape are known on all that differ from it by nothing but the runs of blocks per stage."""
        for row in rows:
            for other in self._alike[replace(row.shape, interleave=1)]:
                known = self._known[other.shape]
                same = replace(row, shape=other.shape, number=other.number)
                known += [] if same.is_among(known) else [same]

    def _first_step(self, shape: Shape) -> tuple[float, list[Row], float]:
        """The first value of the dual without cases; others that wait for theirs take it too."""
        if shape not in self._first:
            others = [one for one in self._waiting if one != shape]
            taken = [shape, *others[: TOGETHER - 1]]
            self._waiting = [one for one in self._waiting if one not in taken]
            for one in taken:
                if _on_any_mesh(one) not in self._averages:
                    self._averages[_on_any_mesh(one)] = self._of_shape(one)
            asked = [self._asked_at(one, self._averages[_on_any_mesh(one)]) for one in taken]
            for one, its, (value_s, rows) in zip(taken, asked, self.duals.least(asked), strict=True):
                self._first[one] = value_s, rows(), its.most_s
        return self._first[shape]

    def _average(self, shape: Shape, met: Sequence[Row]) -> tuple[float, list[Row], float]:
        """Another value of it, after the layouts `met`."""
        asked = self._of_shape(shape, met)
        ((value_s, rows),) = self.duals.least([asked])
        return value_s, rows(), asked.most_s

    def _of_shape(self, shape: Shape, met: Sequence[Row] = ()) -> Asked:
        return self.duals.ask(self._known[shape], self._views_of(shape), met)

    def _views_of(self, shape: Shape, case: Case | None = None) -> Views:
        """What is true on `shape`, and in a case."""
        occurrences = self.setting.occurrences
        return of_shape(occurrences, shape) if case is None else of_case(occurrences, shape, case)

    def _in_cases(self, shape: Shape, bound_s: float) -> Iterator[float]:
        """The bounds of the shape from round to round, by what a stage holds."""
        known, shown = self._known[shape], dict[Case, float]()
        bound_s = max(bound_s, self._by_another_mesh(shape))
        yield bound_s
        stalled, reached_s, best = 0, 0.0, tuple[Case, ...]()
        last: tuple[tuple[Case, ...], int] | None = None
        for round_ in range(ROUNDS):
            chains = [self.duals.chain(row) for row in known]
            every = cases(
                chains, self.setting.occurrences, shape, self.duals.left_B(known), bound_s, self.enough_s[shape], shown
            )
            if last == (every, len(known)):
                break  # nothing was met that these cases were not asked with
            last = every, len(known)
            values, asked = self._of_cases(known, every, AGAIN, STEADY)
            shown |= {case: max(value_s, shown.get(case, value_s)) for case, value_s in values.items()}
            least_s = min(values.values())
            if least_s > bound_s:
                best, self._shown_by[_on_any_mesh(shape)] = every, asked
            bound_s = max(bound_s, least_s)
            yield bound_s
            # The first cases are made of what was known without any; what they show may still be less than was known before.
            stalled = stalled + 1 if round_ and least_s < (1 + STEADY) * reached_s else 0
            reached_s = max(reached_s, least_s)
            if stalled == STALLS:
                break
        if best:
            values, _ = self._of_cases(known, best, POLISHED, SOLVED)
            split = set[Case]()
            while (least := min(best, key=values.__getitem__)) not in split:
                split.add(least)
                bound_s = max(bound_s, values[least])
                yield bound_s
                its_views = self._views_of(shape, least)
                values[least] = max(values[least], branched(self.duals, known, its_views, values[least]))
            bound_s = max(bound_s, min(values.values()))
            yield bound_s
        yield self._by_division(shape, bound_s)

    def _by_division(self, shape: Shape, bound_s: float) -> float:
        """The bound in cases of the best division that is known, where that may show more."""
        known, enough_s = self._known[shape], self.enough_s[shape]
        every = [stages for row in known if (stages := self._divided(row)) is not None]
        if bound_s >= (1 - DIVIDED) * enough_s or not every or len(self.setting.occurrences) != ONE_KIND:
            return bound_s
        stages = min(every, key=lambda one: step_s(one, shape.turns))
        seconds = [one.each_s for one in stages]
        division = Division(self.setting.occurrences, shape, tuple(one.blocks for one in stages))
        shown: dict[Part, float] = {}
        parts = division.parts(seconds.index(max(seconds)))
        for _ in range(FINER):
            values, _ = self._of_cases(known, [part.case for part in parts], POLISHED, SOLVED)
            shown |= {part: values[part.case] for part in parts}
            least = min(shown, key=shown.__getitem__)
            bound_s = max(bound_s, shown.pop(least))
            division, parts = division.finer(least)
            if bound_s >= enough_s or not parts:
                break
        return bound_s

    def _divided(self, row: Row) -> tuple[Stage, ...] | None:
        """The best stages of `row`, if these made again just what lets them fit, but for what lives for a moment only."""
        limits_B = [self.duals.left_B([row])] * row.shape.stages
        return divided_chain(self.duals.chain(row), limits_B, row.shape.turns)

    def _by_another_mesh(self, shape: Shape) -> float:
        """The bound that the cases show which showed most on another mesh, asked for as there."""
        asked = [self._asked_at(shape, one) for one in self._shown_by.get(_on_any_mesh(shape), ())]
        found = self.duals.least(asked) if asked else []
        for _, rows in found:
            self._learn(rows())
        return min((value_s for value_s, _ in found), default=0.0)

    def _asked_at(self, shape: Shape, asked: Asked) -> Asked:
        """What is `asked` on another mesh, on that of `shape`, where layouts cost about as much: it holds whatever the prices."""
        return replace(asked, number=self._known[shape][0].number, users=self.duals.users_of(shape))

    def _of_cases(
        self, known: list[Row], every: Sequence[Case], again: int, near: float
    ) -> tuple[dict[Case, float], list[Asked]]:
        """The bounds of cases, the least of them asked for again where that may raise it, so often, or until it is so near to
        what it can be, and how they were asked for last; `known` grows by what they meet.
        """
        shape = known[0].shape
        asked = [self.duals.ask(known, self._views_of(shape, case)) for case in every]
        found = self.duals.least(asked)
        values = [value_s for value_s, _ in found]
        met: dict[int, list[Row]] = {}
        for _ in range(again):
            least = min(range(len(every)), key=values.__getitem__)
            rows = found[least][1]()
            if not rows or values[least] >= min(asked[least].most_s, self.enough_s[shape]) * (1 - near):
                break
            self._learn(rows)
            met.setdefault(least, []).extend(rows)
            before_s, most_s = values[least], asked[least].most_s
            anew = self.duals.ask(known, self._views_of(shape, every[least]), met[least])
            tried = [anew, *self.duals.towards(asked[least], rows[0])]
            shown = self.duals.least(tried)
            best = max(range(len(tried)), key=lambda n: shown[n][0])
            found[least] = shown[best]
            if shown[best][0] > before_s:
                values[least], asked[least] = shown[best][0], tried[best]
            asked[least] = replace(asked[least], most_s=anew.most_s)
            if values[least] <= (1 + SAME) * before_s and anew.most_s >= (1 - SAME) * most_s:
                break  # neither end has moved
        return dict(zip(every, values, strict=True)), asked


def _on_any_mesh(shape: Shape) -> Shape:
    """What `shape` has in common with those on other meshes, whose stages hold the same in the same cases."""
    return replace(shape, mesh=())
