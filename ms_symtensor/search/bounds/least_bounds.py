"""The least of all shapes' bounds where blocks may make parts again: best first, so that only what it depends on is raised."""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ms_symtensor.search.bounds.fronts import Fronts
from ms_symtensor.search.bounds.met import Met
from ms_symtensor.search.bounds.stage_bounds import Bounds
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.rows import Row
from ms_symtensor.search.stages.tried import Surveyed


@dataclass(frozen=True)
class Raised:
    """Of every shape, seconds that no step takes less than if blocks may make parts again; and all that was met on the way."""

    bounds_s: Mapping[Shape, float]
    met: tuple[Met, ...]

    def steps(self, below_s: float, wanted: Callable[[Row], bool] = lambda _: True) -> list[tuple[float, Row]]:
        """Those layouts in micro-batches that are `wanted`, with seconds of a step of each, as `Met.steps` knows them, by
        rising seconds; of equal ones that first which shards the optimizer least.
        """
        every = (step for one in self.met for step in one.steps(below_s, wanted))
        return sorted(every, key=lambda step: (step[0], step[1].level))


def selection_bounds(
    surveyed: Iterable[Surveyed],
    depths: tuple[int, ...],
    limit_B: float,
    enough_s: float,
    known_s: Mapping[Shape, float] = MappingProxyType({}),
    fronts: Fronts | None = None,
) -> Raised:
    """The bounds up to `enough_s`, of shapes in `known_s` from that on. `fronts`: what is known from before, and grows.

    Of shapes in micro-batches nobody asks but for the least bound of all: each is raised as far as that depends on it. Of one
    stage and one batch, every mesh is asked for.
    """
    fronts = Fronts() if fronts is None else fronts
    bounds = tuple(Bounds(Met(one, fronts, depths, limit_B, enough_s)) for one in surveyed)
    climbs = [
        _Climb(row.shape, max(row.bound_s + of.met.borders_s[row.shape], known_s.get(row.shape, 0.0)), of.rising(row))
        for of in bounds
        for row in of.met.free
    ]
    every = sorted(climbs, key=lambda climb: climb.bound_s)
    _raised((one for one in every if one.shape.accumulates), enough_s)
    for one in every:
        if not one.shape.accumulates:
            _raised([one], enough_s)
    found: dict[Shape, float] = {}
    for one in every:
        found[one.shape] = min(one.bound_s, found.get(one.shape, math.inf))
    return Raised(found, tuple(of.met for of in bounds))


@dataclass
class _Climb:
    """The bound of a shape under one setting, which every step raises as far as another round does; `is_done`: none does more."""

    shape: Shape
    bound_s: float
    steps: Iterator[float]
    is_done: bool = False


def _raised(climbs: Iterable[_Climb], enough_s: float) -> None:
    """Raise the least bound of `climbs` up to `enough_s`: always the least one, until it is there or no step raises it more."""
    queue = [(climb.bound_s, number, climb) for number, climb in enumerate(climbs)]
    heapq.heapify(queue)
    while queue:
        bound_s, number, climb = queue[0]
        if bound_s >= enough_s or climb.is_done:
            return
        risen_s = next(climb.steps, math.nan)
        climb.is_done = math.isnan(risen_s)
        climb.bound_s = bound_s if climb.is_done else max(bound_s, risen_s)
        heapq.heapreplace(queue, (climb.bound_s, number, climb))
