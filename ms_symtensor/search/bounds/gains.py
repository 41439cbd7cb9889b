"""Tables of what is gained at most, written down end to end: for any prices and multipliers they are sums of a few long arrays.

A table is the least of nothing and of two ways, with what its items pay:

    min(0, min(either, other + paid for the other) + paid)

A way takes seconds and bytes, and these have a price. Tables over the same variables are added up.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ms_symtensor.search.bounds.given_layouts import Item
from ms_symtensor.search.bounds.multipliers import Multipliers
from ms_symtensor.search.folded.places import Counts
from ms_symtensor.search.tables.elimination import Factor

Array = NDArray[np.float64]
Shape = tuple[int, ...]


class Way(NamedTuple):
    """Tables [members, candidates of the first variables of a scope], or a number for all."""

    seconds: Array = np.zeros(())
    size_B: Array = np.zeros(())


NOTHING = Way()


@dataclass(frozen=True)
class Gain:
    """A table over `scope` that is there so often at every place; `for_other` and `paid`: the items that pay for the other way,
    if there is one, and for both.
    """

    scope: tuple[int, ...]
    counts: Counts
    either: Way
    other: Way | None = None
    for_other: tuple[Item, ...] = ()
    paid: tuple[Item, ...] = ()


class Gains:
    """The tables `every`, in which variable v has `sizes[v]` candidates, on the `members` of a family."""

    def __init__(self, every: Sequence[Gain], multipliers: Multipliers, sizes: Sequence[int], members: int) -> None:
        every = sorted(every, key=lambda one: one.other is None)  # other ways stand for the first ones
        scopes = [one.scope for one in every]
        shapes = [tuple(sizes[v] for v in scope) for scope in scopes]
        others = [one.other for one in every if one.other is not None]
        self._either = _written([one.either for one in every], shapes, members)
        self._other = _written(others, shapes, members)
        self._for_other = _Paid([one.for_other for one in every][: len(others)], scopes, shapes, multipliers)
        self._paid = _Paid([one.paid for one in every], scopes, shapes, multipliers)
        self._lengths = np.array([prod(shape) for shape in shapes], dtype=np.intp)
        self._counts = np.array([one.counts for one in every])
        self._scopes: dict[tuple[int, ...], tuple[slice, Shape]] = {}
        end = 0
        for scope, shape in zip(scopes, shapes, strict=True):
            if scope not in self._scopes:
                self._scopes[scope] = slice(end, end := end + prod(shape)), shape
        self._target = np.concatenate(
            [np.arange(self._scopes[scope][0].start, self._scopes[scope][0].stop) for scope in scopes]
        )

    def factors(
        self, price_s_per_B: Array, multipliers: Array, again: Array, which: NDArray[np.intp]
    ) -> Iterator[Factor]:
        """As of `Remaking.gains`."""
        either, other = (
            way.seconds[which] + price_s_per_B[:, None] * way.size_B[which] for way in (self._either, self._other)
        )
        few = other.shape[1]
        either[:, :few] = np.minimum(either[:, :few], other + self._for_other.of(multipliers))
        gained = np.minimum(0.0, either + self._paid.of(multipliers))
        gained *= np.repeat((self._counts @ again).T, self._lengths, axis=1)
        total = np.array([np.bincount(self._target, weights=one) for one in gained])
        starts = [where.start for where, _ in self._scopes.values()]
        counts = np.logical_or.reduceat(total.any(axis=0), starts)
        for (scope, (where, shape)), is_there in zip(self._scopes.items(), counts.tolist(), strict=True):
            if is_there:
                yield Factor(scope, total[:, where].reshape(-1, *shape))


class _Paid:
    """What items pay, less what they receive, in all entries of tables one after the other."""

    def __init__(
        self,
        every: Sequence[Sequence[Item]],
        scopes: Sequence[tuple[int, ...]],
        shapes: Sequence[Shape],
        multipliers: Multipliers,
    ) -> None:
        entries, numbers = ([np.zeros(0, dtype=np.intp)] for _ in range(2))
        signs = [np.zeros(0)]
        end = 0
        for items, scope, shape in zip(every, scopes, shapes, strict=False):
            mine = np.arange(end, end := end + prod(shape))
            for sign, number in (one for item in items for one in multipliers.of_item(item, scope, shape)):
                entries.append(mine)
                numbers.append(number.ravel())
                signs.append(np.full(len(mine), sign))
        where = np.concatenate(entries), np.concatenate(numbers)
        self._signs = csr_array((np.concatenate(signs), where), shape=(end, multipliers.number), dtype=float)

    def of(self, multipliers: Array) -> Array:
        """For `multipliers` [number, problems]: [problems, entries]."""
        found: Array = self._signs @ multipliers
        return found.T


def _written(ways: Sequence[Way], shapes: Sequence[Shape], members: int) -> Way:
    """The tables of `ways` over so many candidates, one after the other [members, entries]."""
    found = Way(*(np.zeros((members, sum(map(prod, shapes[: len(ways)])))) for _ in Way._fields))
    end = 0
    for way, shape in zip(ways, shapes, strict=False):
        mine = slice(end, end := end + prod(shape))
        for table, entries in zip(way, found, strict=True):
            last = (1,) * (1 + len(shape) - table.ndim) if table.ndim else ()
            entries[:, mine].reshape(members, *shape)[:] = table.reshape((*table.shape, *last))
    return found
