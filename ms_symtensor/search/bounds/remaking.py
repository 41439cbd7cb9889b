"""What is gained at most where blocks make parts again instead of keeping them: tables that bound it over all layouts.

For given layouts that is a closure of least weight, as in `selection`: over the operators that are made again, the copies of
their results that gradients read, and the tensors that no gradient reads but what is made again does:

    min  Σ c made + μ Σ b (needed - saved) - μ Σ b unmoved + Σ (a - μ b) moved + Σ μ b fetched + Σ (a - μ b) brought
    unmoved => made, moved => needed, made => fetched what it reads, brought => needed and fetched, saved => needed and made

with seconds c of an operator and a of moves and Casts, bytes b, and μ seconds per byte. What an operator reads, and no gradient
does, is fetched: kept as it reads it, or brought there once more. What is moved to an operator with partial sums is moved again
together with the sum behind it, which takes seconds of its own (joint => summed, made => summed). A Cast of a Cast needs the
first one, which is kept or made again (cast, recast).

An operator and each table of moves would be a problem of its own but for the implications between them. So these are relaxed: a
multiplier f >= 0 is paid by what implies and received by what is implied, and every table takes its own minimum. Where both
tables know the layout of one operator, each of its candidates has a multiplier. Whatever these are, the sum is no larger than
the closure of any layouts; with those of the maximum flow at some layouts it is equal to the closure of these. Readers of one
tensor may share a copy, so that each pays its part of what it would take alone. What a gradient reads somewhere is taken as
there, unmoved, but where one table says that in these layouts none reads it so: then it is needed as well.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.bounds.gains import NOTHING, Gain, Gains, Way
from ms_symtensor.search.bounds.given_layouts import Closure, Entries, Given, Item, Table
from ms_symtensor.search.bounds.implications import Implications, implications
from ms_symtensor.search.bounds.multipliers import Multipliers
from ms_symtensor.search.folded.places import Counts
from ms_symtensor.search.selections.closure import Closures
from ms_symtensor.search.tables.elimination import Factor
from ms_symtensor.search.tables.problem import Problem
from ms_symtensor.search.tables.tensor_terms import possible, slices_B
from ms_symtensor.search.tables.tensors import layouts_at

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Remaking:
    """The closure of the blocks of `of`."""

    of: Problem

    @cached_property
    def _items(self) -> Implications:
        return implications(self.of)

    def _scope(self, item: Item) -> tuple[int, ...]:
        """The variables that the table of `item` depends on."""
        return self._made_with[item[1]] if item[0] == "made" else self._items.scope(item)

    @cached_property
    def _made_with(self) -> dict[int, tuple[int, ...]]:
        """The scopes of operators' tables: with the reader for which most is kept, so that what it pays may depend on both."""
        found: dict[int, tuple[float, tuple[int, ...]]] = {number: (-1.0, (number,)) for number in self._items.made}
        for (kind, place), (_, number) in self._items.crossing:
            if kind == "unmoved":
                copy = self._items.copies[place]
                scope = (number, *(v for v in copy.scope if v != number))
                assert copy.unmoved_B is not None
                if len(scope) == 2:
                    found[number] = max(found[number], (float(copy.unmoved_B.max()), scope))
        return {number: scope for number, (_, scope) in found.items()}

    @cached_property
    def of_implications(self) -> Multipliers:
        """What is paid and received for implications: by the candidates of one or two variables that both tables depend on."""
        knows = np.full((len(self._items.crossing), 2), -1, dtype=np.intp)
        for place, (item, other) in enumerate(self._items.crossing):
            its = self._scope(other)
            both = [v for v in self._scope(item) if v in its]
            both.sort(key=lambda v: v != its[0])
            knows[place, : len(both[:2])] = both[:2]
        sizes = np.where(knows >= 0, np.array(self.of.sizes)[knows], 1)
        return Multipliers(self._items.crossing, knows, sizes)

    @cached_property
    def _own_B(self) -> dict[int, Array]:
        """Bytes of what operators keep of their own results, [members, candidates]."""
        found: dict[int, Array] = {}
        for tensor in self.of.between:
            number, side, _ = tensor.maker
            if tensor.maker_keeps and side == "out" and number in self._items.made:
                layouts = layouts_at(self.of.known, tensor.maker, tensor.shape)
                size_B = slices_B(self.of.known, layouts, tensor.dtype, tensor.power)
                found[number] = found[number] + size_B if number in found else size_B
        return found

    @cached_property
    def _made_s(self) -> dict[int, Array]:
        """Seconds of the operators that may be made again, [members, candidates]; 0 where they cannot be."""
        items = self.of.known.items
        return {
            number: possible(items[number].forward_s - self._summed_s.get(number, 0.0)) for number in self._items.made
        }

    @cached_property
    def _summed_s(self) -> dict[int, Array]:
        """Seconds of partial sums of operators for which something is moved, [members, candidates]."""
        return {number: possible(self.of.known.items[number].combine_s) for number in self._items.summed}

    # -- given layouts -------------------------------------------------------------------------------------------------

    def given(self, choice: Sequence[int], member: int = 0) -> Given:
        """The closure where every variable has the candidate of `choice`, on one member of the family."""
        of = self._closure
        return Given(of, of.seconds.of(choice, member), of.size_B.of(choice, member))

    @cached_property
    def _closure(self) -> Closure:
        seconds: list[Table | None] = []
        size_B: list[Table | None] = []
        counts: list[Counts] = []
        numbers: dict[Item, int] = {}
        inside: list[tuple[Item, Item]] = []

        def add(item: Item, of: Counts, time_s: Table | None, kept_B: Table | None) -> None:
            numbers[item] = len(numbers)
            seconds.append(time_s)
            size_B.append(kept_B)
            counts.append(of)

        for number, of in self._items.made.items():
            add(("made", number), of, Table(self._made_s[number], (number,)), None)
            if number in self._own_B:
                add(("own", number), of, None, Table(-self._own_B[number], (number,)))
                inside.append((("own", number), ("made", number)))
        for number, of in self._items.summed.items():
            add(("summed", number), of, Table(self._summed_s[number], (number,)), None)
        for place, one in enumerate(self._items.needed):
            add(("needed", place), one.counts, None, Table(one.size_B, one.scope))
            if one.is_made:
                add(("saved", place), one.counts, None, Table(-one.size_B, one.scope))
                inside.append((("saved", place), ("needed", place)))
                inside += [] if one.is_apart else [(("saved", place), ("made", one.number))]
        for place, cast in enumerate(self._items.casts):
            add(("cast", place), cast.counts, None, Table(cast.size_B, (cast.number,)))
            add(
                ("recast", place), cast.counts, Table(cast.again_s, (cast.number,)), Table(-cast.size_B, (cast.number,))
            )
            inside.append((("recast", place), ("cast", place)))
        for place, (fetch, of) in enumerate(self._items.fetches):
            add(("fetched", place), of, None, Table(fetch.kept_B, fetch.scope))
            add(("brought", place), of, Table(fetch.moves_s, fetch.scope), Table(-fetch.kept_B, fetch.scope))
            inside.append((("brought", place), ("fetched", place)))
        for place, copy in enumerate(self._items.copies):
            if copy.unmoved_B is not None:
                add(("unmoved", place), copy.counts, None, Table(-copy.unmoved_B, copy.scope))
        for item, copies, again_s, moved_B in self._items.moved_again:
            add(item, copies.counts, Table(again_s, copies.scope), Table(-moved_B, copies.scope))
        kept, priced = (
            [(numbers[item], numbers[other]) for item, other in pairs] for pairs in (inside, self._items.crossing)
        )
        placed = np.array(counts).reshape(len(counts), self.of.places.number)
        return Closure(Entries(seconds), Entries(size_B), placed, Closures(len(counts), kept, priced))

    # -- all layouts ---------------------------------------------------------------------------------------------------

    def gains(
        self, price_s_per_B: Array, multipliers: Array, again: Array, which: NDArray[np.intp]
    ) -> Iterator[Factor]:
        """Tables of seconds, at most 0, whose sum is no more than what any blocks gain by making parts again: on the members
        `which` of the family, where every place counts `again` [places, which] times, at a price [which] for each of these, with
        `multipliers` [number, which] (`of_implications`).
        """
        return self._gains.factors(price_s_per_B, multipliers, again, which)

    @cached_property
    def _gains(self) -> Gains:
        found = []
        for number, counts in self._items.made.items():
            made = Way(self._made_s[number], -self._own_B[number] if number in self._own_B else NOTHING.size_B)
            needed = [
                place
                for place, one in enumerate(self._items.needed)
                if one.is_made and one.number == number and not one.is_apart
            ]
            scope, item = self._made_with[number], ("made", number)
            kept = Way(size_B=self._items.needed[needed[0]].size_B) if needed else NOTHING
            found.append(Gain(scope, counts, kept, made, (item,), tuple(("needed", place) for place in needed)))
        for place, one in enumerate(self._items.needed):
            saved: tuple[Item, ...] = (("saved", place),)
            if one.is_apart or not one.is_made:
                kept = Way(size_B=one.size_B)
                other, pays = (NOTHING, saved) if one.is_apart else (None, ())
                found.append(Gain(one.scope, one.counts, kept, other, pays, (("needed", place),)))
        for place, cast in enumerate(self._items.casts):
            kept, made = Way(size_B=cast.size_B), Way(seconds=cast.again_s)
            found.append(Gain((cast.number,), cast.counts, kept, made, (("recast", place),), (("cast", place),)))
        for place, (fetch, counts) in enumerate(self._items.fetches):
            kept, moved = Way(size_B=fetch.kept_B), Way(seconds=fetch.moves_s)
            found.append(Gain(fetch.scope, counts, kept, moved, (("brought", place),), (("fetched", place),)))
        for place, copy in enumerate(self._items.copies):
            if copy.unmoved_B is not None:
                way = Way(size_B=-copy.unmoved_B)
                found.append(Gain(copy.scope, copy.counts, way, paid=(("unmoved", place),)))
        for item, copies, again_s, moved_B in self._items.moved_again:
            found.append(Gain(copies.scope, copies.counts, Way(again_s, -moved_B), paid=(item,)))
        for number, counts in self._items.summed.items():
            way = Way(self._summed_s[number])
            found.append(Gain((number,), counts, way, paid=(("summed", number),)))
        return Gains(found, self.of_implications, self.of.sizes, self.of.known.pricer.family.members)
