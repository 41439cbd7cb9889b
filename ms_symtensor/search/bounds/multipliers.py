"""What one choice pays for another one that it implies, layout by layout: the multipliers of relaxed implications."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.bounds.given_layouts import Item

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Multipliers:
    """The multipliers of the implications `crossing`. `knows` is a variable that both tables of one depend on, -1 where there is
    none: each of its candidates has a multiplier; those of implication i stand from `starts[i]` to `starts[i + 1]`.
    """

    crossing: Sequence[tuple[Item, Item]]
    knows: NDArray[np.intp]
    starts: NDArray[np.intp]

    @property
    def number(self) -> int:
        """How many there are."""
        return int(self.starts[-1])

    def of(self, found: Sequence[tuple[Sequence[int] | NDArray[np.intp], Array]]) -> Array:
        """The multipliers [number] of layouts, each with the prices of its implications: their mean over those that have a
        candidate, or over all where none has it.
        """
        total, times = np.zeros(self.number), np.zeros(self.number)
        for choice, prices in found:
            mine = self.starts[:-1] + np.where(self.knows >= 0, np.asarray(choice)[self.knows], 0)
            total[mine] += prices
            times[mine] += 1
        mean = np.repeat(np.mean([prices for _, prices in found], axis=0), np.diff(self.starts))
        return np.where(times > 0, total / np.maximum(times, 1), mean)

    def paid(self, multipliers: Array) -> Callable[..., Array]:
        """What an item pays, less what it receives, as a table over a scope, for `multipliers` [number, members]."""
        paid: dict[Item, dict[int, Array]] = {}
        for place, (item, other) in enumerate(self.crossing):
            mine, known = multipliers[self.starts[place] : self.starts[place + 1]].T, int(self.knows[place])
            for whose, multiplier in ((item, mine), (other, -mine)):
                its = paid.setdefault(whose, {})
                its[known] = its[known] + multiplier if known in its else multiplier

        def pays(item: Item, *scope: int) -> Array:
            total = np.zeros(())
            for known, multiplier in paid.get(item, {}).items():
                total = total + multiplier.reshape(-1, *(multiplier.shape[1] if v == known else 1 for v in scope))
            return total

        return pays
