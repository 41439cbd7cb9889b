"""Tables of one member of a family laid out in one row: what is asked for it alone is added up for all tables at once."""

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.tables.elimination import Factor
from ms_symtensor.search.tables.terms import Terms

Array = NDArray[np.float64]

LONGEST = 1 << 16
"""Entries of a row, 512 KiB of float64 (empirical: longer ones leave a core's cache)."""


class Sheets:
    """The tables `found`, of different scopes or counts, laid out member by member; the last member stays laid out."""

    def __init__(self, found: Sequence[Terms]) -> None:
        self._found = found
        first = {t.scope: i for i, t in reversed(list(enumerate(found)))}
        self._first = sorted(first.values())
        self._further = [(i, first[t.scope]) for i, t in enumerate(found) if first[t.scope] != i]
        self._sizes = np.array([math.prod(t.each_s.shape[1:]) for t in found])
        self._starts = np.zeros(len(found), dtype=np.intp)
        in_order = [*self._first, *(i for i, _ in self._further)]
        self._starts[in_order] = np.cumsum(self._sizes[in_order]) - self._sizes[in_order]
        self._length = int(self._sizes[self._first].sum())
        self._whole = int(self._sizes.sum())
        self._last: tuple[int, Array] | None = None

    def have(self, which: NDArray[np.intp]) -> bool:
        """Whether all of `which` are one member, whose row is short enough."""
        return self._whole <= LONGEST and len(which) > 0 and bool((which == which[0]).all())

    def factors(self, occurs: Sequence[Array | None], which: NDArray[np.intp]) -> list[Factor]:
        """For every scope the sum of its `Terms.weighted`, of which those of one kind `occurs` [tables, which] tells how often
        (None: never).
        """
        row = self._row(int(which[0]))
        counted = [(number, worth.T) for number, worth in enumerate(occurs) if worth is not None]
        total = np.zeros((len(which), self._length))
        for number, worth in counted:
            weight = np.repeat(worth[:, self._first], self._sizes[self._first], axis=1)
            total += np.multiply(weight, row[number, : self._length], out=weight)
        for i, first in self._further:
            start, size = self._starts[i], self._sizes[i]
            more = total[:, self._starts[first] : self._starts[first] + size]
            for number, worth in counted:
                more += worth[:, [i]] * row[number, start : start + size]
        return [
            Factor(t.scope, total[:, start : start + size].reshape(len(total), *t.each_s.shape[1:]))
            for i in self._first
            for t, start, size in ((self._found[i], self._starts[i], self._sizes[i]),)
        ]

    def values(self, assignment: NDArray[np.intp], which: NDArray[np.intp]) -> Array:
        """The entries of all tables of `Costs` [tables of one kind, found, which] at `assignment` [which, variables]."""
        variables, strides = self._strides
        at = self._starts + (assignment[:, variables] * strides).sum(axis=1)
        each, once, recomputation, kept, rest, _, kept_recomputed = self._row(int(which[0]))[:, at.T]
        return np.stack([each, recomputation, once, kept, kept_recomputed, rest])

    @cached_property
    def _strides(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The variables of every table, and how far apart their values lie in a row: [variables at most, tables]."""
        most = max((len(t.scope) for t in self._found), default=0)
        variables, strides = np.zeros((2, most, len(self._found)), dtype=np.intp)
        for i, t in enumerate(self._found):
            shape = t.each_s.shape[1:]
            for place, v in enumerate(t.scope):
                variables[place, i], strides[place, i] = v, math.prod(shape[place + 1 :])
        return variables, strides

    def _row(self, member: int) -> Array:
        """The tables of `Terms.weighted`, and the bytes kept with recomputation, of one member: [7, entries]."""
        if self._last is None or self._last[0] != member:
            row = np.zeros((7, self._whole))
            for t, start, size in zip(self._found, self._starts.tolist(), self._sizes.tolist(), strict=True):
                for number, table in (*t.weighted, *((6, table) for n, table in t.fixed if n == 4)):
                    row[number, start : start + size] = table[member].ravel()
            self._last = member, row
        return self._last[1]
