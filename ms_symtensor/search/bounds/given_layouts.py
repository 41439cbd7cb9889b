"""What is made again where layouts are given: a closure of least weight, and the prices of its implications."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.selections.closure import PICOSECONDS, Closures

Array = NDArray[np.float64]
Item = tuple[str, int]
"""A variable of the closure: what it says, and the number of an operator, a tensor or a table of copies."""


class Remade(NamedTuple):
    """What is made again at one price: its seconds and the bytes that it saves [places], and the prices of the implications."""

    again_s: Array
    saved_B: Array
    prices: Array


@dataclass(frozen=True)
class Table:
    """A table [members, candidates of every variable of `scope`], or one number for all."""

    table: Array
    scope: tuple[int, ...]

    def value(self, choice: Sequence[int], member: int) -> float:
        at = (member, *(choice[v] for v in self.scope))
        return float(self.table[at] if self.table.ndim else self.table)


@dataclass(frozen=True)
class Closure:
    """The items of the closure, of which every layout has other seconds and bytes (None: none; less than nothing: saved), how
    often each is there [items, places], and what they imply.
    """

    seconds: Sequence[Table | None]
    size_B: Sequence[Table | None]
    counts: NDArray[np.int_]
    closures: Closures


@dataclass(frozen=True, eq=False)
class Given:
    """The closure for given layouts: seconds and bytes of its items."""

    closure: Closure
    seconds: Array
    size_B: Array

    @property
    def places(self) -> int:
        return self.closure.counts.shape[1]

    @cached_property
    def costs(self) -> tuple[bytes, bytes]:
        """All that tells these layouts from others."""
        return self.seconds.tobytes(), self.size_B.tobytes()

    def at(self, price_s_per_B: float) -> Remade:
        """What is made again at this price."""
        weights = np.rint(PICOSECONDS * (self.seconds + price_s_per_B * self.size_B))
        chosen, flows = self.closure.closures.least(list(map(int, weights.tolist())))
        places = self.closure.counts[chosen].T
        again_s, saved_B = places @ self.seconds[chosen], -(places @ self.size_B[chosen])
        return Remade(again_s, saved_B, np.array(flows) / PICOSECONDS)
