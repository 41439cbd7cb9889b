"""The whole outer space at once: the best layouts of the blocks for every shape, and what the step then takes.

For every shape (stages, micro-batches, mesh) and every setting of the optimizer, the operators' layouts that minimise

    T = (M + P - 1) / P · Σ_places n_place t_place + Σ_parameters

are found exactly for all shapes of one family together (`elimination`). T less what later stages hide (`hidden_ends_s`) is a
lower bound of the step, in which all stages are equally slow (with v virtual stages: (P - 1) / v for P - 1). Then the chain is
divided into stages that fit (`stage_layers`), shape by shape in the order of what they take at least, until that is not below
the best steps found.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.space.settings import settings_of
from ms_symtensor.search.space.step_layouts import StepLayout
from ms_symtensor.search.stages.estimate import Estimate, divided, quickest_s, with_borders
from ms_symtensor.search.stages.families import families, laid_out_on, variables_of
from ms_symtensor.search.stages.layout_candidates import Candidate, ConfigGroup, combines
from ms_symtensor.search.tables.parameters import parameter_terms
from ms_symtensor.search.tables.problem import Problem, problem_of
from ms_symtensor.search.tables.tables import Tables
from ms_symtensor.tensor.graph import Graph

Array = NDArray[np.float64]

SHORT = 3
"""Blocks of every kind in the network whose tables are written down: a first, a last and one between them."""

KEPT = 10
"""Of so many step layouts it is known what they take, the best ones."""

CLOSE = 1.05
"""Shapes are looked at closely whose bound is below so many times the best step: what lives for a moment, which is counted
only in the end, can make a plan slower by that (empirical)."""


Screened = tuple[ConfigGroup, tuple[Candidate, ...]]
"""A setting of screening, and its rows where memory is free, one for a shape, with bounds that hold for all its layouts."""


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
        for row in (row for _, rows in self.screened for row in rows):
            found[row.shape] = min(row.bound_s, found.get(row.shape, math.inf))
        return found


WrittenProblems = dict[tuple[bool, tuple[StepLayout, ...]], Problem]
"""Problems by their families: whether the members are alike, and these."""

NOTHING = ScreeningResult((), 0, (), ())
"""Nothing was screened."""


class Incumbents:
    """Shapes divided into stages, in the order of what they take at least, until that is not below the best steps."""

    def __init__(self, limit_B: float, incumbent_s: float) -> None:
        self._limit_B, self._known_s = limit_B, incumbent_s
        self._seen: set[tuple] = set()
        self._found: dict[StepLayout, Estimate] = {}
        self._times_s: list[float] = []  # of `_found`, rising
        self._refused: set[StepLayout] = set()

    @property
    def worst_s(self) -> float:
        """What a step must be faster than to be of interest."""
        return self._times_s[KEPT - 1] if len(self._times_s) >= KEPT else self._known_s

    @property
    def best_s(self) -> float:
        return self._times_s[0] if self._times_s else math.inf

    def look_at(self, rows: Iterable[Candidate]) -> None:
        """Divide those of `rows` that may be of interest: fast enough, or else all that may fit on their shape."""
        worst_s = self.worst_s
        every = [(max(row.bound_s, quickest_s(row)), row) for row in rows if row.bound_s < worst_s]
        for least_s, row in sorted(every, key=lambda pair: pair[0]):
            if least_s < self._cutoff_s(row) or (row.bound_s < self.worst_s and row.shape in self._refused):
                self._look_at(row)

    def _cutoff_s(self, row: Candidate) -> float:
        """What a step of `row` must be faster than to be of interest."""
        known = self._found.get(row.shape)
        return self.worst_s if known is None else min(self.worst_s, known.step_time_s)

    def _look_at(self, row: Candidate) -> None:
        key = row.shape, row.level, row.choice.tobytes()
        if key in self._seen:
            return
        self._seen.add(key)
        # Of every shape it is known whether something fits.
        cutoff_s = self._cutoff_s(row) if row.shape in self._found else math.inf
        one = divided(row, self._limit_B, cutoff_s)
        if one is not None and one.step_time_s < cutoff_s:
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


def screen(
    graph_at: Callable[[int], Graph],
    depths: tuple[int, ...],
    space: Sequence[StepLayout],
    request: Request,
    incumbent_s: float = math.inf,
    any_batch: bool = True,
    written: WrittenProblems | None = None,
) -> ScreeningResult:
    """Price all of `space`, as `request`; what cannot beat a step of `incumbent_s`, nor the best ones, is not looked at closely.

    `graph_at(batch)` is the network with SHORT blocks of every kind at that many samples, which may be any number or, without
    `any_batch`, those of `space`; `depths`: how many blocks of every kind it really has, with 1 before and after. `written`: the
    problems of requests that allow the same layouts, where there are several; those of this one are noted there.
    InvalidStrategyError where MindSpore rejects an operator in all of `space`.
    """
    settings: list[ConfigGroup] = []
    candidates, recomputation = 0, None
    rejected: InvalidStrategyError | None = None
    incumbents = Incumbents(request.limit_B, incumbent_s)
    for members, alike in families(graph_at, space, request.rules, any_batch):
        key = alike, tuple(members)
        try:
            if written is not None and key in written:
                of = written[key].within(request.limits)
            else:
                of = problem_of(*variables_of(graph_at, members, alike, request), recomputation)
        except InvalidStrategyError as error:
            rejected = error  # an operator that nobody can choose the layout of, or readers that cannot agree
            continue
        if written is not None:
            written[key] = of
        recomputation = of.recomputation
        candidates += of.candidates * len(members)
        settings += _settings(of, depths, members)
    if rejected is not None and not settings:
        raise rejected
    fast = [setting.fastest() for setting in settings]
    incumbents.look_at(chain.from_iterable(fast))
    min_gain_s = min(incumbents.worst_s, CLOSE * incumbents.best_s)
    rows, screened = list[Candidate](), list[Screened]()
    for setting, first in zip(settings, fast, strict=True):
        slim, bounds_s = setting.slim([row for row in first if row.bound_s < min_gain_s], request.limit_B)
        incumbents.look_at(slim)
        rows += [with_borders(row) for row in (*slim, *(row for row in first if row.bound_s >= min_gain_s))]
        bounded = (row.bound_by(max(row.bound_s, bounds_s.get(row.shape, 0.0))) for row in first)
        screened.append((setting, tuple(map(with_borders, bounded))))
    return incumbents.screening(rows, candidates, screened)


def _settings(of: Problem, depths: tuple[int, ...], members: Sequence[StepLayout]) -> list[ConfigGroup]:
    """Shapes that make a family, under every setting of the optimizer that MindSpore allows for some of them."""
    found = []
    in_stages = any(m.stages > 1 for m in members)
    for settings in settings_of(of.settings, of.graph.is_lazy_inline, of.limits, in_stages):
        level = settings.optimizer_level
        allowed = [i for i, m in enumerate(members) if combines(m, level, of.limits)]
        if not allowed:
            continue
        _, on = laid_out_on(members)
        one_of = dict(zip(on.tolist(), members, strict=True))  # those of a mesh have as many stages
        numbers = zip(*((m.accumulates, m.stages) for m in one_of.values()), strict=True)
        terms = parameter_terms(of.known, of.parameters, settings, *numbers)
        which = np.array(allowed, dtype=np.intp)
        found.append(ConfigGroup(of, tuple(members), on, depths, level, Tables(of, terms), which))
    return found
