"""What one choice pays for another one that it implies, layout by layout: the multipliers of relaxed implications."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.bounds.given_layouts import Item

Array = NDArray[np.float64]

LATER = 4
"""The n-th layout that is met counts as n to this power: the first ones tell little (empirical)."""


@dataclass(frozen=True)
class Multipliers:
    """The multipliers of the implications `crossing`. `knows` [implications, 2]: variables that both tables of one depend on, -1
    where there are fewer; every pair of their candidates, of which there are `sizes` [implications, 2], has a multiplier. Those
    of implication i stand from `starts[i]` to `starts[i + 1]`.
    """

    crossing: Sequence[tuple[Item, Item]]
    knows: NDArray[np.intp]
    sizes: NDArray[np.intp]

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        return np.cumsum([0, *self.sizes.prod(axis=1)])

    @property
    def number(self) -> int:
        """How many there are."""
        return int(self.starts[-1])

    def of(self, found: Sequence[tuple[Sequence[int] | NDArray[np.intp], Array]]) -> Array:
        """The multipliers [number] of layouts, each with the prices of its implications: their mean over those that have the
        candidates, or over all where none has them; the later a layout was met, the more it counts.
        """
        total, times = np.zeros(self.number), np.zeros(self.number)
        counts = [float(number**LATER) for number in range(1, len(found) + 1)]
        for count, (choice, prices) in zip(counts, found, strict=True):
            first, second = np.where(self.knows >= 0, np.asarray(choice)[self.knows], 0).T
            mine = self.starts[:-1] + first * self.sizes[:, 1] + second
            total[mine] += count * prices
            times[mine] += count
        mean = np.repeat(np.average([prices for _, prices in found], axis=0, weights=counts), np.diff(self.starts))
        return np.where(times > 0, total / np.maximum(times, 1), mean)

    def paid(self, multipliers: Array) -> Callable[..., Array]:
        """What an item pays, less what it receives, as a table over a scope, for `multipliers` [number, members]."""
        paid: dict[Item, dict[tuple[int, int], Array]] = {}
        for place, (item, other) in enumerate(self.crossing):
            mine = multipliers[self.starts[place] : self.starts[place + 1]].T.reshape(-1, *self.sizes[place])
            first, second = map(int, self.knows[place])
            for whose, multiplier in ((item, mine), (other, -mine)):
                its = paid.setdefault(whose, {})
                its[first, second] = its[first, second] + multiplier if (first, second) in its else multiplier

        def pays(item: Item, *scope: int) -> Array:
            total = np.zeros(())
            for (first, second), multiplier in paid.get(item, {}).items():
                known = {first: multiplier.shape[1], second: multiplier.shape[2]}
                is_turned = min(first, second) >= 0 and scope.index(first) > scope.index(second)
                table = multiplier.transpose(0, 2, 1) if is_turned else multiplier
                total = total + table.reshape(-1, *(known.get(v, 1) for v in scope))
            return total

        return pays
