"""The best choice of strategies, settings and recomputation under a memory limit, with a bound on what could be better.

For every setting of the optimizer sharding the problem is min T(x, r) subject to M(x, r) <= M_max, with x the strategies and
r the fraction of recomputed blocks. Its Lagrangian dual

    D(λ) = min over x and r of T(x, r) + λ (M(x, r) - M_max)        λ >= 0

is solved exactly for each λ by elimination (r need only be 0 or 1: the objective is linear in r). Every D(λ) bounds the
optimum from below; the λ are those of Kelley's cutting planes (1960). Every x met on the way is a candidate: with as few
recomputed blocks as make its true peak fit. The gap is the distance between the best candidate and the best bound.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ms_symtensor.errors import InputError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings
from ms_symtensor.search.elimination import minimise
from ms_symtensor.search.limits import FREE, Limits
from ms_symtensor.search.memory import PeakMemory
from ms_symtensor.search.parameters import parameter_terms
from ms_symtensor.search.problem import Problem
from ms_symtensor.search.tables import Totals, factors, totals
from ms_symtensor.search.terms import Terms

MAX_PRICES = 12
"""Prices λ of memory tried per setting; Kelley's method ends by itself after three to five."""


MEMORY_ALONE = 1e6
"""A price of memory, in seconds per byte, that outweighs any time."""


@dataclass(frozen=True)
class Candidate:
    """One complete choice with its modelled step time, and its peak memory by the true count."""

    time_s: float
    memory_B: int
    strategies: Mapping[str, OpStrategy]
    settings: Settings


@dataclass(frozen=True)
class Solution:
    """The best fitting candidate of one problem (None: nothing fits), the least memory met (None: no candidate is allowed), the
    bound and the effort.
    """

    best: Candidate | None
    smallest: Candidate | None
    bound_s: float
    solved: int


def settings_of(base: Settings, shares_blocks: bool = False, limits: Limits = FREE) -> tuple[Settings, ...]:
    """`base` with the optimizer shardings that are searched within `limits`: none, level 1, level 3, over all copies.

    Level 2 compiles to the same program as level 1 where gradients are not accumulated, and is there only where it is pinned.
    MindSpore does not combine level 3 with blocks that it compiles once for all (`@lazy_inline`): InputError if it is pinned.
    """
    levels = (OptimizerLevel.LEVEL1, OptimizerLevel.NONE, *(() if shares_blocks else (OptimizerLevel.LEVEL3,)))
    allowed = [level for level in levels if limits.allows("optimizer_level", level)]
    if not allowed and limits.allows("optimizer_level", OptimizerLevel.LEVEL2):
        allowed = [OptimizerLevel.LEVEL2]
    if not allowed:
        raise InputError(
            "optimizer_level = 3: MindSpore does not combine it with pipeline stages, nor with blocks of @lazy_inline"
        )
    return tuple(replace(base, optimizer_level=level) for level in allowed)


def solve(
    of: Problem,
    limit_B: int,
    best: Candidate | None = None,
    known_s: float = math.inf,
    progress: Callable[[str], None] = lambda _: None,
) -> Solution:
    """The best candidate of problem `of` whose peak stays within `limit_B`; `best` is the best one known so far.

    What cannot beat a step of `known_s` is not looked at closely.
    """
    searches = [_Setting(of, settings, limit_B) for settings in settings_of(of.settings, of.shares_blocks, of.limits)]
    bound = math.inf

    def within_s() -> float:
        return known_s if best is None else min(best.time_s, known_s)

    for search in searches:
        progress(f"optimizer sharding {search.settings.optimizer_level.name.lower()}")
        search.begin(within_s())
        best = search.better(best)
    # The setting that promises most goes first: what it finds ends the search in others early.
    for search in sorted(searches, key=lambda s: s.bound_s):
        search.go_on(within_s())
        best, bound = search.better(best), min(bound, search.bound_s)
    if best is None:
        for search in searches:
            search.least_memory()
            best = search.better(best)
    smallest = min((c for search in searches for c in search.found), key=lambda c: c.memory_B, default=None)
    return Solution(best, smallest, bound, sum(search.solved for search in searches))


def fits(of: Problem, limit_B: int) -> bool:
    """Whether the choices that keep the least fit `limit_B`, everything recomputed: a quick look, no search."""
    every = settings_of(of.settings, of.shares_blocks, of.limits)
    for settings in reversed(every):
        if settings.optimizer_level is OptimizerLevel.NONE and len(every) > 1:
            continue
        search = _Setting(of, settings, limit_B)
        search.least_memory()
        if any(found.memory_B <= limit_B for found in search.found):
            return True
    return False


class _Point(NamedTuple):
    """Seconds and kept bytes of a minimiser, and its choice of candidates, as little or as much recomputed as may be."""

    time_s: float
    kept_B: float
    choice: tuple[int, ...]


class _Setting:
    """The dual of one setting of the optimizer sharding, and the candidates met while solving it."""

    def __init__(self, of: Problem, settings: Settings, limit_B: int) -> None:
        self.of, self.settings, self.limit_B = of, settings, limit_B
        self.parameters: list[Terms] = parameter_terms(of.known, of.parameters, settings)
        self.again = of.limits.recomputed(len(of.blocks))
        self.shares = tuple(count / max(len(of.blocks), 1) for count in self.again)
        self.found: list[Candidate] = []
        self.bound_s = 0.0
        self.solved = 0
        self._seen: set[tuple[int, ...]] = set()
        self._costs: dict[tuple[int, ...], Totals] = {}
        self._known_s = math.inf
        self._fast = self._slim = _Point(math.inf, math.inf, ())

    def begin(self, known_s: float) -> None:
        """The best choice where memory is free and, if it does not fit, at the price that recomputation pays for it."""
        self._known_s = known_s
        self._fast = self._least(0.0)
        self.bound_s = self._fast.time_s
        if not self._is_settled():
            price = self._price_of_recomputation()
            self._note(self._least(price), price)

    def go_on(self, known_s: float) -> None:
        """Solve the dual; stop early once its bound exceeds `known_s`, the time of a plan that fits."""
        self._known_s = min(self._known_s, known_s)
        if self._slim.kept_B > self.limit_B and not self._is_settled():
            self._slim = self.least_memory()
            if self._slim.kept_B > self.limit_B:
                self.bound_s = math.inf
        for _ in range(MAX_PRICES):
            fast, slim = self._fast, self._slim
            if self._is_settled() or fast.kept_B <= self.limit_B or slim.kept_B >= fast.kept_B:
                return
            price = max((slim.time_s - fast.time_s) / (fast.kept_B - slim.kept_B), 0.0)
            chord = fast.time_s + price * (fast.kept_B - self.limit_B)
            value = self._note(self._least(price), price)
            if value >= chord - 1e-9 * abs(chord):
                return

    def better(self, best: Candidate | None) -> Candidate | None:
        """The best candidate that fits, of those found and `best`."""
        for found in self.found:
            if found.memory_B <= self.limit_B and (best is None or found.time_s < best.time_s):
                best = found
        return best

    def _note(self, point: _Point, price: float) -> float:
        """Raise the bound by the dual's value at `price`, whose minimiser is `point`; the value."""
        value = point.time_s + price * (point.kept_B - self.limit_B)
        self.bound_s = max(self.bound_s, value)
        if point.kept_B > self.limit_B:
            self._fast = point
        else:
            self._slim = point
        return value

    def _is_settled(self) -> bool:
        """Whether no better bound is needed: the fastest choice fits, or something known is faster than all of these."""
        plain = self._fast.kept_B <= self.limit_B and self._fits_plainly()
        return plain or self.bound_s >= self._known_s

    def _price_of_recomputation(self) -> float:
        """Seconds that the fastest choice pays for a byte if its blocks are recomputed."""
        (plain_s, kept_B), (again_s, least_B) = self._extremes(self._fast.choice)
        return (again_s - plain_s) / (kept_B - least_B) if kept_B > least_B else 0.0

    def least_memory(self) -> _Point:
        """The choice that keeps the least."""
        return self._least(MEMORY_ALONE)

    def _least(self, price: float) -> _Point:
        """The minimiser at memory price `price`, over both extremes of recomputation."""
        plain, everything = self.shares
        shares = (plain, everything) if plain < everything else (plain,)
        if price == 0.0:
            shares = (plain,)  # recomputation never saves time
        elif price == MEMORY_ALONE:
            shares = (everything,)  # nor does it keep more
        which = np.zeros(len(shares), dtype=np.intp)
        tables = factors(self.of, self.parameters, np.array(shares), price, which=which)
        least = minimise(self.of.sizes, tables, self.of.order)
        self.solved += len(shares)
        solved = zip(least.value.tolist(), shares, map(tuple, least.assignment.tolist()), strict=True)
        results = [one for one in solved if math.isfinite(one[0])]
        if not results:
            return _Point(math.inf, math.inf, ())
        _, recomputed, choice = min(results)
        for _, _, other in results:
            self._add(other)
        return _Point(*self._cost(choice).recomputing(recomputed), choice)

    def _fits_plainly(self) -> bool:
        blocks, least = len(self.of.blocks), self.again[0]
        return any(c.memory_B <= self.limit_B and len(c.settings.recompute) == least for c in self.found) or blocks == 0

    def _add(self, choice: tuple[int, ...]) -> None:
        """Note the candidate of `choice`, unless it was met before or cannot beat a plan that fits."""
        is_beaten = math.isfinite(self._known_s) and self._at_least_s(choice) >= self._known_s
        if choice in self._seen or is_beaten:
            return
        self._seen.add(choice)
        strategies = {
            name: self.of.known.items[number].strategies[choice[number]] for name, number in self.of.known.index.items()
        }  # fmt: skip
        candidate = self._with_recompute(choice, strategies, PeakMemory(self.of.shorts, strategies, self.settings))
        self.found.append(candidate)
        if candidate.memory_B <= self.limit_B:
            self._known_s = min(self._known_s, candidate.time_s)

    def _at_least_s(self, choice: tuple[int, ...]) -> float:
        """Seconds of `choice` with as many recomputed blocks as what is kept alone makes necessary; inf where all are too few."""
        count = self._least_recomputed(choice)
        return math.inf if count is None else self._time_s(choice, count)

    def _least_recomputed(self, choice: tuple[int, ...]) -> int | None:
        """So many blocks must be recomputed for what is kept alone; None where it is too much even so."""
        (least, most), ((_, kept_B), (_, least_B)) = self.again, self._extremes(choice)
        if kept_B <= self.limit_B:
            return least
        if least_B > self.limit_B:
            return None
        return least + math.ceil((most - least) * (kept_B - self.limit_B) / (kept_B - least_B))

    def _time_s(self, choice: tuple[int, ...], recomputed: int) -> float:
        """Seconds of `choice` with so many recomputed blocks."""
        (least, most), ((plain_s, _), (again_s, _)) = self.again, self._extremes(choice)
        share = (recomputed - least) / (most - least) if most > least else 0.0
        return plain_s + share * (again_s - plain_s)

    def _extremes(self, choice: tuple[int, ...]) -> tuple[tuple[float, float], tuple[float, float]]:
        """Seconds and kept bytes of `choice`, as little recomputed as may be, and as much."""
        cost = self._cost(choice)
        return cost.recomputing(self.shares[0]), cost.recomputing(self.shares[1])

    def _cost(self, choice: tuple[int, ...]) -> Totals:
        if choice not in self._costs:
            self._costs[choice] = totals(self.of, self.parameters, choice)
        return self._costs[choice]

    def _with_recompute(
        self, choice: tuple[int, ...], strategies: Mapping[str, OpStrategy], peaks: PeakMemory
    ) -> Candidate:
        """The choice with as few recomputed blocks as fit, or with as many as may be where even those do not."""
        at_rest = int(self._cost(choice).at_rest_B)

        def peak_B(count: int) -> int:
            return at_rest + sum(peaks.of(count))

        # The peak falls with every further block; that of what is kept is almost always the one that counts.
        most = self.again[1]
        low, high = self._least_recomputed(choice), most
        count = low = most if low is None else low
        while low < high:
            if peak_B(count) <= self.limit_B:
                high = count
            else:
                low = count + 1
            count = (low + high) // 2
        settings = replace(self.settings, recompute=dict.fromkeys(self.of.blocks[:high], Recompute()))
        return Candidate(self._time_s(choice, high), peak_B(high), strategies, settings)
