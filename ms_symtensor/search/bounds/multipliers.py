"""What one choice pays for another one that it implies, layout by layout: the multipliers of relaxed implications."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.bounds.given_layouts import Item

Array = NDArray[np.float64]

LATER = 4
"""The n-th layout that is met mostly counts n to this power: the first ones tell little (empirical)."""


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
        return np.cumsum([0, *self._each])

    @cached_property
    def _each(self) -> NDArray[np.intp]:
        """How many there are of every implication."""
        found: NDArray[np.intp] = self.sizes.prod(axis=1)
        return found

    @property
    def number(self) -> int:
        """How many there are."""
        return int(self.starts[-1])

    def of(self, found: Sequence[tuple[Sequence[int] | NDArray[np.intp], Array]], later: float = LATER) -> Array:
        """The multipliers [number] of layouts, each with the prices of its implications: their mean over those that have the
        candidates, or over all where none has them; the n-th that was met counts n to the power `later`.
        """
        if len(found) == 1:  # the mean is its own prices, whatever its candidates
            return np.repeat(found[0][1], self._each)
        total, times = np.zeros(self.number), np.zeros(self.number)
        counts = [float(number**later) for number in range(1, len(found) + 1)]
        for count, (choice, prices) in zip(counts, found, strict=True):
            first, second = np.where(self.knows >= 0, np.asarray(choice)[self.knows], 0).T
            mine = self.starts[:-1] + first * self.sizes[:, 1] + second
            total[mine] += count * prices
            times[mine] += count
        mean = np.repeat(np.average([prices for _, prices in found], axis=0, weights=counts), self._each)
        return np.where(times > 0, total / np.maximum(times, 1), mean)

    def of_item(
        self, item: Item, scope: Sequence[int], shape: Sequence[int]
    ) -> Iterator[tuple[float, NDArray[np.intp]]]:
        """The multipliers that `item` pays (1) and receives (-1): for each which one it is, as a table over `scope`."""
        for place, sign in self._implications[item]:
            first, second = self.knows[place].tolist()
            numbers = self.starts[place] + np.arange(self.sizes[place].prod()).reshape(self.sizes[place])
            known = {first: numbers.shape[0], second: numbers.shape[1]}
            if min(first, second) >= 0 and scope.index(first) > scope.index(second):
                numbers = numbers.T
            yield sign, np.broadcast_to(numbers.reshape([known.get(v, 1) for v in scope]), shape)

    @cached_property
    def _implications(self) -> Mapping[Item, list[tuple[int, float]]]:
        """Those of every item, with 1 where it pays and -1 where it receives."""
        found: dict[Item, list[tuple[int, float]]] = defaultdict(list)
        for place, (payer, receiver) in enumerate(self.crossing):
            found[payer].append((place, 1.0))
            found[receiver].append((place, -1.0))
        return found
