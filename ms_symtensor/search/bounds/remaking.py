"""What is gained at most where blocks make parts again instead of keeping them: tables that bound it over all layouts.

For given layouts that is a closure of least weight, as in `selection`: over the operators that are made again, the copies of
their results that gradients read, and the tensors that no gradient reads but what is made again does:

    min  Σ c made + μ Σ b (needed - saved) - μ Σ b unmoved + Σ (a - μ b) moved + Σ μ b fetched + Σ (a - μ b) brought
    unmoved => made, moved => needed, made => fetched what it reads, brought => needed and fetched, saved => needed and made

with seconds c of an operator and a of moves and Casts, bytes b, and μ seconds per byte. What an operator reads, and no gradient
does, is fetched: kept as it reads it, or brought there once more. An operator and each table of moves would be a problem of its
own but for the implications between them. So these are relaxed: a multiplier f >= 0 is paid by what implies and received by what
is implied, and every table takes its own minimum. Where both tables know the layout of one operator, each of its candidates has a
multiplier. Whatever these are, the sum is no larger than the closure of any layouts; with those of the maximum flow at some
layouts it is equal to the closure of these. Readers of one tensor may share a copy, so that each pays its part of what it would
take alone. What a gradient reads somewhere is taken as there, unmoved, but where one table says that in these layouts none reads
it so: then it is needed as well.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.bounds.gains import NOTHING, Gain, Gains, Way
from ms_symtensor.search.bounds.given_layouts import Closure, Entries, Given, Item, Table
from ms_symtensor.search.bounds.multipliers import Multipliers
from ms_symtensor.search.folded.places import Counts
from ms_symtensor.search.selections.closure import Closures
from ms_symtensor.search.tables.elimination import Factor
from ms_symtensor.search.tables.problem import Problem
from ms_symtensor.search.tables.tensor_terms import JOINT_READERS, Copies, Fetch, slices_B
from ms_symtensor.search.tables.tensors import End, Reader, Tensor, layouts_at
from ms_symtensor.search.tables.variables import transparent_s
from ms_symtensor.tensor.graph import OpOutput

Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Needed:
    """A tensor of variable `number` that no gradient reads: its bytes, a table over `scope`, nothing in layouts in which one
    does; whether its block may make it again, and whether implications join it to the operator that does, which has its own
    table.
    """

    number: int
    scope: tuple[int, ...]
    size_B: Array
    counts: Counts
    is_made: bool
    is_apart: bool


@dataclass(frozen=True)
class _Cast:
    """A Cast of the output of variable `number`, of which another one is made and that no gradient reads: bytes, and seconds of
    making it again, [members, candidates].
    """

    number: int
    size_B: Array
    again_s: Array
    counts: Counts


@dataclass
class Remaking:
    """The closure of the blocks of `of`."""

    of: Problem
    _needed: list[_Needed] = field(default_factory=list)
    _fetches: list[tuple[Fetch, Counts]] = field(default_factory=list)
    _crossing: list[tuple[Item, Item]] = field(default_factory=list)
    _summed: dict[int, Counts] = field(default_factory=dict)
    _casts: list[_Cast] = field(default_factory=list)

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
        casts = self._cast_again
        self._casts = [self._cast(*key) for key in casts]
        for place, one in enumerate(self._copies):
            root = one.origin.root
            if one.unmoved_B is not None and self._made[root[0]] == one.counts:
                self._crossing.append((("unmoved", place), ("made", root[0])))
            users = [("moved", place)] if one.moved_B is not None else []
            if one.summing is not None and self._made.get(one.summing[0]) == one.counts:
                users.append(("joint", place))
                self._crossing.append((("joint", place), ("summed", one.summing[0])))
                self._summed[one.summing[0]] = one.counts
            for fetch in one.fetches:
                if self._made.get(fetch.reader) == one.counts:
                    self._crossing.append((("made", fetch.reader), ("fetched", len(self._fetches))))
                    users.append(("brought", len(self._fetches)))
                    self._fetches.append((fetch, one.counts))
            if (cast := casts.get((root, one.made_dtype, one.counts))) is not None and one.origin.is_near:
                self._crossing += [(user, ("cast", cast)) for user in users]
                users = [("recast", cast)]
            elif (cast := casts.get((root, one.dtype, one.counts))) is not None:
                self._crossing += [(user, ("cast", cast)) for user in users]
            key = (root, one.dtype, one.counts)
            is_read = key[:2] in self._read and (one.unread_B is None or key[:2] in self._kept_elsewhere)
            is_known = root[0] >= 0 and one.origin.is_near and not is_read
            if not is_known or self._made.get(root[0], one.counts) != one.counts:
                continue
            if users and key not in numbers:
                numbers[key] = len(self._needed)
                self._needed.append(self._needed_of(one))
            self._crossing += [(user, ("needed", numbers[key])) for user in users]
        self._crossing += [(("made", number), ("summed", number)) for number in self._summed]
        self._crossing += [
            (("saved", place), ("made", one.number)) for place, one in enumerate(self._needed) if one.is_apart
        ]
        self._crossing = list(dict.fromkeys(self._crossing))

    @cached_property
    def _cast_again(self) -> dict[tuple[End, str, Counts], int]:
        """The Casts that others read, and no gradient does, each with a number."""
        found: dict[tuple[End, str, Counts], int] = {}
        for one in self._copies:
            root, is_there = one.origin.root, one.origin.cast_of is not None and not one.origin.is_near
            if is_there and (root, one.dtype) not in self._read and self._made.get(root[0]) == one.counts:
                found.setdefault((root, one.dtype, one.counts), len(found))
        return found

    def _cast(self, root: End, dtype: str, counts: Counts) -> _Cast:
        known, (number, _, index) = self.of.known, root
        op = known.items[number].op
        power, layouts = known.power_of(OpOutput(op.name, index)), layouts_at(known, root, op.outputs[index].shape)
        again_s = transparent_s(known.pricer, layouts, op.outputs[index].dtype, dtype, power)
        return _Cast(number, slices_B(known, layouts, dtype, power), again_s, counts)

    def _needed_of(self, one: Copies) -> _Needed:
        """What `one` is made of."""
        root = one.origin.root
        number, is_made = root[0], root[0] in self._made
        if (root, one.dtype) in self._read and one.unread_B is not None:
            return _Needed(number, one.scope, one.unread_B, one.counts, is_made, is_made and one.scope != (number,))
        is_apart = is_made and any(other.number == number and not other.is_apart for other in self._needed)
        return _Needed(number, (number,), self._size_B(root, one.dtype), one.counts, is_made, is_apart)

    def _scope(self, item: Item) -> tuple[int, ...]:
        """The variables that the table of `item` depends on."""
        kind, number = item
        if kind == "made":
            return self._made_with[number]
        if kind == "summed":
            return (number,)
        if kind in ("cast", "recast"):
            return (self._casts[number].number,)
        if kind in ("needed", "saved"):
            return self._needed[number].scope
        if kind in ("fetched", "brought"):
            return self._fetches[number][0].scope
        return self._copies[number].scope

    @cached_property
    def _made_with(self) -> dict[int, tuple[int, ...]]:
        """The scopes of operators' tables: with the reader for which most is kept, so that what it pays may depend on both."""
        found: dict[int, tuple[float, tuple[int, ...]]] = {number: (-1.0, (number,)) for number in self._made}
        for (kind, place), (_, number) in self._crossing:
            if kind == "unmoved":
                copy = self._copies[place]
                scope = (number, *(v for v in copy.scope if v != number))
                assert copy.unmoved_B is not None
                if len(scope) == 2:
                    found[number] = max(found[number], (float(copy.unmoved_B.max()), scope))
        return {number: scope for number, (_, scope) in found.items()}

    @cached_property
    def of_implications(self) -> Multipliers:
        """What is paid and received for implications: by the candidates of one or two variables that both tables depend on."""
        knows = np.full((len(self._crossing), 2), -1, dtype=np.intp)
        for place, (item, other) in enumerate(self._crossing):
            its = self._scope(other)
            both = [v for v in self._scope(item) if v in its]
            both.sort(key=lambda v: v != its[0])
            knows[place, : len(both[:2])] = both[:2]
        sizes = np.where(knows >= 0, np.array(self.of.sizes)[knows], 1)
        return Multipliers(self._crossing, knows, sizes)

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
            if self._may_be_output(tensor) and (tensor.maker_keeps or any(_reads(r, tensor) for r in tensor.readers))
        }

    def _may_be_output(self, tensor: Tensor) -> bool:
        """Whether `tensor` is an output, or a Cast of one to another element type: one that is cast there and back is neither."""
        (number, _, index), cast_of = tensor.origin.root, tensor.origin.cast_of
        return cast_of is None or number < 0 or tensor.dtype != self.of.known.items[number].op.outputs[index].dtype

    @cached_property
    def _kept_elsewhere(self) -> set[tuple[End, str]]:
        """Those of which a gradient may read the same tensor, unmoved, in layouts of which no single table knows.

        What is read where a Reshape left it is the output itself only where the reader that decides its layout reads that, too.
        """
        tables: Counter[tuple[End, str]] = Counter()
        found = set()
        for tensor in self.of.between:
            origin = tensor.origin
            if origin.cast_of is None and tensor.maker == origin.root and not tensor.maker_keeps:
                tables[origin.root, tensor.dtype] += any(_reads(r, tensor) for r in tensor.readers)
            elif tensor.maker_keeps and origin.cast_of is None and tensor.maker != origin.root:
                continue
            elif self._may_be_output(tensor) and (tensor.maker_keeps or any(_reads(r, tensor) for r in tensor.readers)):
                found.add((origin.root, tensor.dtype))
        return found | {key for key, number in tables.items() if number > 1}

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

    @cached_property
    def _made_s(self) -> dict[int, Array]:
        """Seconds of the operators that may be made again, [members, candidates]; 0 where they cannot be."""
        items = self.of.known.items
        again_s = {
            number: items[number].forward_s - (items[number].combine_s if number in self._summed else 0.0)
            for number in self._made
        }
        return {number: np.where(np.isfinite(table), table, 0.0) for number, table in again_s.items()}

    @cached_property
    def _summed_s(self) -> dict[int, Array]:
        """Seconds of partial sums of operators for which something is moved, [members, candidates]."""
        combine_s = {number: self.of.known.items[number].combine_s for number in self._summed}
        return {number: np.where(np.isfinite(table), table, 0.0) for number, table in combine_s.items()}

    def _moved(self, place: int) -> list[tuple[Item, Array, Array]]:
        """What may be moved again of copies: seconds and bytes, where that does not go with a sum, and where it does."""
        one = self._copies[place]
        if one.moved_B is None:
            return []
        if one.summing is None or one.summing[0] not in self._summed or ("joint", place) not in self._payers:
            return [(("moved", place), one.moves_s, one.moved_B)]
        there = one.summing[1]
        return [
            (("moved", place), np.where(there, 0.0, one.moves_s), np.where(there, 0.0, one.moved_B)),
            (("joint", place), np.where(there, one.moves_s, 0.0), np.where(there, one.moved_B, 0.0)),
        ]

    @cached_property
    def _payers(self) -> set[Item]:
        return {item for item, _ in self._crossing}

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

        for number, of in self._made.items():
            add(("made", number), of, Table(self._made_s[number], (number,)), None)
            if number in self._own_B:
                add(("own", number), of, None, Table(-self._own_B[number], (number,)))
                inside.append((("own", number), ("made", number)))
        for number, of in self._summed.items():
            add(("summed", number), of, Table(self._summed_s[number], (number,)), None)
        for place, one in enumerate(self._needed):
            add(("needed", place), one.counts, None, Table(one.size_B, one.scope))
            if one.is_made:
                add(("saved", place), one.counts, None, Table(-one.size_B, one.scope))
                inside.append((("saved", place), ("needed", place)))
                inside += [] if one.is_apart else [(("saved", place), ("made", one.number))]
        for place, cast in enumerate(self._casts):
            add(("cast", place), cast.counts, None, Table(cast.size_B, (cast.number,)))
            add(("recast", place), cast.counts, Table(cast.again_s, (cast.number,)), Table(-cast.size_B, (cast.number,)))
            inside.append((("recast", place), ("cast", place)))
        for place, (fetch, of) in enumerate(self._fetches):
            add(("fetched", place), of, None, Table(fetch.kept_B, fetch.scope))
            add(("brought", place), of, Table(fetch.moves_s, fetch.scope), Table(-fetch.kept_B, fetch.scope))
            inside.append((("brought", place), ("fetched", place)))
        for place, copy in enumerate(self._copies):
            if copy.unmoved_B is not None:
                add(("unmoved", place), copy.counts, None, Table(-copy.unmoved_B, copy.scope))
            for item, moves_s, moved_B in self._moved(place):
                add(item, copy.counts, Table(moves_s, copy.scope), Table(-moved_B, copy.scope))
        kept, priced = (
            [(numbers[item], numbers[other]) for item, other in pairs] for pairs in (inside, self._crossing)
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
        for number, counts in self._made.items():
            made = Way(self._made_s[number], -self._own_B[number] if number in self._own_B else NOTHING.size_B)
            needed = [
                place
                for place, one in enumerate(self._needed)
                if one.is_made and one.number == number and not one.is_apart
            ]
            scope, item = self._made_with[number], ("made", number)
            kept = Way(size_B=self._needed[needed[0]].size_B) if needed else NOTHING
            found.append(Gain(scope, counts, kept, made, (item,), tuple(("needed", place) for place in needed)))
        for place, one in enumerate(self._needed):
            saved: tuple[Item, ...] = (("saved", place),)
            if one.is_apart or not one.is_made:
                kept = Way(size_B=one.size_B)
                other, pays = (NOTHING, saved) if one.is_apart else (None, ())
                found.append(Gain(one.scope, one.counts, kept, other, pays, (("needed", place),)))
        for place, cast in enumerate(self._casts):
            kept, made = Way(size_B=cast.size_B), Way(seconds=cast.again_s)
            found.append(Gain((cast.number,), cast.counts, kept, made, (("recast", place),), (("cast", place),)))
        for place, (fetch, counts) in enumerate(self._fetches):
            kept, moved = Way(size_B=fetch.kept_B), Way(seconds=fetch.moves_s)
            found.append(Gain(fetch.scope, counts, kept, moved, (("brought", place),), (("fetched", place),)))
        for place, copy in enumerate(self._copies):
            if copy.unmoved_B is not None:
                way = Way(size_B=-copy.unmoved_B)
                found.append(Gain(copy.scope, copy.counts, way, paid=(("unmoved", place),)))
            for item, moves_s, moved_B in self._moved(place):
                found.append(Gain(copy.scope, copy.counts, Way(moves_s, -moved_B), paid=(item,)))
        for number, counts in self._summed.items():
            way = Way(self._summed_s[number])
            found.append(Gain((number,), counts, way, paid=(("summed", number),)))
        return Gains(found, self.of_implications, self.of.sizes, self.of.known.pricer.family.members)


def _reads(reader: Reader, tensor: Tensor) -> bool:
    """Whether the gradient of `reader` reads `tensor` as it is, and no Cast of it."""
    return reader.kept and reader.kept_as == tensor.dtype
