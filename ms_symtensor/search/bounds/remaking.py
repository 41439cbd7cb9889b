"""What is gained at most where blocks make parts again instead of keeping them: tables that bound it over all layouts.

For given layouts that is a closure of least weight, as in `selection`: over the operators that are made again, the copies of
their results that gradients read, and the tensors that no gradient reads but what is made again does:

    min  Σ c made + μ Σ b (needed - saved) - μ Σ b unmoved + Σ (a - μ b) moved + Σ μ b fetched + Σ (a - μ b) brought
    unmoved => made, moved => needed, made => fetched what it reads, brought => needed and fetched, saved => needed and made

with seconds c of an operator and a of moves and Casts, bytes b, and μ seconds per byte. What an operator reads, and no gradient
does, is fetched: kept as it reads it, or brought there once more. An operator and each table of moves would be a problem of its
own but for the implications between them. So these are relaxed: a multiplier f >= 0 is paid by what implies and received by what
is implied, and every table takes its own minimum. Whatever the multipliers, the sum is no larger than the closure of any
layouts; with those of the maximum flow at some layouts it is equal to the closure of these. Readers of one tensor may share a
copy, so that each pays its part of what it would take alone; whatever a gradient reads somewhere is taken as there, unmoved.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.folded.places import Counts
from ms_symtensor.search.selections.closure import PICOSECONDS, prices_of_implications
from ms_symtensor.search.tables.elimination import Factor
from ms_symtensor.search.tables.problem import Problem
from ms_symtensor.search.tables.tensor_terms import JOINT_READERS, Copies, Fetch, slices_B
from ms_symtensor.search.tables.tensors import End, layouts_at
from ms_symtensor.search.tables.terms import spread
from ms_symtensor.tensor.graph import OpOutput

Array = NDArray[np.float64]
Item = tuple[str, int]
"""A variable of the closure: what it says, and the number of an operator, a tensor or a table of copies."""


class Remade(NamedTuple):
    """What is made again at one price: its seconds and the bytes that it saves [places], and the multipliers."""

    again_s: Array
    saved_B: Array
    multipliers: Array


@dataclass(frozen=True)
class _Needed:
    """A tensor of variable `number` that no gradient reads: bytes [members, candidates]; whether its block may make it again."""

    number: int
    size_B: Array
    counts: Counts
    is_made: bool


@dataclass
class Remaking:
    """The closure of the blocks of `of`."""

    of: Problem
    _needed: list[_Needed] = field(default_factory=list)
    _fetches: list[tuple[Fetch, Counts]] = field(default_factory=list)
    _crossing: list[tuple[Item, Item]] = field(default_factory=list)

    def __post_init__(self) -> None:
        known, blocks = self.of.known, {name for names in self.of.places.kinds for name in names}
        again = sorted({known.index[name] for name in self.of.again if name in known.index})
        self._made: dict[int, Counts] = {
            number: self.of.places.counts(dict.fromkeys(known.items[number].members, 1))
            for number in again
            if known.items[number].op.block in blocks
        }
        self._relate()

    def _relate(self) -> None:
        """Find what is needed, and the implications between tables: those that stand equally often at all places."""
        numbers: dict[tuple[End, str, Counts], int] = {}
        for place, one in enumerate(self._copies):
            root = one.origin.root
            if one.unmoved_B is not None and self._made[root[0]] == one.counts:
                self._crossing.append((("unmoved", place), ("made", root[0])))
            users = [("moved", place)] if one.moved_B is not None else []
            for fetch in one.fetches:
                if self._made.get(fetch.reader) == one.counts:
                    self._crossing.append((("made", fetch.reader), ("fetched", len(self._fetches))))
                    users.append(("brought", len(self._fetches)))
                    self._fetches.append((fetch, one.counts))
            key = (root, one.dtype, one.counts)
            is_known = root[0] >= 0 and one.origin.is_near and key[:2] not in self._read
            if not is_known or self._made.get(root[0], one.counts) != one.counts:
                continue
            if users and key not in numbers:
                numbers[key] = len(self._needed)
                self._needed.append(_Needed(root[0], self._size_B(root, one.dtype), one.counts, root[0] in self._made))
            self._crossing += [(user, ("needed", numbers[key])) for user in users]
        self._crossing = list(dict.fromkeys(self._crossing))

    @property
    def implications(self) -> int:
        """How many implications have multipliers."""
        return len(self._crossing)

    @cached_property
    def _copies(self) -> list[Copies]:
        alike = Counter(
            (tensor.origin, tensor.dtype, counts)
            for tensor, counts in self.of.between.items()
            for _ in range(0, len(tensor.readers), JOINT_READERS)
        )
        return [
            one
            for tensor, counts in self.of.between.items()
            for one in self.of.tables.copies(tensor, counts, alike[tensor.origin, tensor.dtype, counts])
        ]

    @cached_property
    def _read(self) -> set[tuple[End, str]]:
        """The outputs that a gradient reads somewhere, in the element type in which it does."""
        return {
            (tensor.origin.root, tensor.dtype)
            for tensor in self.of.between
            if tensor.maker_keeps or any(reader.kept for reader in tensor.readers)
        }

    @cached_property
    def _own_B(self) -> dict[int, Array]:
        """Bytes of what operators keep of their own results, [members, candidates]."""
        found: dict[int, Array] = {}
        for tensor in self.of.between:
            number, side, _ = tensor.maker
            if tensor.maker_keeps and side == "out" and number in self._made:
                layouts = layouts_at(self.of.known, tensor.maker, tensor.shape)
                size_B = slices_B(self.of.known, layouts, tensor.dtype, tensor.power)
                found[number] = found[number] + size_B if number in found else size_B
        return found

    def _size_B(self, root: End, dtype: str) -> Array:
        """Bytes of an output in element type `dtype`, [members, candidates]."""
        known, (number, _, index) = self.of.known, root
        op = known.items[number].op
        layouts = layouts_at(known, root, op.outputs[index].shape)
        return slices_B(known, layouts, dtype, known.power_of(OpOutput(op.name, index)))

    def _seconds(self, number: int) -> Array:
        forward_s = self.of.known.items[number].forward_s
        return np.where(np.isinf(forward_s), 0.0, forward_s)

    # -- given layouts -------------------------------------------------------------------------------------------------

    def given(self, choice: Sequence[int], member: int = 0) -> "Given":
        """The closure where every variable has the candidate of `choice`, on one member of the family."""

        def value(table: Array, *scope: int) -> float:
            at = (member, *(choice[v] for v in scope))
            return float(table[at]) if table.ndim else float(table)

        seconds: dict[Item, float] = {}
        size_B: dict[Item, float] = {}
        counts: dict[Item, Counts] = {}
        inside: list[tuple[Item, Item]] = []

        def add(item: Item, of: Counts, time_s: float, kept_B: float) -> None:
            seconds[item], size_B[item], counts[item] = time_s, kept_B, of

        for number, of in self._made.items():
            add(("made", number), of, value(self._seconds(number), number), 0.0)
            if number in self._own_B:
                add(("own", number), of, 0.0, -value(self._own_B[number], number))
                inside.append((("own", number), ("made", number)))
        for place, one in enumerate(self._needed):
            needed_B = value(one.size_B, one.number)
            add(("needed", place), one.counts, 0.0, needed_B)
            if one.is_made:
                add(("saved", place), one.counts, 0.0, -needed_B)
                inside += [(("saved", place), ("needed", place)), (("saved", place), ("made", one.number))]
        for place, (fetch, of) in enumerate(self._fetches):
            held_B = value(fetch.kept_B, *fetch.scope)
            add(("fetched", place), of, 0.0, held_B)
            add(("brought", place), of, value(fetch.moves_s, *fetch.scope), -held_B)
            inside.append((("brought", place), ("fetched", place)))
        for place, copy in enumerate(self._copies):
            if copy.unmoved_B is not None:
                add(("unmoved", place), copy.counts, 0.0, -value(copy.unmoved_B, *copy.scope))
            if copy.moved_B is not None:
                moves_s = value(copy.moves_s, *copy.scope)
                add(("moved", place), copy.counts, moves_s, -value(copy.moved_B, *copy.scope))
        return Given(seconds, size_B, counts, inside, self._crossing, self.of.places.number)

    # -- all layouts ---------------------------------------------------------------------------------------------------

    def gains(
        self, price_s_per_B: Array, multipliers: Array, again: Array, which: NDArray[np.intp]
    ) -> Iterator[Factor]:
        """Tables of seconds, at most 0, whose sum is no more than what any blocks gain by making parts again: on the members
        `which` of the family, where every place counts `again` [places, which] times, at a price [which] for each of these, with
        `multipliers` [implications, which].
        """
        paid: dict[Item, Array] = {}
        none = np.zeros(len(which))
        for (item, other), multiplier in zip(self._crossing, multipliers, strict=True):
            paid[item] = paid.get(item, none) + multiplier
            paid[other] = paid.get(other, none) - multiplier

        def pays(item: Item, table: Array) -> Array:
            return spread(paid.get(item, none), table)

        def worth(size_B: Array) -> Array:
            return spread(price_s_per_B, size_B) * size_B

        found: list[tuple[tuple[int, ...], Counts, Array]] = []
        for number, counts in self._made.items():
            made = self._seconds(number)[which]
            made = made + pays(("made", number), made)
            if number in self._own_B:
                made = made - worth(self._own_B[number][which])
            kept = np.zeros(made.shape)
            for place, one in enumerate(self._needed):
                if one.is_made and one.number == number:
                    received = pays(("needed", place), made)
                    kept, made = kept + np.minimum(0.0, worth(one.size_B[which]) + received), made + received
            found.append(((number,), counts, np.minimum(kept, made)))
        for place, one in enumerate(self._needed):
            if not one.is_made:
                size_B = one.size_B[which]
                found.append(((one.number,), one.counts, worth(size_B) + pays(("needed", place), size_B)))
        for place, (fetch, counts) in enumerate(self._fetches):
            size_B, moves_s = fetch.kept_B[which], fetch.moves_s[which]
            brought = np.minimum(worth(size_B), moves_s + pays(("brought", place), moves_s))
            found.append((fetch.scope, counts, brought + pays(("fetched", place), moves_s)))
        for place, copy in enumerate(self._copies):
            if copy.unmoved_B is not None:
                size_B = copy.unmoved_B[which]
                found.append((copy.scope, copy.counts, pays(("unmoved", place), size_B) - worth(size_B)))
            if copy.moved_B is not None:
                size_B, moves_s = copy.moved_B[which], copy.moves_s[which]
                found.append((copy.scope, copy.counts, moves_s + pays(("moved", place), size_B) - worth(size_B)))
        for scope, counts, table in found:
            if (table < 0).any():
                yield Factor(scope, spread(np.array(counts) @ again, table) * np.minimum(0.0, table))


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
