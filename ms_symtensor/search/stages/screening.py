"""The whole outer space at once: the best layouts of the blocks for every shape, and what the step then takes.

For every shape (stages, micro-batches, mesh) and every setting of the optimizer, the operators' layouts that minimise

    T = (M + P - 1) / P · Σ_places n_place t_place + Σ_parameters

are found exactly for all shapes of one family together (`elimination`). T less what later stages hide (`hidden_ends_s`) is a
lower bound of the step, in which all stages are equally slow (with v virtual stages: (P - 1) / v for P - 1). Then the chain is
divided into stages that fit (`stage_layers`), shape by shape in the order of what they take at least, until that is not below
the best steps found.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.search.folded.folding import fold
from ms_symtensor.search.folded.places import occurrences, places
from ms_symtensor.search.space.settings import settings_of
from ms_symtensor.search.space.step_layouts import Round, StepLayout
from ms_symtensor.search.stages.borders import with_borders
from ms_symtensor.search.stages.estimate import hidden_ends_s, least_step_s
from ms_symtensor.search.stages.families import families, laid_out_on, variables_of
from ms_symtensor.search.stages.incumbents import Incumbents, Screened, ScreeningResult
from ms_symtensor.search.stages.layout_candidates import Candidate, ConfigGroup, combines
from ms_symtensor.search.stages.question import Question
from ms_symtensor.search.tables.parameters import stage_terms
from ms_symtensor.search.tables.problem import Problem, problem_of
from ms_symtensor.search.tables.tables import Tables
from ms_symtensor.search.tables.variables import Variables
from ms_symtensor.tensor.graph import Graph

Array = NDArray[np.float64]

SHORT = 3
"""Blocks of every kind in the network whose tables are written down: a first, a last and one between them."""

WORTH = 1e-3
"""A level of optimizer sharding is not searched where it could save no more than this share of a step (empirical)."""

CLOSE = 1.05
"""Shapes are looked at closely whose bound is below so many times the best step: what lives for a moment, which is counted
only in the end, can make a plan slower by that (empirical)."""


def screen(
    graph_at: Callable[[int], Graph],
    depths: tuple[int, ...],
    space: Sequence[StepLayout],
    question: Question,
    any_batch: bool = True,
) -> ScreeningResult:
    """Price all of `space`, as `question`; what cannot beat a step that is known is not looked at closely.

    `graph_at(batch)` is the network with SHORT blocks of every kind at that many samples, which may be any number or, without
    `any_batch`, those of `space`; `depths`: how many blocks of every kind it really has, with 1 before and after.
    InvalidStrategyError where MindSpore rejects an operator in all of `space`.
    """
    settings: list[ConfigGroup] = []
    fast: list[list[Candidate]] = []
    ruled_out_s: dict[StepLayout, float] = {}
    candidates, recomputation = 0, None
    rejected: InvalidStrategyError | None = None
    incumbents = Incumbents(depths, question.limit_B, question.keep, question.incumbent_s)
    for members, alike in sorted(families(graph_at, space, question.rules, any_batch), key=_promise):
        try:
            graph, known = variables_of(graph_at, members, alike, question)
        except InvalidStrategyError as error:  # an operator that nobody can choose the layout of
            rejected = error
            continue
        # Shapes that are not CLOSE are wanted only where fewer than `keep` are known.
        target_s = min(question.incumbent_s, max(incumbents.worst_s, CLOSE * incumbents.best_s))
        if math.isfinite(target_s):
            least_s = least_work_s(graph, known, depths, members)
            if min(least_s) >= target_s:
                ruled_out_s.update(zip(members, least_s, strict=True))
                continue
        try:
            of = problem_of(graph, known, recomputation=recomputation)
        except InvalidStrategyError as error:  # readers of one parameter that cannot agree
            rejected = error
            continue
        recomputation = of.recomputation
        candidates += of.candidates * len(members)
        new = list(_fastest(_settings(of, depths, members), target_s))
        settings += [setting for setting, _ in new]
        fast += [rows for _, rows in new]
        incumbents.look_at(row for _, rows in new for row in rows)
    if rejected is not None and not settings and not ruled_out_s:
        raise rejected
    min_gain_s = min(incumbents.worst_s, CLOSE * incumbents.best_s)
    slim = [_looked_at(of, first, min_gain_s, question.limit_B) for of, first in zip(settings, fast, strict=True)]
    incumbents.look_at(row for known, _ in slim for row in known)
    free = [
        [row.bound_by(max(row.bound_s, free_s.get(row.shape, 0.0))) for row in first]
        for first, (_, free_s) in zip(fast, slim, strict=True)
    ]
    rows = [with_borders(row) for known, _ in slim for row in known]
    screened = [
        Screened(of, tuple(map(with_borders, first)), tuple(known))
        for of, first, (known, _) in zip(settings, free, slim, strict=True)
    ]
    return incumbents.screening(rows, ruled_out_s, candidates, screened)


def _looked_at(
    of: ConfigGroup, first: Sequence[Candidate], min_gain_s: float, limit_B: float
) -> tuple[list[Candidate], dict[StepLayout, float]]:
    """The rows `first` of a setting, those looked at closely whose bound is below `min_gain_s`; and bounds of these that hold
    whatever is recomputed.
    """
    worth = [row for row in first if row.bound_s < min_gain_s]
    found, free_s = of.slim(worth, limit_B)
    return found + [row for row in first if row.bound_s >= min_gain_s], free_s


def _promise(family: tuple[list[StepLayout], bool]) -> int:
    """The place of one of `families` in the order in which they are looked at: those that are mostly the fastest go first."""
    members, _ = family
    return list(Round).index(members[0].round)


def least_work_s(graph: Graph, known: Variables, depths: tuple[int, ...], members: Sequence[StepLayout]) -> list[float]:
    """Seconds that no step is faster than: every operator by itself at its best, nothing moved; inf where one cannot be."""
    where, count = places(graph, fold(graph)), occurrences(depths)
    meshes, on = laid_out_on(members)
    each_s = np.zeros((len(meshes), len(count)))
    for variable in known.items:
        fastest_s = (variable.forward_s + variable.backward_s).min(axis=1)
        for place, number in enumerate(where.counts(dict.fromkeys(variable.members, 1))):
            each_s[:, place] += number * fastest_s if number else 0.0
    once_s = np.zeros(len(count))
    return [least_step_s(shape, count, each_s[mesh], once_s) for shape, mesh in zip(members, on, strict=True)]


def _settings(of: Problem, depths: tuple[int, ...], members: Sequence[StepLayout]) -> list[ConfigGroup]:
    """Shapes that make a family, under every setting of the optimizer that MindSpore allows for some of them."""
    found = []
    in_stages = any(m.stages > 1 for m in members)
    for settings in settings_of(of.settings, of.shares_blocks, of.limits, in_stages):
        level = settings.optimizer_level
        allowed = [i for i, m in enumerate(members) if combines(m, level, of.limits)]
        if not allowed:
            continue
        _, on = laid_out_on(members)
        one_of = dict(zip(on.tolist(), members, strict=True))  # on a mesh all or none have several stages
        flags = zip(*((m.accumulates, m.stages > 1) for m in one_of.values()), strict=True)
        terms = stage_terms(of.known, of.parameters, settings, *flags)
        which, none = np.array(allowed, dtype=np.intp), np.zeros(len(members))
        found.append(ConfigGroup(of, tuple(members), on, depths, level, Tables(of, terms), which, none))
    return found


def _fastest(settings: Sequence[ConfigGroup], target_s: float) -> Iterator[tuple[ConfigGroup, list[Candidate]]]:
    """The settings of one family, first the one that is searched for all shapes, each with its rows where memory is free.

    A shape is left out of the others where these could save no more than WORTH of its step, nor memory, or not so much that it
    takes less than `target_s`; the first one allows for that.
    """
    if not settings:
        return
    first, *others = settings
    rows = first.fastest()
    least_s = np.full(len(first.shapes), -1.0)  # where it has no layout at all, the others are looked at
    for row in rows:
        least_s[row.number] = row.bound_s
    slack_s = np.zeros(len(first.shapes))
    for setting in others:
        saves_s, slimmer = setting.saves_s(first)
        idle = ((saves_s <= WORTH * least_s) & ~slimmer) | (least_s - saves_s >= target_s)
        slack_s = np.maximum(slack_s, np.where(idle, saves_s, 0.0))
        left = replace(setting, which=np.array([m for m in setting.which if not idle[m]], dtype=np.intp))
        yield _hiding(left, left.fastest())
    yield _hiding(replace(first, slack_s=slack_s), [r.bound_by(r.bound_s - float(slack_s[r.number])) for r in rows])


def _hiding(of: ConfigGroup, rows: Sequence[Candidate]) -> tuple[ConfigGroup, list[Candidate]]:
    """A setting and its rows, whose bounds allow for what later stages hide at the ends of a step."""
    late_s = np.zeros(len(of.shapes))
    for row in rows:
        late_s[row.number] = hidden_ends_s(row, of.occurrences)
    return replace(of, slack_s=of.slack_s + late_s), [r.bound_by(r.bound_s - float(late_s[r.number])) for r in rows]
