"""A lower bound of the step on one stage where blocks may make parts again: the Lagrangian dual with the tables of `remaking`.

    D(λ) = min over layouts of T + λ (M - limit) + gains(λ)        λ >= 0

for any multipliers of the gains. Price and multipliers are those at which given layouts are as slow as can be; then the layouts
of the minimum are given, until the bound rises no more.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ms_symtensor.search.bounds.given_layouts import Given, Remade
from ms_symtensor.search.bounds.remaking import Remaking
from ms_symtensor.search.one_stage.dual import Choice
from ms_symtensor.search.tables.problem import Problem
from ms_symtensor.search.tables.tables import factors, totals
from ms_symtensor.search.tables.terms import Terms, Weights

ROUNDS = 4
"""So often the layouts of the minimum are given again at most (empirical)."""

RISES = 1e-4
"""A round that raises the bound by less than this share is the last one (empirical)."""

MAX_PRICES = 12
"""Prices tried for given layouts; Kelley's method (1960) ends by itself after four to six (empirical)."""

EVERYTHING = 1e-6
"""A price of memory, in seconds per byte, that outweighs any time of a block: a second for a megabyte (empirical)."""


STEEP = 4.0
"""Where even the most that can be saved is too little, other layouts are looked for at so many times its price (empirical)."""


class Dearest(NamedTuple):
    """The price of a byte at which given layouts are the slowest; what memory and recomputation take there; and what is made
    again.
    """

    price_s_per_B: float
    more_s: float
    remade: Remade


def dearest(given: Given, missing_B: float, counts: Sequence[float], steep: float = STEEP) -> Dearest:
    """Where so many bytes must be saved; inf seconds, at a price `steep` times that of all that can be, if they cannot be.

    `counts`: how often every place is there.
    """

    def point(price: float) -> tuple[float, float, Remade]:
        found = given.at(price)
        return float(found.again_s @ np.array(counts)), float(found.saved_B @ np.array(counts)), found

    if missing_B <= 0:
        return Dearest(0.0, 0.0, point(0.0)[2])
    slim_s, slim_B, remade = point(EVERYTHING)
    if slim_B < missing_B:
        price = steep * slim_s / slim_B if slim_B else EVERYTHING
        return Dearest(price, math.inf, point(price)[2])
    fast_s = fast_B = price = 0.0
    more_s = 0.0
    for _ in range(MAX_PRICES):
        if slim_B <= fast_B:
            break
        price = (slim_s - fast_s) / (slim_B - fast_B)
        chord_s = fast_s + price * (missing_B - fast_B)
        again_s, saved_B, remade = point(price)
        more_s = again_s + price * (missing_B - saved_B)
        if more_s >= chord_s - 1e-9 * abs(chord_s):
            break
        if saved_B < missing_B:
            fast_s, fast_B = again_s, saved_B
        else:
            slim_s, slim_B = again_s, saved_B
    return Dearest(price, more_s, remade)


@dataclass
class SelectionDual:
    """The dual of problem `of` with the tables `parameters`; `bound_s` as far as it is known."""

    of: Problem
    remaking: Remaking
    parameters: Sequence[Terms]
    limit_B: int
    bound_s: float

    def raised(self, choice: Choice, enough_s: float) -> list[tuple[float, Choice]]:
        """Raise the bound, to `enough_s` at most, from the layouts `choice`; further layouts that may be faster than that, each
        with what it takes at least, fastest first.
        """
        met: dict[Choice, float] = {}
        for round_ in range(1, ROUNDS + 1):
            least_s, found = self._at(choice, STEEP**round_)
            met[choice] = least_s
            before_s = self.bound_s
            bound_s, choice = self._minimum(choice, found)
            self.bound_s = max(before_s, bound_s)
            is_higher = bound_s >= (1 + RISES) * before_s or math.isinf(least_s)
            # Layouts of which nothing fits are the minimum until memory is dear enough.
            is_known = choice in met and not math.isinf(met[choice])
            if self.bound_s >= enough_s or is_known or not is_higher:
                break
        return sorted((least_s, one) for one, least_s in met.items() if least_s < enough_s)

    def _at(self, choice: Choice, steep: float) -> tuple[float, Dearest]:
        """Seconds that a step with these layouts takes at least, inf where they do not fit; and the price at which it does."""
        plain = totals(self.of, list(self.parameters), choice)
        counts = [float(n) for n in self.of.places.occurrences]
        missing_B = plain.kept_B + plain.at_rest_B - self.limit_B
        found = dearest(self.remaking.given(choice), missing_B, counts, steep)
        return plain.plain_s + found.more_s, found

    def _minimum(self, choice: Choice, found: Dearest) -> tuple[float, Choice]:
        """The dual's value at a price, with the multipliers found there for `choice`, and its layouts."""
        price, only = np.array([found.price_s_per_B]), np.zeros(1, dtype=np.intp)
        again = Weights.plain(self.of.places.occurrences).again_s
        multipliers = self.remaking.of_implications.of([(choice, found.remade.prices)])
        gains = self.remaking.gains(price, multipliers[:, None], again, only)
        tables = [*factors(self.of, list(self.parameters), 0.0, price), *gains]
        least = self.of.least(tables)
        return float(least.value[0]) - found.price_s_per_B * self.limit_B, tuple(least.assignment[0].tolist())
