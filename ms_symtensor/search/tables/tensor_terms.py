"""The tables of the tensors between operators: what carrying them costs, and the bytes that are kept of them.

Tensors between operators of the same kinds have the same tables (those of q, k and v in every kind of block): each is written
down once.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.folded.places import Counts
from ms_symtensor.search.tables.fan_out import FanOut
from ms_symtensor.search.tables.moves import Pairs, distinct, same_layout
from ms_symtensor.search.tables.tensors import End, Origin, Reader, Tensor, layouts_at
from ms_symtensor.search.tables.terms import Terms, terms
from ms_symtensor.search.tables.turn import Turn
from ms_symtensor.search.tables.variables import Variables, transparent_s
from ms_symtensor.tensor.dtype import size_B
from ms_symtensor.tensor.layout import Layout

Array = NDArray[np.float64]

JOINT_READERS = 3
"""Readers of one tensor that share a table (q, k, v): every further one shares one with the first and the one before it."""

JOINT_ENTRIES = 1 << 13
"""Entries of such a table for one mesh: where it would be larger, the first reader alone is seen (empirical: a search takes twice
as long with four times as many).
"""


FAST = 1e-3
"""More seconds per byte than anything takes (empirical: a megabyte in a quarter of an hour)."""


@dataclass(frozen=True)
class Fetch:
    """What it takes to bring a tensor once more to the variable `reader`, whose gradient does not read it: moves of `moves_s`, or
    `kept_B` that are kept until then; tables over `scope`. Nothing where a gradient reads what it reads.
    """

    reader: int
    scope: tuple[int, ...]
    kept_B: Array
    moves_s: Array


@dataclass(frozen=True)
class Copies:
    """What gradients keep of a tensor in a block, and what it takes to make that again: tables over `scope` as in `Terms`.

    `unmoved_B`: bytes of what an operator leaves as it is; `moved_B`: of what a Cast or moves make of that in `moves_s`.
    `fetches`: for the readers whose gradients do not read it. `dtype`: the element type of what the Cast or the moves read,
    `made_dtype` that of what the Cast makes.
    `unread_B`: bytes of what the maker leaves where no gradient reads it as it is, 0 elsewhere; None where others may read it so.
    `summing`: a reader that has partial sums, if there is one, and the layouts in which it has and its copy is moved there.
    """

    origin: Origin
    dtype: str
    made_dtype: str
    scope: tuple[int, ...]
    counts: Counts
    unmoved_B: Array | None
    moved_B: Array | None
    moves_s: Array
    fetches: tuple[Fetch, ...]
    unread_B: Array | None
    summing: tuple[int, NDArray[np.bool_]] | None


class TensorTables:
    """Writes down the tables of tensors between the variables `known`; `again`: those whose work a recomputed block repeats.

    Bytes are those that are there at the `turn`.
    """

    def __init__(self, known: Variables, pairs: Pairs, again: frozenset[int], turn: Turn) -> None:
        self._known, self._pairs, self._again, self._turn = known, pairs, again, turn
        self._ways: dict[tuple, _Ways] = {}
        self._tables: dict[tuple, Array] = {}
        self._layouts: dict[tuple, tuple[tuple[Layout, ...], NDArray[np.intp]]] = {}

    def prepare(self, every: Iterable[Tensor]) -> None:
        """Price the ways of all tensors at once."""
        self._pairs.prepare(
            (self._layouts_at(t.maker, t.shape)[0], self._layouts_at(r.end, t.reader_shape)[0], t.dtype, t.power)
            for t in every
            for r in t.readers
        )

    def terms(self, tensor: Tensor, counts: Counts) -> list[Terms]:
        """All tables of `tensor`, which occurs so often at every place."""
        readers = self._in_order(tensor.readers)
        found = [self._group(tensor, readers[:JOINT_READERS], counts)] if readers else []
        found += [self._joined(tensor, readers[:end], counts) for end in range(JOINT_READERS + 1, len(readers) + 1)]
        keeps = tensor.maker_keeps and self._turn.keeps(tensor.maker)
        if tensor.maker[0] >= 0 and tensor.maker[1] == "out" and (keeps or tensor.crosses):
            size = slices_B(
                self._known, layouts_at(self._known, tensor.maker, tensor.shape), tensor.dtype, tensor.power
            )
            kept = size if keeps else None
            crossing = size if tensor.crosses else None
            inside = self._known.items[tensor.maker[0]].op.block is not None
            recomputed = crossing if inside else kept
            found.append(terms((tensor.maker[0],), counts, size.shape, kept_B=kept, kept_recomputed_B=recomputed))
        return found

    def _in_order(self, readers: tuple[Reader, ...]) -> tuple[Reader, ...]:
        """`readers`; of many, those of a kind one after the other, which mostly read the same."""
        return readers if len(readers) <= JOINT_READERS else tuple(sorted(readers, key=lambda r: self._kind(r.end)))

    def copies(self, tensor: Tensor, counts: Counts, share: int) -> list[Copies]:
        """What may be made again of `tensor`, which occurs so often at every place: for its first readers, and for every further
        one, as in `terms`. So many tensors `share` the Cast that makes them.
        """
        cast = tuple(r for r in tensor.readers if self._is_cast(tensor, r))
        readers = self._in_order(tuple(replace(r, kept=False) if r in cast else r for r in tensor.readers))
        found = [self._copies(tensor, readers[:JOINT_READERS], counts, share)] if readers else []
        for number, reader in enumerate(readers[JOINT_READERS:], start=JOINT_READERS):
            # Others may keep the same copy, and memory must not be overstated.
            one = replace(reader, kept=False) if any(map(self._keeps, readers[:number])) else reader
            found.append(self._copies(tensor, (one,), counts, share))
        return found + [one for reader in cast for one in self._cast_copies(tensor, reader, counts, len(cast))]

    def _is_cast(self, tensor: Tensor, reader: Reader) -> bool:
        """Whether a Cast behind a Reshape, which may be made again, makes of `tensor` what the gradient of `reader` needs."""
        return self._keeps(reader) and reader.kept_as != tensor.dtype and tensor.in_block and bool(self._again)

    def _cast_copies(self, tensor: Tensor, reader: Reader, counts: Counts, share: int) -> Iterator[Copies]:
        """For a reader whose gradient needs a Cast of its copy of `tensor`; so many `share` that Cast at most.

        Where that copy is smaller than what its maker leaves, it may be kept instead: then nothing else is certainly needed.
        """
        scope, table, ways = self._written(tensor, (reader,))
        (makers, _), (wanted, _) = (
            self._layouts_at(tensor.maker, tensor.shape),
            self._layouts_at(reader.end, tensor.reader_shape),
        )

        def kept_B(is_smaller: bool) -> Array:
            made_B, read_B = (
                ways.spread(slices_B(self._known, layouts, tensor.dtype, tensor.power), axis)
                for axis, layouts in enumerate((makers, wanted))
            )
            return np.where((read_B < made_B) == is_smaller, self._kept_B(tensor, (reader,), ways), 0.0)

        def cast_s() -> Array:
            seconds = transparent_s(self._known.pricer, wanted, tensor.dtype, reader.kept_as, tensor.power)
            return np.broadcast_to(ways.spread(seconds, 1), ways.shape)

        again_s = table("cast again", reader.kept_as, written=cast_s) / share
        of_copy = Origin(tensor.origin.root, is_near=False)
        of_maker = replace(tensor.origin, cast_of=tensor.dtype, is_near=tensor.origin == Origin(tensor.origin.root))
        for is_smaller, origin in ((False, of_maker), (True, of_copy)):
            moved_B = table("cast kept", reader.kept_as, tensor.maker_keeps, is_smaller, written=partial(kept_B, is_smaller))
            if moved_B.any():
                yield Copies(
                    origin, tensor.dtype, reader.kept_as, scope, counts, None, moved_B, again_s, (), None, None
                )

    def _cast_s(self, tensor: Tensor, ways: FanOut, made: str) -> Array:
        """Seconds of the Cast that makes `tensor` of what its maker leaves in element type `made`, for all ways."""
        makers, _ = self._layouts_at(tensor.maker, tensor.shape)
        seconds = transparent_s(self._known.pricer, makers, made, tensor.dtype, tensor.power)
        return np.broadcast_to(ways.spread(seconds, 0), ways.shape)

    def _copies(self, tensor: Tensor, readers: tuple[Reader, ...], counts: Counts, share: int) -> Copies:
        scope, table, ways = self._written(tensor, readers)
        cast_of = tensor.origin.cast_of
        keeps = tuple(self._keeps(r) for r in readers)
        unmoved_B = moved_B = unread_B = None
        moves_s: Array = np.zeros(())
        if any(keeps) and self._again and (tensor.in_block or self._in_block(readers)):
            again = tuple(
                keeps and (tensor.in_block or r.moved_inside) for keeps, r in zip(keeps, readers, strict=True)
            )
            unmoved_B, moved_B = (
                table(
                    "kept",
                    keeps,
                    tensor.maker_keeps,
                    moved,
                    written=partial(self._kept_B, tensor, readers, ways, moved),
                )
                for moved in (False, True)
            )
            if tensor.maker == tensor.origin.root and cast_of is None and self._is_read_here_alone(tensor):
                unread_B = table("unread", keeps, written=lambda: self._unread_B(tensor, readers, ways))
            is_cast = cast_of is not None and tensor.in_block
            if is_cast:
                moved_B, unmoved_B = moved_B + unmoved_B, None
            elif not tensor.in_block or tensor.origin.root[0] not in self._again:
                unmoved_B = None
            what = again, cast_of if is_cast else None, share
            copies = lru_cache(lambda: self._moved_again(tensor, readers, *what))
            moves_s = table("copies", what, tensor.maker_keeps, written=lambda: copies()[0])
            is_one = table("is one", what, tensor.maker_keeps, written=lambda: copies()[1])
        unmoved_B, moved_B = (t if t is not None and t.any() else None for t in (unmoved_B, moved_B))
        fetches = tuple(self._fetch(tensor, readers, r) for r in readers if self._is_needy(r))
        dtype = cast_of or tensor.dtype
        summing = None if moved_B is None else self._summing(tensor, readers, is_one > 0)
        return Copies(
            tensor.origin, dtype, tensor.dtype, scope, counts, unmoved_B, moved_B, moves_s, fetches, unread_B, summing
        )

    def _moved_again(
        self, tensor: Tensor, readers: tuple[Reader, ...], again: tuple[bool, ...], cast_of: str | None, share: int
    ) -> tuple[Array, Array]:
        """Seconds of making all copies of `tensor` again that gradients read, of a Cast of `cast_of` too; and 1 where they are one.

        Where there are several, some may be made again alone. That takes no less than the slowest of them does, and saves no more
        than all that are no slower: so all together count at the least such rate.
        """
        _, _, ways = self._written(tensor, readers)
        every_s = _possible(ways.forward_s(again))
        if cast_of is not None:
            every_s = every_s + (cast_s := self._cast_s(tensor, ways, cast_of) / share)
        chosen = [n for n, is_there in enumerate(again) if is_there]
        if len(chosen) < 2:
            return every_s, np.ones(every_s.shape)

        def size_B(some: Sequence[int]) -> Array:
            only = tuple(replace(r, kept=n in some) for n, r in enumerate(readers))
            return self._kept_B(tensor, only, ways, True if cast_of is None else None)

        every_B, each_B = size_B(chosen), [size_B([n]) for n in chosen]
        each_s = [_possible(ways.spread(ways.pairs[n].forward_s, 0, n + 1)) for n in chosen]
        each_s = each_s if cast_of is None else [one_s + cast_s for one_s in each_s]
        is_one, rate = np.ones(every_B.shape), np.full(every_B.shape, FAST)
        for mine_s, mine_B in zip(each_s, each_B, strict=True):
            is_one[(mine_B > 0) & (mine_B < every_B)] = 0.0
            with_B = sum(np.where(its_s <= mine_s, its_B, 0.0) for its_s, its_B in zip(each_s, each_B, strict=True))
            rate = np.minimum(rate, np.where(mine_B > 0, mine_s / np.maximum(with_B, 1.0), FAST))
        return np.where(is_one > 0, every_s, np.minimum(every_s, rate * every_B)), is_one

    def _summing(
        self, tensor: Tensor, readers: tuple[Reader, ...], is_one: NDArray[np.bool_]
    ) -> tuple[int, NDArray[np.bool_]] | None:
        """As `Copies.summing`: of several readers that whose sums take the longest. What is moved before a Reshape goes with that."""
        if tensor.shape != tensor.reader_shape:
            return None
        scope, table, ways = self._written(tensor, readers)
        found, longest_s = None, 0.0
        for place, reader in enumerate(readers):
            number = reader.end[0]
            combine_s = self._known.items[number].combine_s if number >= 0 else np.zeros((1, 1))
            if not self._keeps(reader) or (most_s := float(combine_s.max(where=combine_s < np.inf, initial=0.0))) <= longest_s:
                continue
            one = ways.spread(ways.pairs[place].moves, 0, place + 1)
            moves = table("moves", place, written=partial(np.broadcast_to, one, ways.shape))
            sums = combine_s.reshape(len(combine_s), *(-1 if v == number else 1 for v in scope)) > 0
            both = moves.astype(bool) & sums & is_one
            if both.any():
                found, longest_s = (number, both), most_s
        return found

    def _is_read_here_alone(self, tensor: Tensor) -> bool:
        """Whether one table says in which layouts gradients read `tensor` where it was made."""
        kept = [r for r in tensor.readers if r.kept]
        return not tensor.maker_keeps and len(tensor.readers) <= JOINT_READERS and all(map(self._keeps, kept))

    def _unread_B(self, tensor: Tensor, readers: tuple[Reader, ...], ways: FanOut) -> Array:
        makers, _ = self._layouts_at(tensor.maker, tensor.shape)
        bytes_ = ways.spread(slices_B(self._known, makers, tensor.dtype, tensor.power), 0)
        return np.where(self._kept_B(tensor, readers, ways, moved=False) > 0, 0.0, bytes_)

    def _is_needy(self, reader: Reader) -> bool:
        """Whether `reader` is made again in the block that makes the tensor, and its gradient does not read it."""
        return not reader.kept and reader.inside and reader.end[0] in self._again

    def _fetch(self, tensor: Tensor, readers: tuple[Reader, ...], reader: Reader) -> Fetch:
        """For one of `readers`. Readers that read the same copy share it: of what each would take alone, each has its part."""
        kept = tuple(r for r in tensor.readers if r.kept)
        share = sum(self._is_needy(r) for r in tensor.readers)
        among = (*(r for r in readers if r.kept), reader)
        scope, table, ways = self._written(tensor, among)
        only = tuple(r is reader for r in among)
        if len(kept) > len(among) - 1:
            # Some gradient of other readers may read the same copy.
            nothing = np.zeros_like(table("fetched", only, written=lambda: _possible(ways.forward_s(only))))
            return Fetch(reader.end[0], scope, nothing, nothing)
        moves_s = table("fetched", only, written=lambda: _possible(ways.forward_s(only)))
        kept_B = table("held", only, written=lambda: self._held_B(tensor, among, ways))
        return Fetch(reader.end[0], scope, kept_B / share, moves_s / share)

    def _held_B(self, tensor: Tensor, among: tuple[Reader, ...], ways: FanOut) -> Array:
        """Bytes of what the last one of `among` reads, nothing where it is what the gradient of another one reads."""
        wanted = [self._layouts_at(r.end, tensor.reader_shape)[0] for r in among]
        last = len(among) - 1
        bytes_ = ways.spread(slices_B(self._known, wanted[last], tensor.dtype, tensor.power), last + 1)
        new = np.ones((), bool)
        for place in range(last):
            new = new & ~ways.spread(same_layout(wanted[place], wanted[last]), place + 1, last + 1)
        return np.where(new, bytes_, 0.0) * np.ones(ways.shape)

    def _group(self, tensor: Tensor, readers: tuple[Reader, ...], counts: Counts) -> Terms:
        """The table of one tensor and its first readers: what their ways have in common is paid once."""
        numbers, table, ways = self._written(tensor, readers)
        every, made_again = (True,) * len(readers), self._made_again(tensor, readers)
        keeps = tuple(self._keeps(r) for r in readers)
        forward = table("forward", every, written=lambda: ways.forward_s(every))
        again = kept = backward = None
        if any(made_again):
            again = table("again", made_again, written=lambda: _possible(ways.forward_s(made_again)))
        if tensor.has_gradient:
            sent, others = tuple(int(r.sends) for r in readers), tensor.others
            backward = table(
                "backward", sent, others, written=lambda: self._backward_s(tensor, ways.backward_s, sent, others)
            )
        if any(keeps):
            kept = table("kept", keeps, tensor.maker_keeps, written=lambda: self._kept_B(tensor, readers, ways))
        recomputed = None if (tensor.in_block and self._again) or self._in_block(readers) else kept
        return terms(
            numbers, counts, forward.shape, forward, again, backward, kept_B=kept, kept_recomputed_B=recomputed
        )

    def _joined(self, tensor: Tensor, readers: tuple[Reader, ...], counts: Counts) -> Terms:
        """The table of what the last of `readers` adds to what the others cost, seen beside the first one and the one before it.

        Where it shares with another one of them alone, that is too much (README, Limits). Its copy is counted as kept where no
        other one keeps any: they may keep the same.
        """
        among = self._beside(tensor, readers)
        numbers, table, ways = self._written(tensor, among)
        last, every, made_again = len(among) - 1, (True,) * len(among), self._made_again(tensor, among)
        forward = table("joins", every, written=lambda: ways.forward_s(every, last))
        again = kept = backward = None
        if made_again[-1]:
            again = table("joins again", made_again, written=lambda: _possible(ways.forward_s(made_again, last)))
        if tensor.has_gradient:
            sent, others = self._gradients(tensor.others, readers, len(among))
            backward = table(
                "joins back", sent, others, written=lambda: self._backward_s(tensor, ways.joining_s, sent, others)
            )
        if self._keeps(readers[-1]) and not any(map(self._keeps, readers[:-1])):
            alone = (*(replace(r, kept=False) for r in among[:-1]), among[-1])
            kept = table("joins kept", tensor.maker_keeps, written=lambda: self._kept_B(tensor, alone, ways))
        recomputed = None if (tensor.in_block and self._again) or self._in_block(among) else kept
        return terms(
            numbers, counts, forward.shape, forward, again, backward, kept_B=kept, kept_recomputed_B=recomputed
        )

    def _beside(self, tensor: Tensor, readers: tuple[Reader, ...]) -> tuple[Reader, ...]:
        """Those of `readers` that the last one is seen beside, and itself."""
        among = (readers[0], *readers[-2:])
        variables = {end[0] for end in (tensor.maker, *(r.end for r in among)) if end[0] >= 0}
        entries = math.prod(len(self._known.items[v].strategies) for v in variables)
        return among if entries <= JOINT_ENTRIES else (readers[0], readers[-1])

    def _gradients(self, others: int, readers: tuple[Reader, ...], seen: int) -> tuple[tuple[int, ...], int]:
        """For how many gradients of `readers` each of those stands that are `seen` together, two or three, and how many meet
        these beside. Those of a kind are taken to come as one of them does; of a kind that is not seen, unmoved.
        """
        first, before = self._kind(readers[0].end), self._kind(readers[-2].end)
        sent, last = sum(r.sends for r in readers[:-1]), int(readers[-1].sends)
        late = sum(r.sends for r in readers[:-1] if self._kind(r.end) != first)
        if seen == 2:
            return (sent - late, last), others + late
        late = late if before != first else int(readers[-2].sends)
        return (sent - late, late, last), others

    def _made_again(self, tensor: Tensor, readers: tuple[Reader, ...]) -> tuple[bool, ...]:
        """Which of `readers` get their copy moved again: what a recomputed operator reads, and what a gradient reads of what a
        block makes or moves.
        """
        repeats = bool(self._again)
        return tuple(
            (tensor.in_block or r.moved_inside) and (r.end[0] in self._again or (repeats and r.kept)) for r in readers
        )

    def _written(
        self, tensor: Tensor, readers: tuple[Reader, ...]
    ) -> tuple[tuple[int, ...], Callable[..., Array], FanOut]:
        """The variables of the ways of `tensor` to `readers`, in order; how tables over them are written; and the ways."""
        scope = [tensor.maker[0], *(r.end[0] for r in readers)]
        numbers = sorted({v for v in scope if v >= 0})
        axes = tuple(numbers.index(v) if v >= 0 else -1 for v in scope)
        move = (
            self._kind(tensor.maker), tuple((self._kind(r.end), r.kept_as) for r in readers),
            tensor.shape, tensor.reader_shape, tensor.dtype, tensor.power,
        )  # fmt: skip
        if move not in self._ways:
            self._ways[move] = self._ways_of(tensor, readers)
        ways, which = self._ways[move]
        # An end at the network's border has one layout; several ends of one variable take their layouts together.
        along = [[-1 if v == axis else 1 for v in range(len(numbers))] for axis in axes]
        index: tuple[Any, ...] = (slice(None), *(one.reshape(n) for one, n in zip(which, along, strict=True)))

        def table(*what: object, written: Callable[[], Array]) -> Array:
            """[members, values of every variable of the scope]: for the candidates, what is `written` for different layouts."""
            key = (axes, move, what)
            if key not in self._tables:
                self._tables[key] = np.ascontiguousarray(written()[index])
            return self._tables[key]

        return tuple(numbers), table, ways

    def groups(self, tensor: Tensor, reader: Reader, bits: Mapping[int, int]) -> tuple[tuple[int, ...], NDArray[np.intp]]:
        """Among which groups `tensor` is moved to `reader`: a table over the variables of its scope, of the sums of the `bits` of
        these groups' codes (`Family.code`).
        """
        scope, table, ways = self._written(tensor, (reader,))

        def written() -> Array:
            found = [sum(bits[code] for code in codes) for codes in self._pairs.groups(ways.pairs[0].ways)]
            return np.array(found, dtype=float).reshape(1, *ways.shape[1:])

        return scope, table("groups", written=written)[0].astype(np.intp)

    def passing(self, behind: Counts) -> list[Terms]:
        """The bytes of what is there for the turn alone; `behind`: the counts of an operator behind the blocks."""
        found = []
        for one in self._turn.passing:
            size = slices_B(self._known, layouts_at(self._known, one.end, one.kind.shape), one.kind.dtype, one.power)
            found.append(terms((one.end[0],), behind, size.shape, kept_B=size, kept_recomputed_B=size))
        return found

    def _keeps(self, reader: Reader) -> bool:
        """Whether what the reader's gradient reads is there at the turn."""
        return reader.kept and self._turn.keeps(reader.end)

    def _kind(self, end: End) -> tuple[int, str, int]:
        """What decides the layouts at `end`."""
        number, side, position = end
        return (-1 if number < 0 else self._known.items[number].kind, side, position)

    def _in_block(self, readers: tuple[Reader, ...]) -> bool:
        return all(r.end[0] >= 0 and self._known.items[r.end[0]].op.block is not None for r in readers)

    def _layouts_at(self, end: End, shape: tuple[int, ...]) -> tuple[tuple[Layout, ...], NDArray[np.intp]]:
        """The different layouts at `end` of a tensor of `shape`, and which one each candidate has."""
        key = (self._kind(end), shape)
        if key not in self._layouts:
            self._layouts[key] = distinct(layouts_at(self._known, end, shape))
        return self._layouts[key]

    def _ways_of(self, tensor: Tensor, readers: tuple[Reader, ...]) -> "_Ways":
        """The ways of `tensor` to `readers` for the different layouts of every end, of which there are fewer than candidates; and
        which of these every candidate has, end by end.
        """
        (makers, *wanted), which = zip(
            self._layouts_at(tensor.maker, tensor.shape),
            *(self._layouts_at(r.end, tensor.reader_shape) for r in readers),
            strict=True,
        )
        pairs = tuple(self._pairs.cost(makers, x, tensor.dtype, tensor.power) for x in wanted)
        return FanOut(pairs, self._known.pricer), which

    def _backward_s(
        self, tensor: Tensor, seconds: Callable[..., Array], gradients: tuple[int, ...], others: int
    ) -> Array:
        makers, _ = self._layouts_at(tensor.maker, tensor.shape)
        return seconds(gradients, others, slices_B(self._known, makers, tensor.dtype, tensor.power))

    def _kept_B(self, tensor: Tensor, readers: tuple[Reader, ...], ways: FanOut, moved: bool | None = None) -> Array:
        """Bytes kept: of every layout that readers keep once, unless the maker keeps the same; of what is `moved`, or not."""
        kept = ways.nothing
        wanted = [self._layouts_at(r.end, tensor.reader_shape)[0] for r in readers]
        for i, reader in enumerate(readers):
            if self._keeps(reader):
                bytes_ = ways.spread(slices_B(self._known, wanted[i], reader.kept_as, tensor.power), i + 1)
                new = np.ones((), bool)
                for j in range(i):
                    if self._keeps(readers[j]):
                        new = new & ~ways.spread(same_layout(wanted[j], wanted[i]), j + 1, i + 1)
                if tensor.maker_keeps or tensor.maker[0] < 0:  # the network's inputs are there anyway
                    new = new & ways.spread(ways.pairs[i].moves, 0, i + 1)
                if moved is not None:
                    new = new & (ways.spread(ways.pairs[i].moves, 0, i + 1) == moved)
                kept += np.where(new, bytes_, 0.0)
        return kept


_Ways = tuple[FanOut, tuple[NDArray[np.intp], ...]]


def _possible(seconds: Array) -> Array:
    """`seconds`, nothing where there is no way: what is done again was done before."""
    return np.where(np.isinf(seconds), 0.0, seconds)


def slices_B(known: Variables, layouts: Sequence[Layout], dtype: str, power: int) -> Array:
    """Bytes of one device's slice in each layout: [members, layouts]."""
    return known.pricer.slices_B(layouts, size_B(dtype), power)
