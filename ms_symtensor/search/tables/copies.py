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
class Copies:
    """What gradients keep of a tensor in a block, and what it takes to make that again: tables over `scope` as in `Terms`.

    `unmoved_B`: bytes of what an operator leaves as it is; `moved_B`: of what a Cast or moves make of that in `moves_s`.
    `fetches`: for the readers whose gradients do not read it. `dtype`: the element type of what the Cast or the moves read,
    `made_dtype` that of what the Cast makes.
    `unread_B`: bytes of what the maker leaves where no gradient reads it as it is, 0 elsewhere; None where others may read it so.
    `summing`: a reader that has partial sums, if there is one, and the layouts in which it has and what is moved is its copy.
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
                yield Copies(
                    origin, tensor.dtype, reader.kept_as, scope, counts, None, moved_B, again_s, (), None, None
                )

    def _cast_s(self, tensor: Tensor, ways: FanOut, made: str) -> Array:
        """Seconds of the Cast that makes `tensor` of what its maker leaves in element type `made`, for all ways."""
        makers, _ = self._of.layouts_at(tensor.maker, tensor.shape)
        seconds = transparent_s(self._of.known.pricer, makers, made, tensor.dtype, tensor.power)
        return np.broadcast_to(ways.spread(seconds, 0), ways.shape)

    def _together(self, tensor: Tensor, readers: tuple[Reader, ...], counts: Counts, share: int) -> Copies:
        scope, table, ways = self._of.written(tensor, readers)
        cast_of = tensor.origin.cast_of
        keeps = tuple(self._of.keeps(r) for r in readers)
        unmoved_B = moved_B = unread_B = None
        moves_s: Array = np.zeros(())
        if any(keeps) and self._of.again and (tensor.in_block or self._of.in_block(readers)):
            again = tuple(
                keeps and (tensor.in_block or r.moved_inside) for keeps, r in zip(keeps, readers, strict=True)
            )
            unmoved_B, moved_B = (
                table(
                    "kept",
                    keeps,
                    tensor.maker_keeps,
                    moved,
                    written=partial(self._of.kept_B, tensor, readers, ways, moved),
                )
                for moved in (False, True)
            )
            if tensor.maker == tensor.origin.root and cast_of is None and self._is_read_here_alone(tensor):
                unread_B = table("unread", keeps, written=lambda: self._unread_B(tensor, readers, ways))
            is_cast = cast_of is not None and tensor.in_block
            if is_cast:
                moved_B, unmoved_B = moved_B + unmoved_B, None
            elif not tensor.in_block or tensor.origin.root[0] not in self._of.again:
                unmoved_B = None
            what = again, cast_of if is_cast else None, share
            copies = cache(lambda: self._moved_again(tensor, readers, *what))
            moves_s = table("copies", what, tensor.maker_keeps, written=lambda: copies()[0])
            is_one = table("is one", what, tensor.maker_keeps, written=lambda: copies()[1])
        unmoved_B, moved_B = (t if t is not None and t.any() else None for t in (unmoved_B, moved_B))
        fetches = tuple(self._fetch(tensor, readers, r, share) for r in readers if self._is_needy(r))
        dtype = cast_of or tensor.dtype
        summing = None if moved_B is None else self._summing(tensor, readers, is_one > 0)
        return Copies(
            tensor.origin, dtype, tensor.dtype, scope, counts, unmoved_B, moved_B, moves_s, fetches, unread_B, summing
        )

    def _moved_again(
        self, tensor: Tensor, readers: tuple[Reader, ...], again: tuple[bool, ...], cast_of: str | None, share: int
    ) -> tuple[Array, Array]:
        """Seconds of making all copies of `tensor` again that gradients read, with a Cast of `cast_of`; and 1 where they are one.

        Where there are several, some may be made again alone. That takes no less than the slowest of them does, and saves no more
        than all that are no slower: so all together count at the least such rate.
        """
        _, _, ways = self._of.written(tensor, readers)
        every_s = possible(ways.forward_s(again))
        if cast_of is not None:
            every_s = every_s + (cast_s := self._cast_s(tensor, ways, cast_of) / share)
        chosen = [n for n, is_there in enumerate(again) if is_there]
        if len(chosen) < 2:
            return every_s, np.ones(every_s.shape)

        def size_B(some: Sequence[int]) -> Array:
            only = tuple(replace(r, kept=n in some) for n, r in enumerate(readers))
            return self._of.kept_B(tensor, only, ways, True if cast_of is None else None)

        every_B, each_B = size_B(chosen), [size_B([n]) for n in chosen]
        each_s = [possible(ways.spread(ways.pairs[n].forward_s, 0, n + 1)) for n in chosen]
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
        """As `Copies.summing`: of several that whose sums take the longest. What is moved before a Reshape goes with it."""
        if tensor.shape != tensor.reader_shape:
            return None
        scope, table, ways = self._of.written(tensor, readers)
        found, longest_s = None, 0.0
        for place, reader in enumerate(readers):
            number = reader.end[0]
            if number < 0 or not self._of.keeps(reader):
                continue
            combine_s = self._of.known.items[number].combine_s
            most_s = float(combine_s.max(where=combine_s < np.inf, initial=0.0))
            one = ways.spread(ways.pairs[place].moves, 0, place + 1)
            moves = table("moves", place, written=partial(np.broadcast_to, one, ways.shape))
            sums = combine_s.reshape(len(combine_s), *(-1 if v == number else 1 for v in scope)) > 0
            both = moves.astype(bool) & sums & is_one
            if most_s > longest_s and both.any():
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
