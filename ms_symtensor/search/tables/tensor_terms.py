"""The tables of the tensors between operators: what carrying them costs, and the bytes that are kept of them.

Tensors between operators of the same kinds have the same tables (those of q, k and v in every kind of block): each is written
down once.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.folded.places import Counts
from ms_symtensor.search.tables.fan_out import FanOut
from ms_symtensor.search.tables.redistributions import Pairs, distinct, same_layout
from ms_symtensor.search.tables.tensors import End, Reader, Tensor, layouts_at
from ms_symtensor.search.tables.terms import Terms, terms
from ms_symtensor.search.tables.turn import Turn
from ms_symtensor.search.tables.variables import Variables
from ms_symtensor.tensor.dtype import size_B
from ms_symtensor.tensor.layout import Layout

Array = NDArray[np.float64]

JOINT_READERS = 3
"""Readers of one tensor that share a table (q, k, v): every further one shares one with the first and the one before it."""

JOINT_ENTRIES = 1 << 13
"""Entries of such a table for one mesh: where it would be larger, the first reader alone is seen (empirical: a search takes twice
as long with four times as many).
"""


class TensorTables:
    """Writes down the tables of tensors between the variables `known`; `recomputation`: those whose work a recomputed block
    repeats.

    Bytes are those that are there at the `turn`.
    """

    def __init__(self, known: Variables, pairs: Pairs, recomputation: frozenset[int], turn: Turn) -> None:
        self.known, self._pairs, self.recomputation, self._turn = known, pairs, recomputation, turn
        self._ways: dict[tuple, _ReshardPaths] = {}
        self._tables: dict[tuple, Array] = {}
        self._layouts: dict[tuple, tuple[tuple[Layout, ...], NDArray[np.intp]]] = {}

    def terms(self, tensor: Tensor, counts: Counts) -> list[Terms]:
        """All tables of `tensor`, which occurs so often at every place."""
        readers = self.in_order(tensor.readers)
        ends = range(min(JOINT_READERS, len(readers)), len(readers) + 1) if readers else ()
        found = [self._to_readers(tensor, readers[:end], counts, joins=end > JOINT_READERS) for end in ends]
        keeps = tensor.maker_keeps and self._turn.keeps(tensor.maker)
        if tensor.maker[0] >= 0 and tensor.maker[1] == "out" and (keeps or tensor.crosses):
            size = slices_B(self.known, layouts_at(self.known, tensor.maker, tensor.shape), tensor.dtype, tensor.power)
            kept = size if keeps else None
            crossing = size if tensor.crosses else None
            inside = self.known.items[tensor.maker[0]].op.block is not None
            recomputed = crossing if inside else kept
            found.append(terms((tensor.maker[0],), counts, size.shape, kept_B=kept, kept_recomputed_B=recomputed))
        return found

    def in_order(self, readers: tuple[Reader, ...]) -> tuple[Reader, ...]:
        """`readers`; of many, those of a kind one after the other, which mostly read the same."""
        return readers if len(readers) <= JOINT_READERS else tuple(sorted(readers, key=lambda r: self._kind(r.end)))

    def _to_readers(self, tensor: Tensor, readers: tuple[Reader, ...], counts: Counts, joins: bool) -> Terms:
        """The table of one tensor and its first readers: what their ways have in common is paid once. Or, of a further one that
        `joins` them, what the last of `readers` adds to what the others cost, seen beside the first one and the one before it.

        Where it shares with another one of them alone, that is too much. Its copy is counted as kept where no other one keeps
        any: they may keep the same.
        """
        among = self._beside(tensor, readers) if joins else readers
        start = len(among) - 1 if joins else 0
        numbers, table, paths = self.written(tensor, among)
        every, recomputed_moves = (True,) * len(among), self._recomputed_moves(tensor, among)
        sent, others = tuple(int(r.sends) for r in among), tensor.others
        back_s, counted, keeps = paths.backward_s, among, any(map(self.keeps, among))
        if joins:
            sent, others = self._gradients(tensor.others, readers, len(among))
            back_s, counted = paths.joining_s, (*(replace(r, kept=False) for r in among[:-1]), among[-1])
            keeps = self.keeps(readers[-1]) and not any(map(self.keeps, readers[:-1]))
        recomputation = kept = None
        if any(recomputed_moves[start:]):
            recomputation = table(
                "recomputation",
                start,
                recomputed_moves,
                written=lambda: possible(paths.forward_s(recomputed_moves, start)),
            )
        if tensor.has_gradient:
            makers, _ = self.layouts_at(tensor.maker, tensor.shape)
            maker_B = slices_B(self.known, makers, tensor.dtype, tensor.power)
            each_s = table(
                "both ways", start, every, sent, others,
                written=lambda: paths.forward_s(every, start) + back_s(sent, others, maker_B),
            )  # fmt: skip
        else:
            each_s = table("forward", start, every, written=lambda: paths.forward_s(every, start))
        if keeps:
            which = tuple(map(self.keeps, counted))
            kept = table("kept", start, which, tensor.maker_keeps, written=lambda: self.kept_B(tensor, counted, paths))
        recomputed = None if (tensor.in_block and self.recomputation) or self.in_block(among) else kept
        bytes_ = {"kept_B": kept, "kept_recomputed_B": recomputed}
        return terms(numbers, counts, each_s.shape, each_s=each_s, recompute_s=recomputation, **bytes_)

    def _beside(self, tensor: Tensor, readers: tuple[Reader, ...]) -> tuple[Reader, ...]:
        """Those of `readers` that the last one is seen beside, and itself."""
        among = (readers[0], *readers[-2:])
        variables = {end[0] for end in (tensor.maker, *(r.end for r in among)) if end[0] >= 0}
        entries = math.prod(len(self.known.items[v].strategies) for v in variables)
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

    def _recomputed_moves(self, tensor: Tensor, readers: tuple[Reader, ...]) -> tuple[bool, ...]:
        """Which of `readers` get their copy moved again: what a recomputed operator reads, and what a gradient reads of what a
        block makes or moves.
        """
        repeats = bool(self.recomputation)
        return tuple(
            (tensor.in_block or r.moved_inside) and (r.end[0] in self.recomputation or (repeats and r.kept))
            for r in readers
        )

    def written(
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
            self._ways[move] = self._paths_of(tensor, readers)
        paths, which = self._ways[move]
        # An end at the network's border has one layout; several ends of one variable take their layouts together.
        along = [[-1 if v == axis else 1 for v in range(len(numbers))] for axis in axes]
        index: tuple[Any, ...] = (slice(None), *(one.reshape(n) for one, n in zip(which, along, strict=True)))

        def table(*what: object, written: Callable[[], Array]) -> Array:
            """[members, values of every variable of the scope]: for the candidates, what is `written` for different layouts."""
            key = (axes, move, what)
            if key not in self._tables:
                self._tables[key] = np.ascontiguousarray(written()[index])
            return self._tables[key]

        return tuple(numbers), table, paths

    def passing(self, behind: Counts) -> list[Terms]:
        """The bytes of what is there for the turn alone; `behind`: the counts of an operator behind the blocks."""
        found = []
        for one in self._turn.passing:
            size = slices_B(self.known, layouts_at(self.known, one.end, one.kind.shape), one.kind.dtype, one.power)
            found.append(terms((one.end[0],), behind, size.shape, kept_B=size, kept_recomputed_B=size))
        return found

    def keeps(self, reader: Reader) -> bool:
        """Whether what the reader's gradient reads is there at the turn."""
        return reader.kept and self._turn.keeps(reader.end)

    def _kind(self, end: End) -> tuple[int, str, int]:
        """What decides the layouts at `end`."""
        number, side, position = end
        return (-1 if number < 0 else self.known.items[number].kind, side, position)

    def in_block(self, readers: tuple[Reader, ...]) -> bool:
        return all(r.end[0] >= 0 and self.known.items[r.end[0]].op.block is not None for r in readers)

    def layouts_at(self, end: End, shape: tuple[int, ...]) -> tuple[tuple[Layout, ...], NDArray[np.intp]]:
        """The different layouts at `end` of a tensor of `shape`, and which one each candidate has."""
        key = (self._kind(end), shape)
        if key not in self._layouts:
            self._layouts[key] = distinct(layouts_at(self.known, end, shape))
        return self._layouts[key]

    def _paths_of(self, tensor: Tensor, readers: tuple[Reader, ...]) -> "_ReshardPaths":
        """The ways of `tensor` to `readers` for the different layouts of every end, of which there are fewer than candidates; and
        which of these every candidate has, end by end.
        """
        (makers, *wanted), which = zip(
            self.layouts_at(tensor.maker, tensor.shape),
            *(self.layouts_at(r.end, tensor.reader_shape) for r in readers),
            strict=True,
        )
        ends = [self.known.items[n] for n, *_ in (tensor.maker, *(r.end for r in readers)) if n >= 0]
        alike = len(ends) > len(readers) and all(v.op.name in self.known.alike for v in ends)
        pairs = tuple(self._pairs.cost(makers, x, tensor.dtype, tensor.power, alike) for x in wanted)
        return FanOut(pairs, self.known.pricer), which

    def kept_B(self, tensor: Tensor, readers: tuple[Reader, ...], paths: FanOut) -> Array:
        """Bytes kept: of every layout that readers keep once, unless the maker keeps the same."""
        kept = paths.nothing
        wanted = [self.layouts_at(r.end, tensor.reader_shape)[0] for r in readers]
        for i, reader in enumerate(readers):
            if self.keeps(reader):
                bytes_ = paths.spread(slices_B(self.known, wanted[i], reader.kept_as, tensor.power), i + 1)
                new = np.ones((), bool)
                for j in range(i):
                    if self.keeps(readers[j]):
                        new = new & ~paths.spread(same_layout(wanted[j], wanted[i]), j + 1, i + 1)
                if tensor.maker_keeps or tensor.maker[0] < 0:  # the network's inputs are there anyway
                    new = new & paths.spread(paths.pairs[i].redistributions, 0, i + 1)
                kept += np.where(new, bytes_, 0.0)
        return kept


_ReshardPaths = tuple[FanOut, tuple[NDArray[np.intp], ...]]


def possible(seconds: Array) -> Array:
    """`seconds`, nothing where there is no way: what is done again was done before."""
    return np.where(np.isinf(seconds), 0.0, seconds)


def slices_B(known: Variables, layouts: Sequence[Layout], dtype: str, power: int) -> Array:
    """Bytes of one device's slice in each layout: [members, layouts]."""
    return known.pricer.slices_B(layouts, size_B(dtype), power)
