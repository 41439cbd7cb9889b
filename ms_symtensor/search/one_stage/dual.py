"""The Lagrangian dual of one setting of the optimizer sharding, between two numbers of recomputed blocks.

    D(λ) = min over x and k of T(x, k) + λ (M(x, k) - M_max)        λ >= 0, least <= k <= most

with x the strategies, the first k blocks being recomputed. Each D(λ) bounds the optimum from below; it is found exactly by
elimination. For one x the objective is linear in k where blocks are alike: k is tried where that ends. The λ are those of
Kelley's cutting planes (1960).
"""

import math
from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from ms_symtensor.search.tables.problem import Problem
from ms_symtensor.search.tables.tables import Tables, Totals
from ms_symtensor.search.tables.terms import Terms, Weights

MAX_PRICES = 12
"""Prices λ of memory tried per dual; Kelley's method ends by itself after three to five."""

MEMORY_ALONE = 1e6
"""A price of memory, in seconds per byte, that outweighs any time."""

Choice = tuple[int, ...]


class Point(NamedTuple):
    """Seconds and kept bytes of a minimiser, and its choice of candidates."""

    time_s: float
    kept_B: float
    choice: Choice


NOWHERE = Point(math.inf, math.inf, ())


class Dual:
    """The dual of problem `of` with the tables `parameters`; `cost` adds them up.

    `met`: the choices met on the way, in their order. `fast`: of the minimisers that keep too much the last one; `slim`: of those
    that do not.
    """

    def __init__(
        self,
        of: Problem,
        parameters: list[Terms],
        limit_B: int,
        recomputed: tuple[int, int],
        cost: Callable[[Choice], Totals],
    ) -> None:
        self.of, self.tables, self.limit_B, self.cost = of, Tables(of, parameters), limit_B, cost
        self.met: list[Choice] = []
        self.least, self.most = recomputed
        self.fast = self.slim = NOWHERE
        self.bound_s = 0.0

    def begin(self) -> None:
        """The best choice where memory is free."""
        self.fast = self.at(0.0)
        self.bound_s = self.fast.time_s

    def at(self, price: float) -> Point:
        """The minimiser at memory price `price`."""
        if price == 0.0:
            counts = [self.least]  # recomputation never saves time
        elif price == MEMORY_ALONE:
            counts = [self.most]  # nor does it keep more
        else:
            counts = self._corners()
        rows = [self._weights(count) for count in counts]
        weights = Weights(*np.array(rows, dtype=float).transpose(1, 2, 0))
        which = np.zeros(len(counts), dtype=np.intp)
        summed = self.tables.factors(1.0, np.full(len(counts), price), weights, which)
        least = self.of.least(summed)
        found = [
            (float(v), k, tuple(x.tolist())) for v, k, x in zip(least.value, counts, least.assignment, strict=True)
        ]
        found = [one for one in found if math.isfinite(one[0])]
        if not found:
            return NOWHERE
        self.met += dict.fromkeys(choice for _, _, choice in sorted(found))
        _, count, choice = min(found)
        return Point(*self.cost(choice).recomputing(self.of.repeated(count)), choice)

    def note(self, point: Point, price: float) -> float:
        """Raise the bound by the dual's value at `price`, whose minimiser is `point`; the value."""
        value = point.time_s + price * (point.kept_B - self.limit_B)
        self.bound_s = max(self.bound_s, value)
        if point.kept_B > self.limit_B:
            self.fast = point
        else:
            self.slim = point
        return value

    def go_on(self, enough_s: float) -> None:
        """Raise the bound as far as it goes, or to `enough_s`; to inf where nothing fits."""
        if self.slim.kept_B > self.limit_B and self.fast.kept_B > self.limit_B and self.bound_s < enough_s:
            self.slim = self.at(MEMORY_ALONE)
            if self.slim.kept_B > self.limit_B:
                self.bound_s = math.inf
        for _ in range(MAX_PRICES):
            fast, slim = self.fast, self.slim
            if self.bound_s >= enough_s or fast.kept_B <= self.limit_B or slim.kept_B >= fast.kept_B:
                return
            price = max((slim.time_s - fast.time_s) / (fast.kept_B - slim.kept_B), 0.0)
            chord = fast.time_s + price * (fast.kept_B - self.limit_B)
            value = self.note(self.at(price), price)
            if value >= chord - 1e-9 * abs(chord):
                return

    def _corners(self) -> list[int]:
        ends = accumulate(self.of.places.occurrences[1:-1])
        return sorted({self.least, self.most, *(k for k in ends if self.least < k < self.most)})

    def _weights(self, recomputed: int) -> tuple[tuple[int, ...], ...]:
        here, again = self.of.places.occurrences, self.of.repeated(recomputed)
        return (here, again, here, here, again, here)
