"""The least of all shapes' bounds where blocks may make parts again: best first, so that only what it depends on is raised."""

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ms_symtensor.search.bounds.fronts import Fronts
from ms_symtensor.search.bounds.remaking import Remaking
from ms_symtensor.search.bounds.stage_bounds import Bounds
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.tried import Surveyed


def selection_bounds(
    surveyed: Iterable[Surveyed],
    depths: tuple[int, ...],
    limit_B: float,
    enough_s: float,
    plan: Shape | None = None,
    worth_s: float = math.inf,
) -> dict[Shape, float]:
    """Of every shape, seconds that no step takes less than, up to `enough_s`, if blocks may make parts again.

    `plan`: the shape of a plan. Of shapes in micro-batches nobody asks but for the least bound of all, and for the least of those
    of other stages or micro-batches than `plan`, up to `worth_s`: each is raised as far as that depends on it.
    """
    every = _every_climb(surveyed, depths, limit_B, enough_s)
    several = [one for one in every if one.shape.accumulates]
    least_s = _raised(several, enough_s)
    _raised([one for one in several if not _same_way(one.shape, plan)], min(worth_s, enough_s))
    for one in every:
        if not one.shape.accumulates:
            _raised([one], least_s)
    found: dict[Shape, float] = {}
    for one in every:
        found[one.shape] = min(one.bound_s, found.get(one.shape, math.inf))
    return found


@dataclass
class _Climb:
    """The bound of a shape under one setting, which every step raises as far as another round does; `is_done`: none does more."""

    shape: Shape
    bound_s: float
    steps: Iterator[float]
    is_done: bool = False


def _every_climb(
    surveyed: Iterable[Surveyed], depths: tuple[int, ...], limit_B: float, enough_s: float
) -> list[_Climb]:
    """All shapes, by rising bounds."""
    fronts = Fronts()
    remaking: dict[int, Remaking] = {}
    found = []
    for one in surveyed:
        bounds = Bounds(one, remaking, fronts, depths, limit_B, enough_s)
        found += [_Climb(row.shape, row.bound_s, bounds.rising(row)) for row in one.free]
    return sorted(found, key=lambda climb: climb.bound_s)


def _raised(climbs: Iterable[_Climb], enough_s: float) -> float:
    """The least bound of `climbs`, up to `enough_s`: always the least one is raised, until it is and no step raises it more."""
    queue = [(climb.bound_s, number, climb) for number, climb in enumerate(climbs)]
    heapq.heapify(queue)
    while queue:
        bound_s, number, climb = queue[0]
        if bound_s >= enough_s or climb.is_done:
            return min(bound_s, enough_s)
        climb.bound_s = next(climb.steps, math.nan)
        if math.isnan(climb.bound_s):
            climb.bound_s, climb.is_done = bound_s, True
        heapq.heapreplace(queue, (climb.bound_s, number, climb))
    return enough_s


def _same_way(shape: Shape, plan: Shape | None) -> bool:
    """Whether `shape` has the stages and micro-batches of `plan`, or is not in micro-batches as plans here are."""
    if not shape.accumulates or shape.interleave > 1:
        return True
    return plan is not None and (shape.stages, shape.micro_batch_num) == (plan.stages, plan.micro_batch_num)
