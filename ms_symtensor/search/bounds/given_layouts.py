"""What is made again where layouts are given: a closure of least weight, and the prices of its implications."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.folded.places import Counts
from ms_symtensor.search.selections.closure import PICOSECONDS, prices_of_implications

Array = NDArray[np.float64]
Item = tuple[str, int]
"""A variable of the closure: what it says, and the number of an operator, a tensor or a table of copies."""


class Remade(NamedTuple):
    """What is made again at one price: its seconds and the bytes that it saves [places], and the prices of the implications."""

    again_s: Array
    saved_B: Array
    prices: Array


@dataclass(frozen=True)
class Given:
    """The closure for given layouts: seconds, bytes (less than nothing: saved) and places of its items, and its implications."""

    seconds: Mapping[Item, float]
    size_B: Mapping[Item, float]
    counts: Mapping[Item, Counts]
    inside: Sequence[tuple[Item, Item]]
    crossing: Sequence[tuple[Item, Item]]
    places: int

    def at(self, price_s_per_B: float) -> Remade:
        """What is made again at this price."""
        weights = {
            item: round(PICOSECONDS * (self.seconds[item] + price_s_per_B * self.size_B[item])) for item in self.seconds
        }
        chosen, flows = prices_of_implications(weights, self.inside, self.crossing)
        places = np.array([self.counts[item] for item in chosen]).reshape(len(chosen), self.places).T
        again_s = places @ np.array([self.seconds[item] for item in chosen])
        saved_B = -(places @ np.array([self.size_B[item] for item in chosen]))
        return Remade(again_s, saved_B, np.array(flows) / PICOSECONDS)
