"""Bounds of shapes whose blocks may make parts again: Lagrangian duals with the tables of `remaking`, on stages.

First for an average stage (`average_stage`); then, where that shows too little, in cases of which one is true whatever the stages
(`stage_cases`): a stage holds a run, of which every block makes again what it likes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.average_stage import average_weights
from ms_symtensor.search.case_bounds import best_price, corner_weights
from ms_symtensor.search.chain import Chain, Part
from ms_symtensor.search.elimination import minimise
from ms_symtensor.search.estimate import parts_of
from ms_symtensor.search.remaking import Given, Remade, Remaking
from ms_symtensor.search.rows import Row
from ms_symtensor.search.selection_bound import EVERYTHING
from ms_symtensor.search.shapes import Shape
from ms_symtensor.search.stage_cases import Case, Layout, cases, layout
from ms_symtensor.search.tables import factors
from ms_symtensor.search.terms import Weights
from ms_symtensor.search.tried import Surveyed

Array = NDArray[np.float64]

ROUNDS = 4
"""So often cases are made of what is known, each time with the layouts that were the best in the last ones (empirical)."""

SHARES = (0.3, 0.7, 1.0, 1.5, 2.2)
"""Prices of a byte, beside what it costs to make everything again, at which it is known what layouts make again (empirical: they
only tell at which price a bound is asked for).
"""

STEADY = 1e-3
"""A bound that a round has raised by less than this share stays as it is (empirical)."""


class SelectedChain(Chain):
    """A chain whose blocks make parts again, as little as makes a run of them fit: `levels` [levels, parts, (seconds, bytes)]."""

    def __init__(self, parts: Sequence[Part], levels: Array) -> None:
        super().__init__(parts)
        sums = np.cumsum(levels, axis=1)
        self._sums = np.concatenate([np.zeros((len(levels), 1, 2)), sums], axis=1)

    def fitting(
        self, start: int, end: int, flight: int, limit_B: float, most: float = math.inf
    ) -> tuple[float, float, int] | None:
        """As of `Chain`, but for how many blocks are recomputed."""
        each_s = self.each_s[end] - self.each_s[start]
        peak_B = self.at_rest_B[end] - self.at_rest_B[start] + flight * (self.kept_B[end] - self.kept_B[start])
        if peak_B > limit_B:
            again_s, saved_B = (self._sums[:, end] - self._sums[:, start]).T
            missing_B = (peak_B - limit_B) / flight
            if missing_B > saved_B[-1]:
                return None
            each_s += float(np.interp(missing_B, saved_B, again_s))
            peak_B = limit_B
        return each_s, peak_B, 0


class _Fronts:
    """What layouts may make again: at some prices, each found once for all layouts of equal costs."""

    def __init__(self) -> None:
        self._known: dict[tuple, dict[float, Remade]] = {}

    def at(self, given: Given, price_s_per_B: float) -> Remade:
        known = self._known.setdefault((*given.seconds.values(), *given.size_B.values()), {})
        if price_s_per_B not in known:
            known[price_s_per_B] = given.at(price_s_per_B)
        return known[price_s_per_B]

    def levels(self, given: Given) -> Array:
        """What every place makes again and saves, [levels, places, 2], from nothing to everything."""
        everything = self.at(given, EVERYTHING)
        again_s, saved_B = everything.again_s.sum(), everything.saved_B.sum()
        prices = [share * again_s / saved_B for share in SHARES] if saved_B > 0 else []
        found = [*(self.at(given, price) for price in prices), everything]
        nothing = np.zeros((given.places, 2))
        return np.array([nothing, *(np.stack([one.again_s, one.saved_B], axis=1) for one in found)])


@dataclass(frozen=True)
class _Asked:
    """A bound that is asked for: where every place counts as `weights` say (a row for each field of `Weights`), a byte has a
    price, one of a block beside seconds of making it again too, and implications have theirs.
    """

    member: int
    weights: Array
    price_s_per_B: float
    block_s_per_B: float
    multipliers: Array


def selection_bounds(
    surveyed: Iterable[Surveyed], depths: tuple[int, ...], limit_B: float, enough_s: float, plan: Shape | None = None
) -> dict[Shape, float]:
    """Of every shape, seconds that no step takes less than, up to `enough_s`, if blocks may make parts again.

    `plan`: the shape of a plan. Of shapes in micro-batches nobody asks but for the least bound of all, and for the least of those
    of other stages or micro-batches than `plan`: each is raised as far as that depends on it.
    """
    every, fronts = list(surveyed), _Fronts()
    remaking: dict[int, Remaking] = {}
    bounds: dict[int, _Bounds] = {}
    found: dict[Shape, float] = {}
    ordered = sorted(
        (row.bound_s, number, place) for number, one in enumerate(every) for place, row in enumerate(one.free)
    )
    for free_s, number, place in ordered:
        one, row, bound_s = every[number], every[number].free[place], free_s
        asked_s = enough_s
        if row.shape.accumulates:
            asked_s = min((known_s for shape, known_s in found.items() if not _same_way(shape, plan)), default=enough_s)
            asked_s = min(asked_s, enough_s)
        if free_s < asked_s and row.shape.interleave == 1:
            if number not in bounds:
                of = one.setting.problem
                known = remaking[id(of)] = remaking.get(id(of)) or Remaking(of)
                bounds[number] = _Bounds(one, known, fronts, depths, limit_B)
            bound_s = bounds[number].of([row], asked_s)[row.shape]
        found[row.shape] = min(bound_s, found.get(row.shape, math.inf))
    return found


def _same_way(shape: Shape, plan: Shape | None) -> bool:
    """Whether `shape` has the stages and micro-batches of `plan`, or is not in micro-batches as plans here are."""
    if not shape.accumulates or shape.interleave > 1:
        return True
    return plan is not None and (shape.stages, shape.micro_batch_num) == (plan.stages, plan.micro_batch_num)


class _Bounds:
    """The bounds of one setting."""

    def __init__(
        self,
        of: Surveyed,
        remaking: Remaking,
        fronts: _Fronts,
        depths: tuple[int, ...],
        limit_B: float,
    ) -> None:
        self.setting, self.remaking, self.fronts, self.depths = of.setting, remaking, fronts, depths
        self.limit_B = limit_B
        self.known: dict[Shape, list[Row]] = {}
        for row in of.known:
            self.known.setdefault(row.shape, []).append(row)
        self._given: dict[tuple[int, bytes], Given] = {}
        self._levels: dict[tuple[int, bytes], Array] = {}

    def of(self, rows: Sequence[Row], enough_s: float) -> dict[Shape, float]:
        """The bounds, up to `enough_s`, of the shapes of `rows`, which hold where memory is free."""
        bounds_s = {row.shape: row.bound_s for row in rows}
        every = average_weights(self.setting.occurrences, [r.shape for r in rows], np.zeros(len(rows)), math.inf)
        weights = {
            row.shape: np.array([getattr(every, name.name)[:, number] for name in fields(Weights)])
            for number, row in enumerate(rows)
        }
        known = {row.shape: [row, *self.known.get(row.shape, [])] for row in rows}
        left = [row.shape for row in rows]
        for _ in range(ROUNDS):
            asked = [self._asked(known[shape], weights[shape], enough_s) for shape in left]
            higher = []
            for shape, (bound_s, more) in zip(left, self._least(asked), strict=True):
                rises = bound_s > (1 + STEADY) * bounds_s[shape]
                bounds_s[shape] = max(bounds_s[shape], bound_s)
                known[shape] += more
                if rises and more and bounds_s[shape] < enough_s:
                    higher.append(shape)
            left = higher
            if not left:
                break
        for shape, bound_s in bounds_s.items():
            if shape.stages > 1 and bound_s < enough_s:
                bounds_s[shape] = max(bound_s, self._in_cases(known[shape], bound_s, enough_s))
        return bounds_s

    def _in_cases(self, known: list[Row], bound_s: float, enough_s: float) -> float:
        """The bound of the shape of the layouts `known`, by what a stage holds."""
        shown: dict[Case, float] = {}
        for _ in range(ROUNDS):
            layouts = [self._layout(row) for row in known]
            every = cases(layouts, self.setting.occurrences, known[0].shape, self.limit_B, bound_s, enough_s, shown)
            values = self._least([self._of_case(known, case, enough_s) for case in every])
            shown |= {
                case: max(value_s, shown.get(case, value_s)) for case, (value_s, _) in zip(every, values, strict=True)
            }
            least_s, more = min(values, key=lambda pair: pair[0])
            before_s, bound_s = bound_s, max(bound_s, least_s)
            if bound_s >= enough_s or bound_s < (1 + STEADY) * before_s or not more:
                break
            known += more
        return bound_s

    def _of_case(self, known: Sequence[Row], case: Case, enough_s: float) -> _Asked:
        """The bound of `case` that is asked for."""
        shape, costs = known[0].shape, [row.costs for row in known]
        weights = np.array(corner_weights(self.setting.occurrences, shape, case, sum(case.held[1:-1]), costs))
        weights[4] = [0.0, *(float(case.flight * n) for n in case.held[1:-1]), 0.0]
        return self._asked(known, weights, enough_s)

    def _asked(self, known: Sequence[Row], weights: Array, enough_s: float) -> _Asked:
        """The bound asked for: where the layouts `known`, on any of their levels, are as slow as can be."""
        value_s, over_B, owner = [], [], []
        for number, row in enumerate(known):
            levels = self._levels_of(row)
            plain_s = row.costs.each_s @ weights[0] + row.costs.once_s @ weights[2]
            missing_B = row.costs.kept_B @ weights[3] + row.costs.at_rest_B @ weights[5] - self.limit_B
            value_s.append(plain_s + levels[:, :, 0] @ weights[1])
            over_B.append(missing_B - levels[:, :, 1] @ weights[4])
            owner += [number] * len(levels)
        values, over = np.concatenate(value_s), np.concatenate(over_B)
        price = best_price(values, over, enough_s)
        row = known[owner[int(np.argmin(values + price * over))]]
        ratio = max((s / a for a, s in zip(weights[1], weights[4], strict=True) if a), default=0.0)
        return _Asked(
            row.member, weights, price, price * ratio, self.fronts.at(self._given_of(row), price * ratio).multipliers
        )

    def _least(self, asked: Sequence[_Asked]) -> list[tuple[float, list[Row]]]:
        """The values of the duals, and the layouts of their minima, if there are any."""
        if not asked:
            return []
        which = np.array([one.member for one in asked], dtype=np.intp)
        weights = Weights(*np.array([one.weights for one in asked]).transpose(1, 2, 0))
        price, block = (np.array([getattr(one, name) for one in asked]) for name in ("price_s_per_B", "block_s_per_B"))
        setting, multipliers = self.setting, np.array([one.multipliers for one in asked]).T
        gains = self.remaking.gains(block, multipliers, weights.again_s, which)
        tables = [*factors(setting.problem, setting.parameters, 0.0, price, weights, which), *gains]
        least = minimise(setting.problem.sizes, tables, setting.problem.order)
        values = least.value - price * self.limit_B - setting.slack_s[which]
        found = []
        for number, value_s in enumerate(values.tolist()):
            one = slice(number, number + 1)
            found.append((value_s, setting.rows_of(which[one], least.assignment[one], values[one])))
        return found

    def _given_of(self, row: Row) -> Given:
        key = row.member, row.choice.tobytes()
        if key not in self._given:
            self._given[key] = self.remaking.given(row.choice.tolist(), row.member)
        return self._given[key]

    def _levels_of(self, row: Row) -> Array:
        key = row.member, row.choice.tobytes()
        if key not in self._levels:
            self._levels[key] = self.fronts.levels(self._given_of(row))
        return self._levels[key]

    def _layout(self, row: Row) -> Layout:
        counts, parts = np.array(self.setting.occurrences), parts_of(row, self.depths)
        once_s = np.repeat(row.costs.once_s, counts).tolist()
        return replace(
            layout(parts, once_s), chain=SelectedChain(parts, np.repeat(self._levels_of(row), counts, axis=1))
        )
