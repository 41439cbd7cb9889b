"""What gradients keep of the tensors between operators, and what it takes to make that again: a table for each, or for several
readers together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.folded.places import Counts
from ms_symtensor.search.tables.fan_out import FanOut
from ms_symtensor.search.tables.moves import same_layout
from ms_symtensor.search.tables.tensor_terms import JOINT_READERS, TensorTables, possible, slices_B
from ms_symtensor.search.tables.tensors import Origin, Reader, Tensor
from ms_symtensor.search.tables.variables import transparent_s

Array = NDArray[np.float64]

FAST = 1e-3
"""More seconds per byte than anything takes (empirical: a megabyte in a quarter of an hour)."""


SUMMING = 2
"""Over so many variables tables tell of sums that go with moves: larger ones would be there twice, and show little more
(empirical: a search takes 4 % longer with them, and a fifth more memory).
"""


@dataclass(frozen=True)
class Fetch:
    """What it takes to bring a tensor once more to the variable `reader`, whose gradient does not read it: moves of `moves_s`,
    and the Cast that makes it in `cast_s`; or `kept_B` that are kept until then; tables over `scope`. Nothing where a gradient
    reads what it reads.
    """

    reader: int
    scope: tuple[int, ...]
    kept_B: Array
    moves_s: Array
    cast_s: Array


@dataclass(frozen=True)
class Moved:
    """Copies of `size_B` that a Cast or moves make again in `again_s`. `summing`: a reader that has partial sums, if there is
    one, and the layouts in which it has, and what is moved is its copy alone.
    """

    again_s: Array
    size_B: Array
    summing: tuple[int, NDArray[np.bool_]] | None = None


@dataclass(frozen=True)
class Copies:
    """What gradients keep of a tensor in a block, and what it takes to make that again: tables over `scope` as in `Terms`.

    `unmoved_B`: bytes of what an operator leaves as it is; `moved`: what a Cast or moves make of that, the copy of the first
    reader and those of the others. `fetches`: for the readers whose gradients do not read it. `dtype`: the element type of what
    the Cast or the moves read, `made_dtype` that of what the Cast makes. `unread_B`: bytes of what the maker leaves where no
    gradient reads it as it is, 0 elsewhere; None where others may read it so.
    """

    origin: Origin
    dtype: str
    made_dtype: str
    scope: tuple[int, ...]
    counts: Counts
    unmoved_B: Array | None
    moved: tuple[Moved, ...]
    fetches: tuple[Fetch, ...]
    unread_B: Array | None


class CopyTables:
    """Writes down what may be made again of tensors whose other tables are those `of` the same problem."""

    def __init__(self, of: TensorTables) -> None:
        self._of = of

    def every(self, tensor: Tensor, counts: Counts, share: int) -> list[Copies]:
        """What may be made again of `tensor`, which occurs so often at every place: for its first readers, and for every further
        one, as in `terms`. So many tensors `share` the Cast that makes them.
        """
        cast = tuple(r for r in tensor.readers if self._is_cast(tensor, r))
        others = tuple(replace(r, kept=False, inside=False) if r in cast else r for r in tensor.readers)
        readers = self._of.in_order(others)
        found = [self._together(tensor, readers[:JOINT_READERS], counts, share)] if readers else []
        for number, reader in enumerate(readers[JOINT_READERS:], start=JOINT_READERS):
            # Others may keep the same copy, and memory must not be overstated.
            one = replace(reader, kept=False) if any(map(self._of.keeps, readers[:number])) else reader
            found.append(self._together(tensor, (one,), counts, share))
        return found + [one for reader in cast for one in self._cast_copies(tensor, reader, counts, len(cast))]

    def _is_cast(self, tensor: Tensor, reader: Reader) -> bool:
        """Whether a Cast behind a Reshape, which may be made again, makes of `tensor` what the gradient of `reader` needs."""
        return self._of.keeps(reader) and reader.kept_as != tensor.dtype and tensor.in_block and bool(self._of.again)

    def _cast_copies(self, tensor: Tensor, reader: Reader, counts: Counts, share: int) -> Iterator[Copies]:
        """For a reader whose gradient needs a Cast of its copy of `tensor`; so many `share` that Cast at most.

        Where that copy is smaller than what its maker leaves, it may be kept instead: then nothing else is certainly needed.
        """
        scope, table, ways = self._of.written(tensor, (reader,))
        (makers, _), (wanted, _) = (
            self._of.layouts_at(tensor.maker, tensor.shape),
            self._of.layouts_at(reader.end, tensor.reader_shape),
        )

        def kept_B(is_smaller: bool) -> Array:
            made_B, read_B = (
                ways.spread(slices_B(self._of.known, layouts, tensor.dtype, tensor.power), axis)
                for axis, layouts in enumerate((makers, wanted))
            )
            return np.where((read_B < made_B) == is_smaller, self._of.kept_B(tensor, (reader,), ways), 0.0)

        def cast_s() -> Array:
            seconds = transparent_s(self._of.known.pricer, wanted, tensor.dtype, reader.kept_as, tensor.power)
            return np.broadcast_to(ways.spread(seconds, 1), ways.shape)

        again_s = table("cast again", reader.kept_as, written=cast_s) / share
        of_copy = Origin(tensor.origin.root, is_near=False)
        of_maker = replace(tensor.origin, cast_of=tensor.dtype, is_near=tensor.origin == Origin(tensor.origin.root))
        for is_smaller, origin in ((False, of_maker), (True, of_copy)):
            moved_B = table(
                "cast kept", reader.kept_as, tensor.maker_keeps, is_smaller, written=partial(kept_B, is_smaller)
            )
            if moved_B.any():
                moved = (Moved(again_s, moved_B),)
                yield Copies(origin, tensor.dtype, reader.kept_as, scope, counts, None, moved, (), None)

    def _cast_s(self, tensor: Tensor, ways: FanOut, made: str) -> Array:
        """Seconds of the Cast that makes `tensor` of what its maker leaves in element type `made`, for all ways."""
        makers, _ = self._of.layouts_at(tensor.maker, tensor.shape)
        seconds = transparent_s(self._of.known.pricer, makers, made, tensor.dtype, tensor.power)
        return np.broadcast_to(ways.spread(seconds, 0), ways.shape)

    def _together(self, tensor: Tensor, readers: tuple[Reader, ...], counts: Counts, share: int) -> Copies:
        """For readers that share a table."""
        scope, table, ways = self._of.written(tensor, readers)
        cast_of, keeps = tensor.origin.cast_of, tuple(self._of.keeps(r) for r in readers)
        unmoved_B = unread_B = None
        moved: tuple[Moved, ...] = ()
        if any(keeps) and self._of.again and (tensor.in_block or self._of.in_block(readers)):
            if tensor.maker == tensor.origin.root and cast_of is None and self._is_read_here_alone(tensor):
                unread_B = table("unread", keeps, written=lambda: self._unread_B(tensor, readers, ways))
            is_cast = cast_of is not None and tensor.in_block
            if not is_cast and tensor.in_block and tensor.origin.root[0] in self._of.again:
                found_B = table(
                    "unmoved", keeps, tensor.maker_keeps, written=lambda: self._kept_B(tensor, readers, False)
                )
                unmoved_B = found_B if found_B.any() else None
            moved = self._moved(tensor, readers, cast_of if is_cast else None, share)
        fetches = tuple(self._fetch(tensor, readers, r, share) for r in readers if self._is_needy(r))
        dtype = cast_of or tensor.dtype
        return Copies(tensor.origin, dtype, tensor.dtype, scope, counts, unmoved_B, moved, fetches, unread_B)

    def _kept_B(self, tensor: Tensor, readers: tuple[Reader, ...], moved: bool | None) -> Array:
        """Bytes of what is `moved`, or not, for all ways."""
        _, _, ways = self._of.written(tensor, readers)
        return self._of.kept_B(tensor, readers, ways, moved)

    def _moved(self, tensor: Tensor, readers: tuple[Reader, ...], cast_of: str | None, share: int) -> tuple[Moved, ...]:
        """What is moved, or cast, to those of `readers` whose gradients read it: the copy of the first, and those of others."""
        _, table, _ = self._of.written(tensor, readers)
        chosen = tuple(n for n, r in enumerate(readers) if self._of.keeps(r) and (tensor.in_block or r.moved_inside))
        key = chosen, tuple(self._of.keeps(r) for r in readers), cast_of, share, tensor.maker_keeps
        parts = cache(lambda: self._parts(tensor, readers, chosen, cast_of, share))
        found = []
        for part in range(min(2, len(chosen))):
            again_s, size_B, is_one = (
                table("moved", key, part, n, written=lambda part=part, n=n: parts()[part][n]) for n in range(3)
            )
            if size_B.any():
                summing = self._summing(tensor, readers, chosen, part, is_one.astype(bool))
                found.append(Moved(again_s, size_B, summing))
        return tuple(found)

    def _parts(
        self, tensor: Tensor, readers: tuple[Reader, ...], chosen: tuple[int, ...], cast_of: str | None, share: int
    ) -> tuple[tuple[Array, Array, Array], ...]:
        """Of the copy of the first of the `chosen` readers, and of those of the others, seconds, bytes, and whether they are one.

        The first one pays for the Cast, and for what ways have in common: whichever are made again, they pay no more together
        than that takes. Of several other copies, some take no less than the slowest of them does, and save no more than all that
        are no slower: so these together count at the least such rate.
        """
        _, _, ways = self._of.written(tensor, readers)
        first, *others = chosen

        def seconds(some: Sequence[int]) -> Array:
            return possible(ways.forward_s([n in some for n in range(len(readers))]))

        def size_B(some: Sequence[int]) -> Array:
            only = tuple(replace(r, kept=n in some) for n, r in enumerate(readers))
            return self._kept_B(tensor, only, True if cast_of is None else None)

        first_s, first_B = seconds([first]), size_B([first])
        cast_s = np.zeros(()) if cast_of is None else self._cast_s(tensor, ways, cast_of) / share
        one = np.ones(first_B.shape, bool)
        mine = first_s + cast_s, first_B, one
        if not others:
            return (mine,)
        rest_s, rest_B = seconds(chosen) - first_s, size_B(chosen) - first_B
        if len(others) == 1:
            return mine, (rest_s, rest_B, one)
        each_s = [seconds([first, n]) - first_s for n in others]
        each_B = [size_B([first, n]) - first_B for n in others]
        is_one, rate = one, np.full(one.shape, FAST)
        for its_s, its_B in zip(each_s, each_B, strict=True):
            is_one = is_one & ((its_B == 0) | (its_B == rest_B))
            with_B = sum(np.where(s <= its_s, b, 0.0) for s, b in zip(each_s, each_B, strict=True))
            rate = np.minimum(rate, np.where(its_B > 0, its_s / np.maximum(with_B, 1.0), FAST))
        return mine, (np.where(is_one, rest_s, np.minimum(rest_s, rate * rest_B)), rest_B, is_one)

    def _summing(
        self,
        tensor: Tensor,
        readers: tuple[Reader, ...],
        chosen: tuple[int, ...],
        part: int,
        is_one: NDArray[np.bool_],
    ) -> tuple[int, NDArray[np.bool_]] | None:
        """As `Moved.summing`: of several that whose sums take the longest. What is moved before a Reshape goes with it."""
        scope, table, ways = self._of.written(tensor, readers)
        if tensor.shape != tensor.reader_shape or len(scope) > SUMMING:
            return None
        wanted = [self._of.layouts_at(r.end, tensor.reader_shape)[0] for r in readers]
        found, longest_s = None, 0.0
        for place in chosen[part:]:
            number = readers[place].end[0]
            if number < 0:
                continue
            combine_s = self._of.known.items[number].combine_s
            most_s = float(combine_s.max(where=combine_s < np.inf, initial=0.0))
            if most_s <= longest_s:
                continue

            def moves(place: int = place) -> Array:
                there = ways.spread(ways.pairs[place].moves, 0, place + 1)
                if place != chosen[0]:
                    same = same_layout(wanted[chosen[0]], wanted[place])
                    there = there & (ways.spread(same, chosen[0] + 1, place + 1) == (part == 0))
                return np.broadcast_to(there, ways.shape)

            sums = combine_s.reshape(len(combine_s), *(-1 if v == number else 1 for v in scope)) > 0
            both = table("moves", chosen[0], place, part, written=moves).astype(bool) & sums & is_one
            if both.any():
                found, longest_s = (number, both), most_s
        return found

    def _is_read_here_alone(self, tensor: Tensor) -> bool:
        """Whether one table says in which layouts gradients read `tensor` where it was made."""
        kept = [r for r in tensor.readers if r.kept]
        return not tensor.maker_keeps and len(tensor.readers) <= JOINT_READERS and all(map(self._of.keeps, kept))

    def _unread_B(self, tensor: Tensor, readers: tuple[Reader, ...], ways: FanOut) -> Array:
        makers, _ = self._of.layouts_at(tensor.maker, tensor.shape)
        bytes_ = ways.spread(slices_B(self._of.known, makers, tensor.dtype, tensor.power), 0)
        return np.where(self._of.kept_B(tensor, readers, ways, moved=False) > 0, 0.0, bytes_)

    def _is_needy(self, reader: Reader) -> bool:
        """Whether `reader` is made again in the block that makes the tensor, and its gradient does not read it."""
        return not reader.kept and reader.inside and reader.end[0] in self._of.again

    def _fetch(self, tensor: Tensor, readers: tuple[Reader, ...], reader: Reader, share: int) -> Fetch:
        """For one of `readers`. Readers that read the same copy share it: of what each would take alone, each has its part; as
        they have of the Cast that so many tensors `share`.
        """
        kept = tuple(r for r in tensor.readers if r.kept)
        needy, cast_of = sum(self._is_needy(r) for r in tensor.readers), tensor.origin.cast_of
        among = (*(r for r in readers if r.kept), reader)
        scope, table, ways = self._of.written(tensor, among)
        only = tuple(r is reader for r in among)
        moves_s = table("fetched", only, written=lambda: possible(ways.forward_s(only)))
        nothing = np.zeros_like(moves_s)
        if len(kept) > len(among) - 1:  # Some gradient of other readers may read the same copy.
            return Fetch(reader.end[0], scope, nothing, nothing, nothing)
        kept_B = table("held", only, written=lambda: self._held_B(tensor, among, ways))
        cast_s = nothing
        if cast_of is not None and tensor.in_block and not kept:
            cast_s = table("cast", cast_of, written=lambda: self._cast_s(tensor, ways, cast_of)) / share
        return Fetch(reader.end[0], scope, kept_B / needy, moves_s / needy, cast_s / needy)

    def _held_B(self, tensor: Tensor, among: tuple[Reader, ...], ways: FanOut) -> Array:
        """Bytes of what the last one of `among` reads, nothing where it is what the gradient of another one reads."""
        wanted = [self._of.layouts_at(r.end, tensor.reader_shape)[0] for r in among]
        last = len(among) - 1
        bytes_ = ways.spread(slices_B(self._of.known, wanted[last], tensor.dtype, tensor.power), last + 1)
        new = np.ones((), bool)
        for place in range(last):
            new = new & ~ways.spread(same_layout(wanted[place], wanted[last]), place + 1, last + 1)
        return np.where(new, bytes_, 0.0) * np.ones(ways.shape)
