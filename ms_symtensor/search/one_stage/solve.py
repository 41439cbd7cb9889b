"""The best choice of strategies, settings and recomputation under a memory limit, with a bound on what could be better.

For every setting of the optimizer sharding the `dual` bounds the step from below. Every choice met on the way is a candidate:
with as few recomputed blocks as make its true peak fit. The gap is the distance between the best candidate and the best bound.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from ms_symtensor.errors import InputError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings
from ms_symtensor.search.asked.limits import FREE, Limits
from ms_symtensor.search.folded.memory import PeakMemory
from ms_symtensor.search.folded.mix import WHOLE, Mix
from ms_symtensor.search.one_stage.dual import MEMORY_ALONE, Choice, Dual
from ms_symtensor.search.tables.parameters import parameter_terms
from ms_symtensor.search.tables.problem import Problem
from ms_symtensor.search.tables.tables import totals
from ms_symtensor.search.tables.terms import Terms


@dataclass(frozen=True)
class Candidate:
    """One complete choice with its modelled step time, and its peak memory by the true count.

    `first`: so many blocks are those that `mix` puts first (None: as many as are recomputed).
    """

    time_s: float
    memory_B: int
    strategies: Mapping[str, OpStrategy]
    settings: Settings
    mix: Mix = WHOLE
    first: int | None = None


@dataclass(frozen=True)
class Free:
    """One setting where memory is free: no step takes less than `bound_s`, that of `choice` (empty: nothing is allowed). `met`:
    the choices that were met at other prices of memory.
    """

    settings: Settings
    bound_s: float
    choice: Choice
    met: tuple[Choice, ...] = ()


@dataclass(frozen=True)
class Solution:
    """The best fitting candidate of one problem (None: nothing fits), the least memory met (None: no candidate is allowed), the
    bound, and all settings where memory is free.
    """

    best: Candidate | None
    smallest: Candidate | None
    bound_s: float
    free: tuple[Free, ...]


def settings_of(
    base: Settings, shares_blocks: bool = False, limits: Limits = FREE, in_stages: bool = False
) -> tuple[Settings, ...]:
    """`base` with the optimizer shardings that are searched within `limits`: none, level 1, level 3, over all copies.

    Level 2 compiles to the same program as level 1 where gradients are not accumulated: it is there where steps may lie
    `in_stages`, or where it is pinned. MindSpore does not combine level 3 with blocks that it compiles once for all
    (`@lazy_inline`): InputError if it is pinned.
    """
    levels = (OptimizerLevel.LEVEL1, OptimizerLevel.NONE, *(() if shares_blocks else (OptimizerLevel.LEVEL3,)))
    allowed = [level for level in levels if limits.allows("optimizer_level", level)]
    if (in_stages or not allowed) and limits.allows("optimizer_level", OptimizerLevel.LEVEL2):
        allowed.append(OptimizerLevel.LEVEL2)
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

    def within_s() -> float:
        return known_s if best is None else min(best.time_s, known_s)

    for search in searches:
        progress(f"optimizer sharding {search.settings.optimizer_level.name.lower()}")
        search.begin(within_s())
        best = search.better(best)
    # The setting that promises most goes first: what it finds ends the search in others early.
    for search in sorted(searches, key=lambda s: s.bound_s):
        search.go_on(within_s())
        best = search.better(best)
    if best is None:
        for search in searches:
            search.least_memory()
            best = search.better(best)
    smallest = min((c for search in searches for c in search.found), key=lambda c: c.memory_B, default=None)
    free = tuple(replace(search.free, met=tuple(dict.fromkeys(search.met))) for search in searches)
    bound_s = min((search.bound_s for search in searches), default=math.inf)
    return Solution(best, smallest, bound_s, free)


class _Setting:
    """The dual of one setting of the optimizer sharding, and the candidates met while solving it."""

    def __init__(self, of: Problem, settings: Settings, limit_B: int) -> None:
        self.of, self.settings, self.limit_B = of, settings, limit_B
        self.parameters: list[Terms] = parameter_terms(of.known, of.parameters, settings)
        self.again = of.limits.recomputed(len(of.blocks))
        self.found: list[Candidate] = []
        self._cost = cache(partial(totals, of, self.parameters))
        self.dual = Dual(of, self.parameters, limit_B, self.again, self._cost)
        self.free = Free(settings, 0.0, ())
        self.bound_s = 0.0
        self.met: list[Choice] = []
        self._seen: set[Choice] = set()
        self._known_s = math.inf

    def begin(self, known_s: float) -> None:
        """The best choice where memory is free and, if it does not fit, at the price that recomputation pays for it."""
        self._known_s = known_s
        self.dual.begin()
        self.free = Free(self.settings, self.dual.bound_s, self.dual.fast.choice)
        if self._is_hopeless():
            self.bound_s, self.dual.met = math.inf, []
            return
        self._learn()
        if not self._is_settled():
            price = self._price_of_recomputation()
            self.dual.note(self.dual.at(price), price)
        self._learn()

    def go_on(self, known_s: float) -> None:
        """Solve the dual; stop early once its bound exceeds `known_s`, the time of a plan that fits."""
        self._known_s = min(self._known_s, known_s)
        if math.isinf(self.bound_s):
            return
        if not self._is_settled():
            self.dual.go_on(self._known_s)
        self._learn()

    def _learn(self) -> None:
        """What the dual has met and shown since it was asked last."""
        self._look_at(self.dual.met)
        self.dual.met = []
        self.bound_s = max(self.bound_s, self.dual.bound_s)

    def _look_at(self, met: Sequence[Choice]) -> None:
        self.met += met
        for choice in met:
            self._add(choice)

    def better(self, best: Candidate | None) -> Candidate | None:
        """The best candidate that fits, of those found and `best`."""
        for found in self.found:
            if found.memory_B <= self.limit_B and (best is None or found.time_s < best.time_s):
                best = found
        return best

    def _is_hopeless(self) -> bool:
        """Whether even the choice that keeps the least keeps too much."""
        fastest = self.dual.fast.choice
        if not fastest or self._least_recomputed(fastest) is not None:
            return False
        return self.dual.at(MEMORY_ALONE).kept_B > self.limit_B

    def _is_settled(self) -> bool:
        """Whether no better bound is needed: the fastest choice fits, or something known is faster than all of these."""
        plain = self.dual.fast.kept_B <= self.limit_B and self._fits_plainly()
        return plain or self.dual.bound_s >= self._known_s

    def _price_of_recomputation(self) -> float:
        """Seconds that the fastest choice pays for a byte if its blocks are recomputed."""
        (plain_s, kept_B), (again_s, least_B) = (self._at(self.dual.fast.choice, count) for count in self.again)
        return (again_s - plain_s) / (kept_B - least_B) if kept_B > least_B else 0.0

    def least_memory(self) -> None:
        """Meet the choice that keeps the least."""
        self.dual.at(MEMORY_ALONE)
        self._learn()

    def _fits_plainly(self) -> bool:
        blocks, least = len(self.of.blocks), self.again[0]
        return any(c.memory_B <= self.limit_B and len(c.settings.recompute) == least for c in self.found) or blocks == 0

    def _add(self, choice: Choice) -> None:
        """Note the candidate of `choice`, unless it was met before or cannot beat a plan that fits."""
        is_beaten = math.isfinite(self._known_s) and self._at_least_s(choice) >= self._known_s
        if choice in self._seen or is_beaten:
            return
        self._seen.add(choice)
        strategies = self.of.strategies(choice)
        candidate = self._with_recompute(choice, strategies, PeakMemory(self.of.shorts, strategies, self.settings))
        self.found.append(candidate)
        if candidate.memory_B <= self.limit_B:
            self._known_s = min(self._known_s, candidate.time_s)

    def _at_least_s(self, choice: Choice) -> float:
        """Seconds of `choice` with as many recomputed blocks as what is kept alone makes necessary; inf where all are too few."""
        count = self._least_recomputed(choice)
        return math.inf if count is None else self._at(choice, count)[0]

    def _least_recomputed(self, choice: Choice) -> int | None:
        """So many blocks must be recomputed for what is kept alone; None where it is too much even so."""
        low, high = self.again

        def fits(count: int) -> bool:
            return self._at(choice, count)[1] <= self.limit_B

        return low + bisect_left(range(low, high), True, key=fits) if fits(high) else None

    def _at(self, choice: Choice, recomputed: int) -> tuple[float, float]:
        """Seconds and kept bytes of `choice` with so many recomputed blocks."""
        return self._cost(choice).recomputing(self.of.repeated(recomputed))

    def _with_recompute(self, choice: Choice, strategies: Mapping[str, OpStrategy], peaks: PeakMemory) -> Candidate:
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
        return Candidate(self._at(choice, high)[0], peak_B(high), strategies, settings)
