"""Plans of one stage that recompute blocks in part: which layouts promise most, the best of these, and the bound of all."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import Settings
from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.folded.memory import PeakMemory
from ms_symtensor.search.one_stage.solve import Candidate, Free
from ms_symtensor.search.selections.selected import levels, mixed
from ms_symtensor.search.tables.parameters import parameter_terms
from ms_symtensor.search.tables.problem import Problem
from ms_symtensor.search.tables.tables import Totals, totals

WORTH = 1e-3
"""Layouts that could make a step faster by less than this share are not tried (empirical)."""

RANKED = 8
"""For so many layouts the front of recomputation is worked out (empirical: some 20 ms each)."""

TRIED = 4
"""So many of these are worked out at most, each with the programs of its mixtures (empirical)."""


@dataclass(frozen=True)
class OneStage:
    """What a search over plans of one stage has found: its `problem` and the `best` candidate that fits and is fast enough.

    No such plan takes less than `bound_s`. `smallest`: the candidate with the smallest peak that was met; None where no mesh
    was looked at. `searched`: every problem under every setting, where memory is free; `passed`: meshes not looked at.
    """

    problem: Problem | None
    best: Candidate | None
    smallest: Candidate | None
    bound_s: float
    candidates: int
    searched: tuple[tuple[Problem, Free], ...] = ()
    passed: tuple[tuple[int, ...], ...] = ()

    @property
    def time_s(self) -> float:
        """Seconds of the step of the best candidate, inf if there is none."""
        return math.inf if self.best is None else self.best.time_s


@dataclass(frozen=True)
class _Promise:
    """Layouts under one setting, and the seconds that a step of them takes where blocks recompute just what lets it fit."""

    step_s: float
    problem: Problem
    settings: Settings
    strategies: Mapping[str, OpStrategy]


def selecting(found: OneStage, request: Request, known_s: float = math.inf) -> OneStage:
    """`found` with blocks recomputed selectively where that is faster, and a bound that holds for such plans too.

    What cannot beat a step of `known_s` is not looked for. No best one is left if none may be, and nothing else fits.
    """
    if not found.searched or not found.searched[0][0].selects:
        return found
    only, best = request.limits.selects, found.best
    enough_s = known_s if best is None else min(best.time_s, known_s)
    if math.isinf(enough_s):
        return found
    if only and best is not None and best.settings.recompute:
        best, enough_s = None, math.inf
    problem = found.problem
    for one in _promises(found, request, enough_s)[:TRIED]:
        below_s = min(known_s, math.inf if best is None else best.time_s)
        if one.step_s >= (1 - WORTH) * below_s:
            break
        new = _candidate(one, request)
        if new is not None and new.time_s < below_s:
            best, problem = new, one.problem
    # Whatever is recomputed, no step is faster than where memory is free.
    bound_s = min((free.bound_s for _, free in found.searched), default=math.inf)
    return replace(found, best=best, problem=problem, bound_s=min(found.bound_s, bound_s))


def _promises(found: OneStage, request: Request, enough_s: float) -> list[_Promise]:
    """Layouts that may be faster than `enough_s`, those that promise most first."""
    quickest: dict[tuple, tuple[float, Problem, Settings, Mapping[str, OpStrategy], Totals]] = {}
    for problem, free in found.searched:
        parameters = parameter_terms(problem.known, problem.parameters, free.settings)
        for choice in dict.fromkeys((free.choice, *free.met)) if free.choice else ():
            cost = totals(problem, parameters, choice)
            if cost.plain_s < enough_s:
                strategies = problem.strategies(choice)
                key = free.settings.optimizer_level, *strategies.items()
                quickest.setdefault(key, (cost.plain_s, problem, free.settings, strategies, cost))
    promises: list[_Promise] = []
    for _, of, settings, layouts, cost in sorted(quickest.values(), key=lambda one: one[0])[:RANKED]:
        step_s = _promised_s(of, settings, layouts, cost, request)
        if step_s < enough_s:
            promises.append(_Promise(step_s, of, settings, layouts))
    return sorted(promises, key=lambda one: one.step_s)


def _promised_s(
    problem: Problem, settings: Settings, strategies: Mapping[str, OpStrategy], cost: Totals, request: Request
) -> float:
    """Seconds of a step whose blocks are on two neighbouring levels that save what is kept too much; inf where none do."""
    missing_B = cost.kept_B + cost.at_rest_B - request.limit_B
    if missing_B <= 0:
        return cost.plain_s
    try:
        every = levels(PeakMemory(problem.shorts, strategies, settings), request.cluster, request.limits.selects).every
    except InvalidStrategyError:
        return math.inf
    counts = [len(names) for names in problem.shorts.kinds]
    again_s, saved_B = (
        [sum(n * value(first, one) for n, first, one in zip(counts, every[0], level, strict=True)) for level in every]
        for value in (lambda _, one: one.again_s, lambda first, one: float(first.kept_B - one.kept_B))
    )
    if not every or saved_B[-1] < missing_B:
        return math.inf
    return cost.plain_s + float(np.interp(missing_B, saved_B, again_s))


def _candidate(one: _Promise, request: Request) -> Candidate | None:
    """The best mixture of selections with these layouts; None if none is needed or none fits."""
    of, settings = one.problem, one.settings
    found = mixed(
        of.shorts, one.strategies, settings, request.cluster, request.limit_B, request.rules, request.limits.selects
    )
    if found is None:
        return None
    recompute = found.mix.recompute(of.shorts.named(of.shorts.runs(found.first)))
    return Candidate(
        found.time_s, found.memory_B, one.strategies, replace(settings, recompute=recompute), found.mix, found.first
    )
