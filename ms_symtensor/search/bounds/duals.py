"""Lagrangian duals of steps whose blocks may make parts again, with the tables of `remaking`.

    D = min over layouts of Σ shares · seconds + Σ prices · (bytes - limit) + gains

with shares (their sum is 1) of several times that a step takes at least, and a price for each of several limits: the `views` of
what is asked about. Whatever shares, prices and multipliers there are, D is no more than the seconds of any step that fits. They
are those at which some layouts, each with anything made again that is known of it, are as slow as can be.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cost.step import HCCL_BUFFER_B
from ms_symtensor.search.bounds.branches import EVERY, Branch, forbidden
from ms_symtensor.search.bounds.communicators import Communicators
from ms_symtensor.search.bounds.fronts import Fronts
from ms_symtensor.search.bounds.given_layouts import Given
from ms_symtensor.search.bounds.lines import Lines
from ms_symtensor.search.bounds.moments import Moments, moments
from ms_symtensor.search.bounds.multipliers import LATER
from ms_symtensor.search.bounds.prices import rounded_up, slowest
from ms_symtensor.search.bounds.remaking import Remaking
from ms_symtensor.search.bounds.users import User, needed_B, priced
from ms_symtensor.search.bounds.views import Views
from ms_symtensor.search.folded.chain import Chain
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.estimate import chain_of
from ms_symtensor.search.stages.rows import Row, Setting
from ms_symtensor.search.tables.elimination import Factor
from ms_symtensor.search.tables.terms import Weights

Array = NDArray[np.float64]

PRICES = 6
"""So many prices are tried for a bound that is asked for; Kelley's method (1960) mostly ends by itself after two to four
(empirical)."""

OF_LIMIT = 2
"""Or so many for each limit, where those are more (empirical)."""

STEPS = (0.125, 0.25, 0.5, 1.0)
"""So far multipliers go from those that showed most to those of layouts that are met; all are tried together (empirical)."""

ORDERS = (0.0, 1.0, 2.0, 8.0)
"""Other powers than LATER, for how much later layouts count among those that were met (empirical)."""

STEADY = 1e-3
"""A bound that a round has raised by less than this share stays as it is (empirical)."""


@dataclass(frozen=True)
class Asked:
    """A bound that is asked for: every place counts as `weights` say (a row for each field of `Weights`), in bytes times their
    prices; `worth` is that of the limits. What is made again counts so often in groups [groups, places], each of which pays a
    price for a byte beside a second of it, and for implications. No value is above `most_s`. `needed` [needs]: the price of a
    byte of what `users` need. Only layouts of the `branch` count.
    """

    number: int
    weights: Array
    worth_s: float
    groups: Sequence[tuple[Array, float, Array]]
    most_s: float
    needed: Array
    users: Sequence[User]
    branch: Branch = EVERY


class Duals:
    """The duals of one setting, those of every shape up to `enough_s`. `known`: the layouts of it that are known."""

    def __init__(
        self,
        setting: Setting,
        known: Mapping[Shape, Sequence[Row]],
        fronts: Fronts,
        depths: tuple[int, ...],
        limit_B: float,
        enough_s: Mapping[Shape, float],
    ) -> None:
        self.setting, self.fronts, self.depths, self.limit_B, self.enough_s = setting, fronts, depths, limit_B, enough_s
        self._known = known
        self._given: dict[tuple[int, bytes], Given] = {}
        self._users: dict[Shape, tuple[User, ...]] = {}
        self._chains: dict[tuple[int, bytes], tuple[int, Chain]] = {}
        self._lines: dict[Views, Lines] = {}

    @property
    def remaking(self) -> Remaking:
        """The closure of the blocks."""
        return self.fronts.remaking(self.setting.problem)

    @property
    def communicators(self) -> Communicators:
        """The groups that are used in the blocks."""
        return self.fronts.communicators(self.setting.problem)

    @cached_property
    def moments(self) -> Moments:
        return moments(self.setting.problem, self.communicators.kind_of)

    def _needed_B(self, users: Sequence[User], rows: Sequence[Row]) -> Array:
        """Bytes of what `users` need in the layouts of `rows`, [rows, needs]."""
        return needed_B(users, np.array([row.choice for row in rows]), self.communicators.kinds)

    def ask(self, known: Sequence[Row], views: Views, met: Sequence[Row] = ()) -> Asked:
        """The bound asked for: where the layouts `known`, whatever they make again, are as slow as can be (Kelley's method)."""
        shape = known[0].shape
        room_B, users, lines = self._room_B(shape), self.users_of(shape), self.lines(known, views)
        of_again, of_saved = views.seconds.transpose(1, 0, 2)[1:-1], views.size_B.transpose(1, 0, 2)[1:-1]
        best_s = -np.inf
        for _ in range(max(PRICES, OF_LIMIT * len(views.size_B))):
            seconds, over = lines.arrays()
            shares, prices = slowest(seconds, over, self.enough_s[shape])
            at = seconds @ shares + over @ prices
            least = int(np.argmin(at))
            # What the slowest known layouts make again at these prices, and so do those that were the best in spite of them.
            most_s = np.inf
            for one in {_key(one): one for one in (lines.rows[least], *met)}.values():
                its_groups, remade = self._remade(one, shares @ of_again, prices @ of_saved)
                lines.add(one, remade, self._needed_B(users, [one])[0])
                more_s, more_B = lines.last()
                if (value_s := float(more_s @ shares + more_B @ prices)) < most_s:
                    most_s, row, groups = value_s, one, its_groups
            if most_s > best_s:
                best_s, best = most_s, (shares, prices, row, groups)
            if best_s >= at[least] - STEADY * abs(at[least]):
                break
        shares, prices, row, groups = best
        groups = [(where, rate, self._multipliers([row, *met], rate)) for where, rate, _ in groups] if met else groups
        each, *again_s, once = np.tensordot(shares, views.seconds, 1)
        kept, *saved_B, rest = np.tensordot(prices, views.size_B, 1)
        again, saved = np.sum(again_s, axis=0), np.sum(saved_B, axis=0)
        weights, worth_s = np.array([each, again, once, kept, saved, rest]), float(prices.sum() * room_B)
        return Asked(row.number, weights, worth_s, groups, best_s, prices @ views.there, users)

    def towards(self, asked: Asked, row: Row) -> list[Asked]:
        """As it was `asked`, with multipliers some of the way to those of `row`, for which a bound is as high as it can be."""
        ends = [(where, rate, mine, self._multipliers([row], rate)) for where, rate, mine in asked.groups]
        return [
            replace(asked, groups=[(where, rate, (1 - far) * mine + far * its) for where, rate, mine, its in ends])
            for far in STEPS
        ]

    def in_orders(self, asked: Asked, met: Sequence[Row]) -> list[Asked]:
        """As it was `asked`, with multipliers of all layouts `met`, of which later ones count more than first ones, or not."""
        found = []
        for later in ORDERS:
            groups = [(where, rate, self._multipliers(met, rate, later)) for where, rate, _ in asked.groups]
            found.append(replace(asked, groups=groups))
        return found

    def lines(self, known: Sequence[Row], views: Views) -> Lines:
        """The layouts `known`, each with anything made again that is known of it. If these are all of a shape, their lines stay
        for the next time, with those that were added.
        """
        shape = known[0].shape
        if known is not self._known[shape]:
            return self._with(known, Lines(views, self._room_B(shape)))
        if views not in self._lines:
            self._lines[views] = Lines(views, self._room_B(shape))
        return self._with(known, self._lines[views])

    def _with(self, known: Sequence[Row], lines: Lines) -> Lines:
        """`lines` with what is new of the layouts `known`."""
        tables = [(row, self.fronts.known(self._given_of(row))) for row in known]
        new = [(row, table) for row, table in tables if lines.knows(row) < len(table)]
        if new:
            beside_B = self._needed_B(self.users_of(known[0].shape), [row for row, _ in new])
            for (row, table), its_B in zip(new, beside_B, strict=True):
                lines.learn(row, table, its_B)
        return lines

    def users_of(self, shape: Shape) -> tuple[User, ...]:
        """What operators need: in buffers by the layouts that are known when it is asked for first."""
        if shape not in self._users:
            known = self._known[shape]
            buffers = self.communicators.users([row.choice for row in known], known[0].member)
            self._users[shape] = buffers + self.moments.users(known[0].member)
        return self._users[shape]

    def _remade(self, row: Row, again: Array, saved: Array) -> tuple[list[tuple[Array, float, Array]], Array]:
        """What the layouts of `row` make again in the runs of the stage, and elsewhere, where every place counts so much
        [(runs, elsewhere), places]: in groups of equal prices of a byte, and of all of them [(runs, elsewhere), (seconds, bytes),
        places].
        """
        rates = rounded_up(np.where(again > 0, saved / np.where(again > 0, again, 1.0), 0.0))
        groups, remade = [], np.zeros((len(again), 2, again.shape[1]))
        for rate in sorted({float(rate) for rate in rates.flat if rate > 0}):
            found, mine = self.fronts.at(self._given_of(row), rate), rates == rate
            groups.append((np.where(mine, again, 0.0).sum(axis=0), rate, self._multipliers([row], rate)))
            remade += mine[:, None] * np.array([found.again_s, found.saved_B])
        return groups, remade

    def _multipliers(self, rows: Sequence[Row], rate: float, later: float = LATER) -> Array:
        """Those of these layouts."""
        found = [(row.choice, self.fronts.at(self._given_of(row), rate).prices) for row in rows]
        return self.remaking.of_implications.of(found, later)

    def least(self, asked: Sequence[Asked]) -> list[tuple[float, Callable[[], list[Row]]]]:
        """The values of the duals, and the layouts of their minima, if there are any."""
        which = np.array([one.number for one in asked], dtype=np.intp)
        weights = Weights(*np.array([one.weights for one in asked]).transpose(1, 2, 0))
        setting = self.setting
        tables = [*setting.tables.factors(0.0, np.ones(len(which)), weights, setting.members[which])]
        for number in range(max(len(one.groups) for one in asked)):
            tables += self._gains(asked, number, setting.members[which])
        tables += priced([one.needed for one in asked], [one.users for one in asked])
        tables += forbidden([one.branch for one in asked], setting.problem.sizes)
        least = setting.problem.least(tables)
        values = least.value - np.array([one.worth_s for one in asked]) - setting.slack_s[which]

        def rows(number: int) -> list[Row]:
            one = slice(number, number + 1)
            return setting.rows_of(which[one], least.assignment[one], values[one])

        return [(value_s, partial(rows, number)) for number, value_s in enumerate(values.tolist())]

    def _gains(self, asked: Sequence[Asked], number: int, which: NDArray[np.intp]) -> Iterator[Factor]:
        """The tables of what the groups with this number gain."""
        none = np.zeros(len(self.setting.occurrences)), 0.0, np.zeros(self.remaking.of_implications.number)
        mine = [one.groups[number] if number < len(one.groups) else none for one in asked]
        counted, rates, multipliers = zip(*mine, strict=True)
        return self.remaking.gains(np.array(rates), np.array(multipliers).T, np.array(counted).T, which)

    def _given_of(self, row: Row) -> Given:
        key = _key(row)
        if key not in self._given:
            self._given[key] = self.remaking.given(row.choice.tolist(), row.member)
        return self._given[key]

    def chain(self, row: Row) -> Chain:
        """The parts of `row`, which make again what is known by now."""
        given, key = self._given_of(row), _key(row)
        if key not in self._chains or self._chains[key][0] < len(self.fronts.known(given)):
            levels = self.fronts.levels(given)
            self._chains[key] = len(self.fronts.known(given)), chain_of(row, self.depths, levels)
        return self._chains[key][1]

    def _room_B(self, shape: Shape) -> float:
        """Bytes that are left for what layouts need: what stages exchange has a communicator of its own."""
        return self.limit_B - (HCCL_BUFFER_B if shape.stages > 1 else 0)

    def left_B(self, known: Sequence[Row]) -> float:
        """Those that any stage has left beside buffers that it certainly needs in any of these layouts."""
        shape = known[0].shape
        users = self.users_of(shape)
        kinds = self.communicators.kinds
        least_B = float(self._needed_B(users, known)[:, :kinds].min(initial=np.inf))
        return self._room_B(shape) - (least_B if np.isfinite(least_B) else 0.0)


def _key(row: Row) -> tuple[int, bytes]:
    return row.member, row.choice.tobytes()
