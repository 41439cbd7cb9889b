"""The whole outer space at once: the best layouts of the blocks for every shape, and what the step then takes.

For every shape (stages, micro-batches, mesh) and every setting of the optimizer, the operators' layouts that minimise

    T = (M + P - 1) / P · Σ_places n_place t_place + Σ_parameters

are found exactly for all shapes of one family together (`elimination`); T is a lower bound of the step, in which all stages
are equally slow (with v runs of blocks per stage: (P - 1) / v for P - 1). Then the chain is divided into stages that fit
(`stage_layers`), shape by shape in the order of what they take at least, until that is not below the best steps found.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.registry import Rule
from ms_symtensor.search.asked.limits import FREE, Limits
from ms_symtensor.search.folded.folding import fold
from ms_symtensor.search.folded.places import occurrences, places
from ms_symtensor.search.one_stage.solve import settings_of
from ms_symtensor.search.space.shapes import Round, Shape
from ms_symtensor.search.stages.borders import least_borders_s, with_borders
from ms_symtensor.search.stages.estimate import least_step_s
from ms_symtensor.search.stages.families import families, laid_out_on, variables_of
from ms_symtensor.search.stages.rows import Row, Setting, combines
from ms_symtensor.search.stages.stage_cases import Case, cases
from ms_symtensor.search.stages.tried import Outcome, Surveyed, Tried
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

BEYOND = 1.02
"""Bounds of stages are sought up to so many times the best step, or, first, half way from there to the best step of their shape:
more is of no use, and asking for more than can be shown shows less (empirical)."""

CASE_ROUNDS = 6
"""So often cases are made of what is known, each time with the layouts that were the best in the last ones (empirical)."""

SELECTED_ROUNDS = 1
"""So often where blocks may be recomputed in part: other bounds hold for such plans, these just find layouts (empirical: without,
a search may take a quarter longer, since bounds are raised for longer; a second round takes 4 % of it, and made plans faster by
less than 0.1 %)."""

STEADY = 1e-3
"""A bound that a round has raised by less than this share stays as it is, where layouts are known that fit (empirical)."""


def survey(
    graph_at: Callable[[int], Graph],
    depths: tuple[int, ...],
    space: Sequence[Shape],
    cluster: Cluster,
    limit_B: float,
    rules: Mapping[str, Rule] | None = None,
    keep: int = 10,
    known_s: float = math.inf,
    limits: Limits = FREE,
    any_batch: bool = True,
) -> Outcome:
    """Price all of `space` within `limits`; what cannot beat a step of `known_s` is not looked at closely.

    `graph_at(batch)` is the network with SHORT blocks of every kind at that many samples, which may be any number or, without
    `any_batch`, those of `space`; `depths`: how many blocks of every kind it really has, with 1 before and after.
    InvalidStrategyError where MindSpore rejects an operator in all of `space`.
    """
    settings: list[Setting] = []
    fast: list[list[Row]] = []
    ruled_out_s: dict[Shape, float] = {}
    candidates, again = 0, None
    rejected: InvalidStrategyError | None = None
    tried = Tried(depths, limit_B, keep, known_s)
    for members, alike in sorted(families(graph_at, space, rules, any_batch), key=_promise):
        try:
            graph, known = variables_of(graph_at, members, alike, cluster, rules, limits)
        except InvalidStrategyError as error:  # an operator that nobody can choose the layout of
            rejected = error
            continue
        # Shapes that are not CLOSE are wanted only where fewer than `keep` are known.
        enough_s = min(known_s, max(tried.worst_s, CLOSE * tried.best_s))
        if math.isfinite(enough_s):
            least_s = least_work_s(graph, known, depths, members)
            if min(least_s) >= enough_s:
                ruled_out_s.update(zip(members, least_s, strict=True))
                continue
        of = problem_of(graph, known, again=again)
        again = of.again
        candidates += of.candidates * len(members)
        new = list(_fastest(_settings(of, depths, members), enough_s))
        settings += [setting for setting, _ in new]
        fast += [rows for _, rows in new]
        tried.look_at(row for _, rows in new for row in rows)
    if rejected is not None and not settings and not ruled_out_s:
        raise rejected
    worth_s = min(tried.worst_s, CLOSE * tried.best_s)
    slim = [_looked_at(of, first, worth_s, limit_B) for of, first in zip(settings, fast, strict=True)]
    tried.look_at(row for known, _ in slim for row in known)
    in_cases = [_in_cases(of, known, tried, limit_B) for of, (known, _) in zip(settings, slim, strict=True)]
    near = [known for known, _ in in_cases]
    fast = [
        [row.bound_by(max(row.bound_s, *(found.get(row.shape, 0.0) for found in free_s))) for row in first]
        for first, *free_s in zip(fast, (free_s for _, free_s in slim), (free_s for _, free_s in in_cases), strict=True)
    ]
    tried.look_at(row for of_setting in near for row in of_setting)
    rows = [with_borders(row) for of_setting in near for row in of_setting]
    surveyed = [Surveyed(of, tuple(first), tuple(known)) for of, first, known in zip(settings, fast, near, strict=True)]
    return tried.outcome(rows, ruled_out_s, candidates, surveyed)


def _looked_at(
    of: Setting, first: Sequence[Row], worth_s: float, limit_B: float
) -> tuple[list[Row], dict[Shape, float]]:
    """The rows `first` of a setting, those looked at closely whose bound is below `worth_s`; and bounds of these that hold
    whatever is made again.
    """
    worth = [row for row in first if row.bound_s < worth_s]
    found, free_s = of.slim(worth, limit_B)
    return found + [row for row in first if row.bound_s >= worth_s], free_s


def _in_cases(of: Setting, rows: Sequence[Row], tried: Tried, limit_B: float) -> tuple[list[Row], dict[Shape, float]]:
    """The rows of a setting; those in stages that may still be the best with bounds that know how uneven stages are. And of these
    bounds those that hold whatever is made again.
    """
    by_shape: dict[Shape, list[Row]] = {}
    for row in rows:
        by_shape.setdefault(row.shape, []).append(row)
    left = [shape for shape in by_shape if shape.stages > 1]
    if left and math.isinf(tried.best_s):  # nothing fits: shapes that cannot even hold what is at rest need no cases
        at_rest_B = of.at_rest_B(np.array([by_shape[shape][0].number for shape in left], dtype=np.intp))
        left = [shape for shape, least_B in zip(left, at_rest_B.tolist(), strict=True) if least_B <= limit_B]
    borders_s = {shape: least_borders_s(by_shape[shape][0]) for shape in left}
    shown: dict[Shape, dict[Case, float]] = {shape: {} for shape in left}
    free_s: dict[Shape, float] = {}
    rounds = SELECTED_ROUNDS if of.problem.selects else CASE_ROUNDS
    for round_ in range(1, rounds + 1):
        left = [shape for shape in left if by_shape[shape][0].bound_s + borders_s[shape] < tried.best_s]
        if not left:
            break
        chosen, nowhere = [], set()
        for known in map(by_shape.__getitem__, left):
            found_s = min(2 * tried.best_s, *(tried.promised_s(row) for row in known))
            if found_s == 2 * tried.best_s:
                nowhere.add(known[0].shape)
            least_s = tried.best_s * BEYOND
            asked_s = least_s + max(0.0, found_s - least_s) / 2**round_ - borders_s[known[0].shape]
            chosen.append((known, asked_s, _cases(of, known, tried, limit_B, asked_s, shown[known[0].shape])))
        higher = set()
        for shape, (by_case, best, least_free_s) in zip(left, of.by_cases(chosen, limit_B), strict=True):
            free_s[shape] = max(least_free_s, free_s.get(shape, 0.0))
            shown[shape] |= {case: max(bound_s, shown[shape].get(case, bound_s)) for case, bound_s in by_case.items()}
            known_s = by_shape[shape][0].bound_s
            for new in best:
                if new.bound_s > (1 + STEADY) * known_s or shape in nowhere or round_ < rounds / 2:
                    higher.add(shape)
                every = *by_shape[shape], new
                by_shape[shape] = [row.bound_by(max(new.bound_s, known_s)) for row in every]
        left = [shape for shape in left if shape in higher]
    return [row for known in by_shape.values() for row in known], free_s


def _cases(
    of: Setting,
    known: Sequence[Row],
    tried: Tried,
    limit_B: float,
    asked_s: float,
    shown: Mapping[Case, float],
) -> tuple[Case, ...]:
    """The cases for the layouts `known` of one shape, where cases have `shown` so much."""
    return cases(
        [tried.chain(row) for row in known], of.occurrences, known[0].shape, limit_B, known[0].bound_s, asked_s, shown
    )


def _promise(family: tuple[list[Shape], bool]) -> int:
    """The place of one of `families` in the order in which they are looked at: those that are mostly the fastest go first."""
    members, _ = family
    return list(Round).index(members[0].round)


def least_work_s(graph: Graph, known: Variables, depths: tuple[int, ...], members: Sequence[Shape]) -> list[float]:
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


def _settings(of: Problem, depths: tuple[int, ...], members: Sequence[Shape]) -> list[Setting]:
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
        found.append(Setting(of, tuple(members), on, depths, level, Tables(of, terms), which, none))
    return found


def _fastest(settings: Sequence[Setting], enough_s: float) -> Iterator[tuple[Setting, list[Row]]]:
    """The settings of one family, first the one that is searched for all shapes, each with its rows where memory is free.

    A shape is left out of the others where these could save no more than WORTH of its step, nor memory, or not so much that it
    takes less than `enough_s`; the first one allows for that.
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
        idle = ((saves_s <= WORTH * least_s) & ~slimmer) | (least_s - saves_s >= enough_s)
        slack_s = np.maximum(slack_s, np.where(idle, saves_s, 0.0))
        left = replace(setting, which=np.array([m for m in setting.which if not idle[m]], dtype=np.intp))
        yield left, left.fastest()
    yield replace(first, slack_s=slack_s), [r.bound_by(r.bound_s - float(slack_s[r.number])) for r in rows]
