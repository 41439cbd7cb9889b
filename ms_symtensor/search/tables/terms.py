"""Tables of the search: what a choice of candidates costs, over the variables that it depends on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.folded.places import Counts

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Terms:
    """Tables over one scope, for one occurrence: [members of the family, candidates of scope[0], …].

    `counts`: how often it occurs at every place (`Places`). Seconds of one micro-batch: `each_s`, forward and backward, and
    `recompute_s`, where the blocks are recomputed; seconds once per step `once_s`; bytes kept for the backward pass, without and
    with recomputation, bytes at rest, and those of the weights that every micro-batch copies where there are virtual stages.
    """

    scope: tuple[int, ...]
    counts: Counts
    each_s: Array
    recompute_s: Array
    once_s: Array
    kept_B: Array
    kept_recomputed_B: Array
    at_rest_B: Array
    copied_B: Array

    @cached_property
    def saved_B(self) -> Array:
        """Bytes that recomputation saves."""
        if is_nothing(self.kept_B) and is_nothing(self.kept_recomputed_B):
            return self.kept_B
        saved: Array = self.kept_B - self.kept_recomputed_B
        return saved if saved.any() else no_table(saved.shape)

    @cached_property
    def weighted(self) -> list[tuple[int, Array]]:
        """The tables that are minimised, numbered: seconds of a micro-batch, once, and again; bytes kept, at rest, and saved.

        None that is zero everywhere.
        """
        return _there(self.each_s, self.once_s, self.recompute_s, self.kept_B, self.at_rest_B, self.saved_B)

    @cached_property
    def fixed(self) -> list[tuple[int, Array]]:
        """The tables of which `Costs` speaks, each with the number of its field there, but those that are zero everywhere."""
        return _there(*(getattr(self, field.name) for field in fields(Costs)))


def _there(*tables: Array) -> list[tuple[int, Array]]:
    """Those of `tables` that are not zero everywhere, each with its number."""
    return [(number, table) for number, table in enumerate(tables) if not is_nothing(table)]


def terms(
    scope: tuple[int, ...],
    counts: Counts,
    shape: tuple[int, ...],
    **fixed: Array | None,
) -> Terms:
    """Tables of `shape`, by their names in `Terms`; those that are not given are zero."""

    def table(name: str) -> Array:
        found = fixed.pop(name, None)
        if found is None:
            return no_table(shape)
        return found if found.shape == shape else np.broadcast_to(found, shape)

    tables = {field.name: table(field.name) for field in fields(Terms)[2:]}
    if fixed:
        raise TypeError(f"no tables of Terms: {', '.join(fixed)}")
    return Terms(scope, counts, **tables)


_ZERO = bytes(8)


def no_table(shape: tuple[int, ...]) -> Array:
    """A table of `shape` that is zero everywhere, written down once."""
    return np.ndarray(shape, np.float64, _ZERO, strides=(0,) * len(shape))


def merged(found: Iterable[Terms]) -> tuple[Terms, ...]:
    """`found`, of which those over the same scope that occur equally often are one."""
    alike: dict[tuple[tuple[int, ...], Counts], list[Terms]] = {}
    for one in found:
        alike.setdefault((one.scope, one.counts), []).append(one)
    return tuple(map(_added, alike.values()))


def _added(some: Sequence[Terms]) -> Terms:
    first = some[0]
    if len(some) == 1:
        return first

    def added(name: str) -> Array | None:
        tables = [table for one in some if not is_nothing(table := getattr(one, name))]
        return reduce(np.add, tables) if tables else None

    tables = {field.name: added(field.name) for field in fields(Costs)}
    return terms(first.scope, first.counts, first.each_s.shape, **tables)


@dataclass(frozen=True)
class Costs:
    """Seconds of a micro-batch (forward and backward; again), seconds once per step, and bytes of one occurrence of every
    place: [places], or [places, shapes].
    """

    each_s: Array
    recompute_s: Array
    once_s: Array
    kept_B: Array
    kept_recomputed_B: Array
    at_rest_B: Array
    copied_B: Array

    def of(self, number: int) -> "Costs":
        """Those of one shape."""
        return Costs(*(getattr(self, field.name)[:, number] for field in fields(Costs)))


@dataclass(frozen=True)
class Weights:
    """How much every place counts, [places, members]: in the seconds of a micro-batch, in those of its recomputation, in those
    once per step, in bytes kept, in those that recomputation of all blocks saves, and in bytes at rest.
    """

    each_s: Array
    recompute_s: Array
    once_s: Array
    kept_B: Array
    saved_B: Array
    at_rest_B: Array

    @property
    def in_no_time(self) -> "Weights":
        """As if everything were recomputed that blocks keep, and that took no time."""
        inside = np.ones_like(self.kept_B)
        inside[[0, -1]] = 0.0
        return replace(self, recompute_s=np.zeros_like(self.recompute_s), saved_B=self.kept_B * inside)

    def of(self, members: NDArray[np.intp]) -> "Weights":
        """Those of `members`."""
        return Weights(*(getattr(self, field.name)[:, members] for field in fields(Weights)))

    @staticmethod
    def beside(every: Sequence["Weights"]) -> "Weights":
        """All of `every`, one after the other."""
        return Weights(*(np.concatenate([getattr(w, f.name) for w in every], axis=1) for f in fields(Weights)))


def is_nothing(table: Array) -> bool:
    """Whether a table was not given: zero everywhere, written down once."""
    return not any(table.strides) and not table.flat[0]


def occurring(found: Sequence[Terms], weights: Sequence[Array]) -> list[Array]:
    """How often each of the tables occurs under each of `weights` [places, members]: [tables, members]."""
    counts = np.array([one.counts for one in found], dtype=float).reshape(len(found), len(weights[0]))
    return [counts @ one for one in weights]


def spread(values: Array, table: Array) -> Array:
    """`values` [members], shaped to multiply `table`."""
    return values.reshape(-1, *(1,) * (table.ndim - 1))
