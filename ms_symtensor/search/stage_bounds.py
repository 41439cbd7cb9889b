"""Bounds of shapes whose blocks may make parts again: Lagrangian duals with the tables of `remaking`, on stages.

First for an average stage (`average_stage`); then, where that shows too little, in cases of which one is true whatever the stages
(`stage_cases`): a stage holds a run, of which every block makes again what it likes.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.average_stage import average_weights
from ms_symtensor.search.case_bounds import best_price, corner_weights
from ms_symtensor.search.elimination import minimise
from ms_symtensor.search.estimate import parts_of
from ms_symtensor.search.fronts import Fronts, SelectedChain
from ms_symtensor.search.remaking import Given, Remade, Remaking
from ms_symtensor.search.rows import Row
from ms_symtensor.search.selection_bound import RISES
from ms_symtensor.search.shapes import Shape
from ms_symtensor.search.stage_cases import Case, Layout, cases, layout
from ms_symtensor.search.terms import Weights
from ms_symtensor.search.tried import Surveyed

Array = NDArray[np.float64]

ROUNDS = 4
"""So often cases are made of what is known, each time with the layouts that were the best in the last ones (empirical)."""

PRICES = 6
"""So many prices are tried for a bound that is asked for; Kelley's method (1960) ends by itself after two to four (empirical)."""

TOGETHER = 8
"""So many shapes of one family take their first step together: that costs twice as much as one (empirical)."""

STEADY = 1e-3
"""A bound that a round has raised by less than this share stays as it is (empirical)."""


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


Line = tuple[float, float]
"""Seconds, and bytes beyond the limit, which have a price."""


def _further(plain: Line, remade: Remade, weights: Array) -> Line:
    """`plain`, with this made again."""
    value_s, over_B = plain
    return value_s + float(remade.again_s @ weights[1]), over_B - float(remade.saved_B @ weights[4])


class Bounds:
    """The bounds of one setting, up to `enough_s`."""

    def __init__(
        self,
        of: Surveyed,
        remaking: dict[int, Remaking],
        fronts: Fronts,
        depths: tuple[int, ...],
        limit_B: float,
        enough_s: float,
    ) -> None:
        self.setting, self.fronts, self.depths = of.setting, fronts, depths
        self.limit_B, self.enough_s = limit_B, enough_s
        self._remaking = remaking
        self._known: dict[Shape, list[Row]] = {row.shape: [row] for row in of.free}
        for row in of.known:
            same = self._known.setdefault(row.shape, [])
            if not any(np.array_equal(row.choice, other.choice) for other in same):
                same.append(row)
        waiting = sorted((row for row in of.free if row.bound_s < enough_s), key=lambda row: row.bound_s)
        self._waiting = [row.shape for row in waiting if row.shape.interleave == 1]
        self._first: dict[Shape, tuple[float, list[Row]]] = {}
        self._given: dict[tuple[int, bytes], Given] = {}

    @property
    def remaking(self) -> Remaking:
        """The closure of the blocks, written down once for all settings of a problem."""
        of = self.setting.problem
        if id(of) not in self._remaking:
            self._remaking[id(of)] = Remaking(of)
        return self._remaking[id(of)]

    def rising(self, row: Row) -> Iterator[float]:
        """The bounds of the shape of `row`, which holds where memory is free, from step to step."""
        shape, bound_s = row.shape, row.bound_s
        if shape.interleave > 1:
            return
        for round_ in range(ROUNDS):
            value_s, more = self._first_step(shape) if round_ == 0 else self._average(shape)
            rises = value_s > (1 + STEADY) * bound_s
            bound_s = max(bound_s, value_s)
            self._known[shape] += more
            yield bound_s
            if not rises or not more:
                break
        if shape.stages > 1:
            yield from self._in_cases(shape, bound_s)

    def _first_step(self, shape: Shape) -> tuple[float, list[Row]]:
        """The first value of the dual of an average stage; others that wait for theirs take it too."""
        if shape not in self._first:
            others = [one for one in self._waiting if one != shape]
            taken = [shape, *others[: TOGETHER - 1]]
            self._waiting = [one for one in self._waiting if one not in taken]
            values = self._least([self._of_average(one) for one in taken])
            self._first |= {one: (s, rows()) for one, (s, rows) in zip(taken, values, strict=True)}
        return self._first[shape]

    def _average(self, shape: Shape) -> tuple[float, list[Row]]:
        ((value_s, rows),) = self._least([self._of_average(shape)])
        return value_s, rows()

    def _of_average(self, shape: Shape) -> _Asked:
        every = average_weights(self.setting.occurrences, [shape], np.zeros(1), math.inf)
        return self._asked(self._known[shape], np.array([getattr(every, name.name)[:, 0] for name in fields(Weights)]))

    def _in_cases(self, shape: Shape, bound_s: float) -> Iterator[float]:
        """The bounds of the shape from round to round, by what a stage holds."""
        known, shown = self._known[shape], dict[Case, float]()
        for _ in range(ROUNDS):
            layouts = [self._layout(row) for row in known]
            every = cases(layouts, self.setting.occurrences, shape, self.limit_B, bound_s, self.enough_s, shown)
            values = self._least([self._of_case(known, case) for case in every])
            shown |= {
                case: max(value_s, shown.get(case, value_s)) for case, (value_s, _) in zip(every, values, strict=True)
            }
            least_s, more = min(values, key=lambda pair: pair[0])
            before_s, bound_s = bound_s, max(bound_s, least_s)
            yield bound_s
            if bound_s < (1 + STEADY) * before_s or not (rows := more()):
                break
            known += rows

    def _of_case(self, known: Sequence[Row], case: Case) -> _Asked:
        """The bound of `case` that is asked for."""
        shape, costs = known[0].shape, [row.costs for row in known]
        weights = np.array(corner_weights(self.setting.occurrences, shape, case, sum(case.held[1:-1]), costs))
        weights[4] = [0.0, *(float(case.flight * n) for n in case.held[1:-1]), 0.0]
        return self._asked(known, weights)

    def _asked(self, known: Sequence[Row], weights: Array) -> _Asked:
        """The bound asked for: where the layouts `known`, whatever they make again, are as slow as can be (Kelley's method)."""
        lines = [self._line(row, weights) for row in known]
        owner = list(range(len(known)))
        for number, row in enumerate(known):
            for one in self.fronts.of(self._given_of(row)).values():
                lines.append(_further(lines[number], one, weights))
                owner.append(number)
        ratio = max((s / a for a, s in zip(weights[1], weights[4], strict=True) if a), default=0.0)
        for _ in range(PRICES):
            value, over = np.array(lines).T
            price = best_price(value, over, self.enough_s)
            at = [value_s + price * over_B for value_s, over_B in lines]
            least = min(range(len(lines)), key=at.__getitem__)
            row = known[owner[least]]
            found = self.fronts.at(self._given_of(row), price * ratio)
            lines.append(_further(lines[owner[least]], found, weights))
            owner.append(owner[least])
            value_s, over_B = lines[-1]
            if value_s + price * over_B >= at[least] - RISES * abs(at[least]):
                break
        return _Asked(row.member, weights, price, price * ratio, found.multipliers)

    def _line(self, row: Row, weights: Array) -> Line:
        """Nothing made again."""
        plain_s = row.costs.each_s @ weights[0] + row.costs.once_s @ weights[2]
        return float(plain_s), float(row.costs.kept_B @ weights[3] + row.costs.at_rest_B @ weights[5] - self.limit_B)

    def _least(self, asked: Sequence[_Asked]) -> list[tuple[float, Callable[[], list[Row]]]]:
        """The values of the duals, and the layouts of their minima, if there are any."""
        which = np.array([one.member for one in asked], dtype=np.intp)
        weights = Weights(*np.array([one.weights for one in asked]).transpose(1, 2, 0))
        price, block = (np.array([getattr(one, name) for one in asked]) for name in ("price_s_per_B", "block_s_per_B"))
        setting, multipliers = self.setting, np.array([one.multipliers for one in asked]).T
        gains = self.remaking.gains(block, multipliers, weights.again_s, which)
        tables = [*setting.tables.factors(0.0, price, weights, which), *gains]
        least = minimise(setting.problem.sizes, tables, setting.problem.order)
        values = least.value - price * self.limit_B - setting.slack_s[which]

        def rows(number: int) -> list[Row]:
            one = slice(number, number + 1)
            return setting.rows_of(which[one], least.assignment[one], values[one])

        return [(value_s, partial(rows, number)) for number, value_s in enumerate(values.tolist())]

    def _given_of(self, row: Row) -> Given:
        key = row.member, row.choice.tobytes()
        if key not in self._given:
            self._given[key] = self.remaking.given(row.choice.tolist(), row.member)
        return self._given[key]

    def _layout(self, row: Row) -> Layout:
        counts, parts = np.array(self.setting.occurrences), parts_of(row, self.depths)
        once_s = np.repeat(row.costs.once_s, counts).tolist()
        return replace(
            layout(parts, once_s),
            chain=SelectedChain(parts, np.repeat(self.fronts.levels(self._given_of(row)), counts, axis=1)),
        )
