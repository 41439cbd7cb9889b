"""Bounds of shapes whose blocks may make parts again: Lagrangian duals with the tables of `remaking`, on stages.

    D = min over layouts of Σ shares · seconds + Σ prices · (bytes - limit) + gains

with shares (their sum is 1) of several times that a step takes at least, and a price for each of several limits: the `views` of
the shape, and, where these show too little, of cases of which one is true whatever the stages (`stage_cases`). Whatever shares,
prices and multipliers there are, D is no more than the seconds of any step that fits. They are those at which some layouts, each
with anything made again that is known of it, are as slow as can be.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cost.step import HCCL_BUFFER_B
from ms_symtensor.search.bounds.communicators import Communicators, communicators
from ms_symtensor.search.bounds.fronts import Fronts
from ms_symtensor.search.bounds.given_layouts import Given
from ms_symtensor.search.bounds.lines import Lines
from ms_symtensor.search.bounds.moments import Moments, moments
from ms_symtensor.search.bounds.prices import slowest
from ms_symtensor.search.bounds.remaking import Remaking
from ms_symtensor.search.bounds.users import User, needed_B, priced
from ms_symtensor.search.bounds.views import Views, of_case, of_shape
from ms_symtensor.search.folded.chain import SelectedChain, Turns
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.estimate import parts_of
from ms_symtensor.search.stages.rows import Row
from ms_symtensor.search.stages.stage_cases import Case, Layout, cases, layout
from ms_symtensor.search.stages.stage_layers import divided_chain, step_s
from ms_symtensor.search.stages.tried import Surveyed
from ms_symtensor.search.tables.elimination import Factor, minimise
from ms_symtensor.search.tables.terms import Weights

Array = NDArray[np.float64]

ROUNDS = 8
"""So often cases are made of what is known, each time with the layouts that were the best in the last ones (empirical)."""

STALLS = 2
"""So many rounds of cases in a row that raise a bound by nothing are its last ones (empirical)."""

AVERAGES = 4
"""So often the bound of a shape on stages is asked for before there are cases (empirical)."""

ALONE = 10
"""So often the bound of a shape of one stage is asked for, which has no cases (empirical)."""

PRICES = 6
"""So many prices are tried for a bound that is asked for; Kelley's method (1960) ends by itself after two to four (empirical)."""

TOGETHER = 8
"""So many shapes of one family take their first step together: that costs twice as much as one (empirical)."""

AGAIN = 8
"""So often the case that shows least is asked for again with what it has met (empirical)."""

POLISHED = 12
"""So often, where that is the last that can raise a bound (empirical)."""

STEADY = 1e-3
"""A bound that a round has raised by less than this share stays as it is (empirical)."""

SOLVED = 1e-5
"""So near a bound comes to what it can be where that is the last that can raise it (empirical)."""


@dataclass(frozen=True)
class _Asked:
    """A bound that is asked for: every place counts as `weights` say (a row for each field of `Weights`), in bytes times their
    prices; `worth` is that of the limits. What is made again counts so often in groups [groups, places], each of which pays a
    price for a byte beside a second of it, and for implications. No value is above `most_s`. `needed` [needs]: the price of a
    byte of what `users` need.
    """

    member: int
    weights: Array
    worth_s: float
    groups: Sequence[tuple[Array, float, Array]]
    most_s: float
    needed: Array
    users: Sequence[User]


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
        self.setting, self.free, self.fronts, self.depths = of.setting, of.free, fronts, depths
        self.limit_B, self.enough_s = limit_B, enough_s
        self._remaking = remaking
        self._known: dict[Shape, list[Row]] = {row.shape: [row] for row in of.free}
        for row in of.known:
            same = self._known.setdefault(row.shape, [])
            same += [row] if not _is_among(row, same) else []
        waiting = sorted((row for row in of.free if row.bound_s < enough_s), key=lambda row: row.bound_s)
        self._waiting = [row.shape for row in waiting if row.shape.interleave == 1]
        self._first: dict[Shape, tuple[float, list[Row], float]] = {}
        self._given: dict[tuple[int, bytes], Given] = {}
        self._users: dict[Shape, tuple[User, ...]] = {}

    @property
    def remaking(self) -> Remaking:
        """The closure of the blocks, written down once for all settings of a problem."""
        of = self.setting.problem
        if id(of) not in self._remaking:
            self._remaking[id(of)] = Remaking(of)
        return self._remaking[id(of)]

    @cached_property
    def communicators(self) -> Communicators:
        return communicators(self.setting.problem)

    @cached_property
    def moments(self) -> Moments:
        return moments(self.setting.problem, self.communicators.kind_of)

    def _needed_B(self, users: Sequence[User], row: Row) -> Array:
        """Bytes of what `users` need in the layouts of `row`, [needs]."""
        return needed_B(users, row.choice, 2 * self.communicators.kinds)

    def rising(self, row: Row) -> Iterator[float]:
        """The bounds of the shape of `row`, which holds where memory is free, from step to step."""
        shape, bound_s = row.shape, row.bound_s
        if shape.interleave > 1:
            return
        known, met = self._known[shape], list[Row]()
        for round_ in range(AVERAGES if shape.stages > 1 else ALONE):
            value_s, rows, most_s = self._first_step(shape) if round_ == 0 else self._average(shape, met)
            rises = value_s > (1 + STEADY) * bound_s
            bound_s = max(bound_s, value_s)
            known += [row for row in rows if not _is_among(row, known)]
            met += rows
            yield bound_s
            # On stages, cases show more.
            if not rows or value_s >= min(most_s, self.enough_s) * (1 - STEADY) or (shape.stages > 1 and not rises):
                break
        if shape.stages > 1:
            yield from self._in_cases(shape, bound_s)

    def steps(self, below_s: float) -> Iterator[tuple[float, Row]]:
        """All layouts in micro-batches that are known and as fast as `below_s`, with seconds of a step of each: on the best
        stages, if these made again just what lets them fit, but for what lives for a moment only.
        """
        for shape, rows in self._known.items():
            if not shape.accumulates or shape.interleave > 1:
                continue
            turns = Turns(shape.micro_batch_num)
            for row in rows:
                counts, c = np.array(self.setting.occurrences), row.costs
                even_s = [float(counts @ c.each_s) / shape.stages] * shape.stages
                if turns.step_s(even_s, float(counts @ c.once_s) / shape.stages) < below_s:
                    limits_B = [self._left_B([row])] * shape.stages
                    stages = divided_chain(self._layout(row).chain, limits_B, turns)
                    if stages is not None and (found_s := step_s(stages, turns)) < below_s:
                        yield found_s, row

    def _first_step(self, shape: Shape) -> tuple[float, list[Row], float]:
        """The first value of the dual without cases; others that wait for theirs take it too."""
        if shape not in self._first:
            others = [one for one in self._waiting if one != shape]
            taken = [shape, *others[: TOGETHER - 1]]
            self._waiting = [one for one in self._waiting if one not in taken]
            asked = [self._of_shape(one) for one in taken]
            for one, its, (value_s, rows) in zip(taken, asked, self._least(asked), strict=True):
                self._first[one] = value_s, rows(), its.most_s
        return self._first[shape]

    def _average(self, shape: Shape, met: Sequence[Row]) -> tuple[float, list[Row], float]:
        """Another value of it, after the layouts `met`."""
        asked = self._of_shape(shape, met)
        ((value_s, rows),) = self._least([asked])
        return value_s, rows(), asked.most_s

    def _of_shape(self, shape: Shape, met: Sequence[Row] = ()) -> _Asked:
        return self._asked(self._known[shape], self._views_of(shape), met)

    def _views_of(self, shape: Shape) -> Views:
        return of_shape(self.setting.occurrences, shape)

    def _room_B(self, shape: Shape) -> float:
        """Bytes that are left for what layouts need: what stages exchange has a communicator of its own."""
        return self.limit_B - (HCCL_BUFFER_B if shape.stages > 1 else 0)

    def _left_B(self, known: Sequence[Row]) -> float:
        """Those that any stage has left beside buffers that it certainly needs in any of these layouts."""
        shape = known[0].shape
        users = self._users_of(shape)
        kinds = self.communicators.kinds
        least_B = min(float(self._needed_B(users, row)[:kinds].min(initial=np.inf)) for row in known)
        return self._room_B(shape) - (least_B if np.isfinite(least_B) else 0.0)

    def _in_cases(self, shape: Shape, bound_s: float) -> Iterator[float]:
        """The bounds of the shape from round to round, by what a stage holds."""
        known, shown = self._known[shape], dict[Case, float]()
        stalled, best = 0, tuple[Case, ...]()
        for round_ in range(ROUNDS):
            layouts = [self._layout(row) for row in known]
            every = cases(layouts, self.setting.occurrences, shape, self._left_B(known), bound_s, self.enough_s, shown)
            values = self._of_cases(known, every, AGAIN, STEADY)
            shown |= {case: max(value_s, shown.get(case, value_s)) for case, value_s in values.items()}
            before_s, bound_s = bound_s, max(bound_s, min(values.values()))
            best = every if bound_s > before_s else best
            yield bound_s
            # The first cases are made of what was known without any.
            stalled = stalled + 1 if round_ and bound_s < (1 + STEADY) * before_s else 0
            if stalled == STALLS:
                break
        if best:
            yield max(bound_s, min(self._of_cases(known, best, POLISHED, SOLVED).values()))

    def _of_cases(self, known: list[Row], every: Sequence[Case], again: int, near: float) -> dict[Case, float]:
        """The bounds of cases, the least of them asked for again where that may raise it, so often, or until it is so near to
        what it can be; `known` grows by what they meet.
        """
        asked = [self._of_case(known, case) for case in every]
        found = self._least(asked)
        values = [value_s for value_s, _ in found]
        met: dict[int, list[Row]] = {}
        for _ in range(again):
            least = min(range(len(every)), key=values.__getitem__)
            rows = found[least][1]()
            if not rows or values[least] >= min(asked[least].most_s, self.enough_s) * (1 - near):
                break
            known += [row for row in rows if not _is_among(row, known)]
            met.setdefault(least, []).extend(rows)
            asked[least] = self._of_case(known, every[least], met[least])
            (found[least],) = self._least([asked[least]])
            values[least] = max(values[least], found[least][0])
        return dict(zip(every, values, strict=True))

    def _of_case(self, known: Sequence[Row], case: Case, met: Sequence[Row] = ()) -> _Asked:
        """The bound of `case` that is asked for."""
        shape = known[0].shape
        return self._asked(known, of_case(self.setting.occurrences, shape, case), met)

    def _asked(self, known: Sequence[Row], views: Views, met: Sequence[Row] = ()) -> _Asked:
        """The bound asked for: where the layouts `known`, whatever they make again, are as slow as can be (Kelley's method)."""
        shape = known[0].shape
        room_B, users = self._room_B(shape), self._users_of(shape)
        lines = Lines(views, room_B)
        for row in known:
            needed_B = self._needed_B(users, row)
            nothing = np.zeros((1, 2, len(self.setting.occurrences)))
            same = [(one.again_s, one.saved_B) for one in self.fronts.of(self._given_of(row)).values()]
            remade = np.concatenate([nothing, np.array(same).reshape(-1, *nothing.shape[1:])])
            lines.add(row, np.stack([remade, remade], axis=1), needed_B)
            lines.add(row, np.stack([remade[1:], np.zeros_like(remade[1:])], axis=1), needed_B)
        for _ in range(PRICES):
            seconds, over = lines.arrays()
            shares, prices = slowest(seconds, over, self.enough_s)
            at = seconds @ shares + over @ prices
            least = int(np.argmin(at))
            row = lines.rows[least]
            of_again, of_saved = views.seconds.transpose(1, 0, 2)[1:3], views.size_B.transpose(1, 0, 2)[1:3]
            groups, remade = self._remade(row, shares @ of_again, prices @ of_saved)
            lines.add(row, remade[None], self._needed_B(users, row))
            more_s, more_B = lines.last()
            most_s = float(more_s @ shares + more_B @ prices)
            if most_s >= at[least] - STEADY * abs(at[least]):
                break
        groups = [(where, rate, self._multipliers([row, *met], rate)) for where, rate, _ in groups] if met else groups
        each, here_s, elsewhere_s, once = np.tensordot(shares, views.seconds, 1)
        kept, here_B, elsewhere_B, rest = np.tensordot(prices, views.size_B, 1)
        again, saved = here_s + elsewhere_s, here_B + elsewhere_B
        weights, worth_s = np.array([each, again, once, kept, saved, rest]), float(prices.sum() * room_B)
        return _Asked(row.member, weights, worth_s, groups, most_s, prices @ views.there, users)

    def _users_of(self, shape: Shape) -> tuple[User, ...]:
        """What operators need: in buffers by the layouts that are known when it is asked for first."""
        if shape not in self._users:
            known = self._known[shape]
            buffers = self.communicators.users([row.choice for row in known], known[0].member)
            self._users[shape] = buffers + self.moments.users(known[0].member)
        return self._users[shape]

    def _remade(self, row: Row, again: Array, saved: Array) -> tuple[list[tuple[Array, float, Array]], Array]:
        """What the layouts of `row` make again in the run, and elsewhere, where every place counts so much [2, places]: in groups
        of equal prices of a byte, and of all of them [2, (seconds, bytes), places].
        """
        rates = np.where(again > 0, saved / np.where(again > 0, again, 1.0), 0.0)
        groups, remade = [], np.zeros((2, *again.shape))
        for where, counted, total in zip(rates, again, remade, strict=True):
            for rate in sorted({float(rate) for rate in where if rate > 0}):
                found = self.fronts.at(self._given_of(row), rate)
                groups.append((np.where(where == rate, counted, 0.0), rate, self._multipliers([row], rate)))
                total += (where == rate) * np.array([found.again_s, found.saved_B])
        return groups, remade

    def _multipliers(self, rows: Sequence[Row], rate: float) -> Array:
        """Those of these layouts."""
        return self.remaking.of_implications.of(
            [(row.choice, self.fronts.at(self._given_of(row), rate).prices) for row in rows]
        )

    def _least(self, asked: Sequence[_Asked]) -> list[tuple[float, Callable[[], list[Row]]]]:
        """The values of the duals, and the layouts of their minima, if there are any."""
        which = np.array([one.member for one in asked], dtype=np.intp)
        weights = Weights(*np.array([one.weights for one in asked]).transpose(1, 2, 0))
        setting = self.setting
        tables = [*setting.tables.factors(0.0, np.ones(len(which)), weights, which)]
        for number in range(max(len(one.groups) for one in asked)):
            tables += self._gains(asked, number, which)
        tables += priced([one.needed for one in asked], [one.users for one in asked])
        least = minimise(setting.problem.sizes, tables, setting.problem.order)
        values = least.value - np.array([one.worth_s for one in asked]) - setting.slack_s[which]

        def rows(number: int) -> list[Row]:
            one = slice(number, number + 1)
            return setting.rows_of(which[one], least.assignment[one], values[one])

        return [(value_s, partial(rows, number)) for number, value_s in enumerate(values.tolist())]

    def _gains(self, asked: Sequence[_Asked], number: int, which: NDArray[np.intp]) -> Iterator[Factor]:
        """The tables of what the groups with this number gain."""
        none = np.zeros(len(self.setting.occurrences)), 0.0, np.zeros(self.remaking.of_implications.number)
        mine = [one.groups[number] if number < len(one.groups) else none for one in asked]
        counted, rates, multipliers = zip(*mine, strict=True)
        return self.remaking.gains(np.array(rates), np.array(multipliers).T, np.array(counted).T, which)

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


def _is_among(row: Row, known: Sequence[Row]) -> bool:
    return any(np.array_equal(row.choice, other.choice) for other in known)
