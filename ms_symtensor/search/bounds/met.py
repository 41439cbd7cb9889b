"""What is met while bounds of shapes are raised: the layouts of every shape, and what they make again."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf

from ms_symtensor.search.bounds.duals import STEADY, Asked, Duals
from ms_symtensor.search.bounds.fronts import Fronts
from ms_symtensor.search.bounds.views import Views, of_case, of_shape
from ms_symtensor.search.folded.chain import Stage
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.borders import borders_s, least_borders_s
from ms_symtensor.search.stages.estimate import quickest_s
from ms_symtensor.search.stages.rows import Row
from ms_symtensor.search.stages.stage_cases import Case
from ms_symtensor.search.stages.stage_layers import divided_chain, step_s
from ms_symtensor.search.stages.tried import Surveyed


class Met:
    """The layouts `of` a setting that are known, on every shape, and the duals that they give prices to.

    Bounds are raised up to `enough_s`; of every shape, without what is certainly sent between runs of a stage, `borders_s`.
    """

    def __init__(
        self,
        of: Surveyed,
        fronts: Fronts,
        depths: tuple[int, ...],
        limit_B: float,
        enough_s: float,
    ) -> None:
        self.setting, self.free = of.setting, of.free
        self.borders_s = {row.shape: least_borders_s(row) for row in of.free}
        # A little more: bounds of cases count as raised that come STEADY near to what is asked for.
        self.enough_s = {shape: (1 + STEADY) * (enough_s - border_s) for shape, border_s in self.borders_s.items()}
        self.rows: dict[Shape, list[Row]] = {row.shape: [row] for row in of.free}
        for row in of.known:
            same = self.rows.setdefault(row.shape, [])
            same += [row] if not row.is_among(same) else []
        self._alike: dict[Shape, list[Row]] = {}
        for row in of.free:
            self._alike.setdefault(row.shape.in_one_run, []).append(row)
        self.duals = Duals(of.setting, self.rows, fronts, depths, limit_B, self.enough_s)

    def learn(self, rows: Sequence[Row]) -> None:
        """Layouts that are good on a shape are known on all that differ from it by nothing but the runs of blocks per stage."""
        for row in rows:
            for other in self._alike[row.shape.in_one_run]:
                known = self.rows[other.shape]
                same = replace(row, shape=other.shape, number=other.number)
                known += [] if same.is_among(known) else [same]

    def steps(self, below_s: float, wanted: Callable[[Row], bool]) -> Iterator[tuple[float, Row]]:
        """All `wanted` layouts in micro-batches that are known and as fast as `below_s`, with seconds of a step of each: on the
        best stages, if these made again just what lets them fit, but for what lives for a moment only.
        """
        for shape, rows in self.rows.items():
            if not shape.accumulates:
                continue
            turns = shape.turns
            for row in rows:
                if wanted(row) and quickest_s(row, self.setting.occurrences) < below_s:
                    further_s = borders_s(row)
                    stages = self.divided(row, below_s - further_s)
                    if stages is not None and (found_s := step_s(stages, turns) + further_s) < below_s:
                        yield found_s, row

    def quickest_s(self, shape: Shape) -> float:
        """Seconds that no step is faster than in the layouts known on `shape`; inf if there are none."""
        return min((quickest_s(row, self.setting.occurrences) for row in self.rows.get(shape, [])), default=inf)

    def promises(self, shape: Shape) -> list[tuple[float, Row]]:
        """The layouts known on `shape`, if there are any, with seconds as of `steps`, by what a first question finds out."""
        known = self.rows.get(shape, [])
        if known:
            self.duals.ask(known, self.views_of(shape))
        divided = [(row, self.divided(row)) for row in known]
        return [(step_s(stages, shape.turns) + borders_s(row), row) for row, stages in divided if stages is not None]

    def divided(self, row: Row, within_s: float = inf) -> tuple[Stage, ...] | None:
        """The best stages of `row`, if these made again just what lets them fit, but for what lives for a moment only; as of
        `divided_chain`, None where no step takes less than `within_s`.
        """
        limits_B = [self.duals.left_B([row])] * row.shape.stages
        return divided_chain(self.duals.chain(row), limits_B, row.shape.turns, within_s=within_s)

    def views_of(self, shape: Shape, case: Case | None = None) -> Views:
        """What is true on `shape`, and in a case."""
        occurrences = self.setting.occurrences
        return of_shape(occurrences, shape) if case is None else of_case(occurrences, shape, case)

    def asked_at(self, shape: Shape, asked: Asked) -> Asked:
        """What is `asked` on another mesh, on that of `shape`, where layouts cost about as much: it holds whatever the prices."""
        return replace(asked, number=self.rows[shape][0].number, users=self.duals.users_of(shape))
