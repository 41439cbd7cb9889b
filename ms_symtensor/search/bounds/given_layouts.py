"""What is made again where layouts are given: a closure of least weight, and the prices of its implications."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
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


class Table(NamedTuple):
    """A table [members, candidates of every variable of `scope`], or one number for all."""

    table: Array
    scope: tuple[int, ...]


class Entries:
    """An entry of each of `every` table, 0 where there is none: the one that layouts have."""

    def __init__(self, every: Sequence[Table | None]) -> None:
        self._number = len(every)
        self._there = [number for number, one in enumerate(every) if one is not None]
        self._tables = [one.table for one in every if one is not None]
        axes = [(0, *(1 + v for v in one.scope))[: one.table.ndim] for one in every if one is not None]
        # Where an entry stands: sums of a member and candidates, each times what its axis counts; axes that are missing, nothing.
        self._axes = np.zeros((len(axes), max(map(len, axes), default=0)), dtype=np.intp)
        self._counts = np.zeros_like(self._axes)
        for place, (mine, table) in enumerate(zip(axes, self._tables, strict=True)):
            self._axes[place, : len(mine)] = mine
            self._counts[place, : len(mine)] = [prod(table.shape[axis + 1 :]) for axis in range(table.ndim)]

    def of(self, choice: Sequence[int], member: int) -> Array:
        """Those of the member of a family where every variable has the candidate of `choice`."""
        found = np.zeros(self._number)
        where = (np.array([member, *choice])[self._axes] * self._counts).sum(axis=1)
        found[self._there] = [table.item(at) for table, at in zip(self._tables, where.tolist(), strict=True)]
        return found


@dataclass(frozen=True)
class Closure:
    """The items of the closure, of which every layout has other seconds and bytes (less than nothing: saved), how often each is
    there [items, places], and what they imply.
    """

    seconds: Entries
    size_B: Entries
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
