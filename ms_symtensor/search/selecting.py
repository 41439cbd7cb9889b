"""Plans of one stage that recompute blocks in part: which layouts promise most, the best of these, and the bound of all."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.bounds.remaking import Remaking
from ms_symtensor.search.bounds.selection_bound import SelectionDual
from ms_symtensor.search.one_stage.buffers import buffer_terms
from ms_symtensor.search.one_stage.dual import Choice
from ms_symtensor.search.one_stage.solve import Candidate, Free
from ms_symtensor.search.selections.selected import mixed
from ms_symtensor.search.tables.parameters import parameter_terms
from ms_symtensor.search.tables.problem import Problem

WORTH = 1e-3
"""Layouts that could make a step faster by less than this share are not tried (empirical)."""

NOTHING: Mapping[tuple[int, ...], float] = MappingProxyType({})

TRIED = 4
"""So many layouts are worked out at most, each with the programs of its mixtures (empirical)."""


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

    def beside(self, other: "OneStage") -> "OneStage":
        """What both searches found, this one and that of all meshes that it passed."""
        found = other if other.time_s < self.time_s else self
        return OneStage(
            found.problem,
            found.best,
            min((c for c in (self.smallest, other.smallest) if c is not None), key=lambda c: c.memory_B, default=None),
            min(self.bound_s, other.bound_s),
            self.candidates + other.candidates,
            self.searched + other.searched,
            other.passed,
        )


@dataclass(frozen=True)
class _Promise:
    """Layouts under one setting, and the seconds that a step takes at least with them."""

    least_s: float
    problem: Problem
    free: Free
    choice: Choice


def selecting(
    found: OneStage, request: Request, known_s: float = math.inf, least_s: Mapping[tuple[int, ...], float] = NOTHING
) -> OneStage:
    """`found` with blocks recomputed in part where that is faster, and a bound that holds for such plans too.

    What cannot beat a step of `known_s` is not looked for. No best one is left if none may be, and nothing else fits. `least_s`:
    of meshes, seconds that no such plan takes less than.
    """
    if not found.searched or not found.searched[0][0].selects:
        return found
    only, best = request.limits.selects, found.best
    enough_s = known_s if best is None else min(best.time_s, known_s)
    if math.isinf(enough_s):
        return found
    promises, bound_s = _promises(found, request, math.inf if only else enough_s, least_s)
    if only and best is not None and best.settings.recompute:
        best = None
    problem = found.problem
    for one in _different(promises)[:TRIED]:
        below_s = min(known_s, math.inf if best is None else best.time_s)
        if one.least_s >= (1 - WORTH) * below_s:
            break
        new = _candidate(one, request)
        if new is not None and new.time_s < below_s:
            best, problem = new, one.problem
    return replace(found, best=best, problem=problem, bound_s=bound_s)


def _promises(
    found: OneStage, request: Request, enough_s: float, least_s: Mapping[tuple[int, ...], float]
) -> tuple[list[_Promise], float]:
    """Layouts that may be faster than `enough_s`, those that promise most first; and the bound of all plans but on what was not
    looked at.
    """
    promises: list[_Promise] = []
    bound_s, remaking = math.inf, None
    for problem, free in sorted(found.searched, key=lambda pair: pair[1].bound_s):
        if free.bound_s >= enough_s or not free.choice:
            bound_s = min(bound_s, free.bound_s)
            continue
        remaking = remaking if remaking is not None and remaking.of is problem else Remaking(problem)
        tables = [
            *parameter_terms(problem.known, problem.parameters, free.settings),
            *buffer_terms(problem.known, problem.parameters, problem.places.behind),
        ]
        dual = SelectionDual(problem, remaking, tables, request.limit_B, free.bound_s)
        more = dual.raised(_start(found, problem, free), enough_s)
        promises += [_Promise(seconds, problem, free, choice) for seconds, choice in more]
        bound_s = min(bound_s, max(dual.bound_s, least_s.get(problem.known.pricer.family.mesh, 0.0)))
    return sorted(promises, key=lambda one: one.least_s), bound_s


def _different(promises: list[_Promise]) -> list[_Promise]:
    """`promises`, of equal strategies on several meshes the first one."""
    found: dict[tuple, _Promise] = {}
    for one in promises:
        strategies = one.problem.strategies(one.choice)
        found.setdefault((one.free.settings.optimizer_level, *strategies.items()), one)
    return list(found.values())


def _start(found: OneStage, problem: Problem, free: Free) -> Choice:
    """The layouts of the best plan where they are of this problem and setting, else those that are the fastest."""
    best = found.best
    if (
        best is None
        or problem is not found.problem
        or best.settings.optimizer_level is not free.settings.optimizer_level
    ):
        return free.choice
    return tuple(v.strategies.index(best.strategies[v.op.name]) for v in problem.known.items)


def _candidate(one: _Promise, request: Request) -> Candidate | None:
    """The best mixture of selections with these layouts; None if none is needed or none fits."""
    of, settings = one.problem, one.free.settings
    strategies = of.strategies(one.choice)
    found = mixed(
        of.shorts, strategies, settings, request.cluster, request.limit_B, request.rules, request.limits.selects
    )
    if found is None:
        return None
    recompute = found.mix.recompute(of.shorts.named(of.shorts.runs(found.first)))
    return Candidate(
        found.time_s, found.memory_B, strategies, replace(settings, recompute=recompute), found.mix, found.first
    )
