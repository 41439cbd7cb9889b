"""A network whose depth and, mostly, batch can be chosen: what a search over pipeline stages and micro-batches needs to know."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from ms_symtensor.search.folded.alternating import merge_period
from ms_symtensor.search.folded.folding import fold, shorten
from ms_symtensor.search.folded.places import places
from ms_symtensor.search.folded.stage_peaks import StagePeaks
from ms_symtensor.search.space.undivided import why_whole
from ms_symtensor.search.stages.screening import SHORT
from ms_symtensor.search.tables.problem import sample_num
from ms_symtensor.tensor.graph import Graph

Made = TypeVar("Made")

KEPT = 2
"""Layouts whose programs are kept: their search comes back to the last ones (empirical)."""


@dataclass(frozen=True)
class Network:
    """`graph_at(batch)`: the whole network at so many samples; `short_at(batch, count)`: with `count` blocks of every kind. Where
    kinds of blocks take turns, graphs know their periods (`folded.alternating`).

    `class_of`: the classes of the whole network's operators (`Fold.class_of`). `batch`: the only batch that it can be had at, if
    it is but one.
    """

    graph_at: Callable[[int], Graph]
    short_at: Callable[[int, int], Graph]
    depths: tuple[int, ...]
    class_of: Mapping[str, int]
    batch: int | None = None
    _known: dict[tuple[int, int], Graph] = field(default_factory=dict)
    _peaks: dict[tuple, StagePeaks] = field(default_factory=dict)
    _made: dict[tuple, Any] = field(default_factory=dict)

    def short(self, batch: int, count: int = SHORT) -> Graph:
        """`short_at(batch, count)`, made once."""
        if (batch, count) not in self._known:
            self._known[batch, count] = self.short_at(batch, count)
        return self._known[batch, count]

    def once(self, key: tuple, made: Callable[[], Made]) -> Made:
        """What `made` gives for `key`, made once."""
        if key not in self._made:
            self._made[key] = made()
        found: Made = self._made[key]
        return found

    def peaks(self, key: tuple, written: Callable[[], StagePeaks]) -> StagePeaks:
        """What `written` gives for `key`, kept for the last ones that were asked for."""
        found = self._peaks.pop(key) if key in self._peaks else written()
        self._peaks[key] = found
        while len(self._peaks) > KEPT:
            del self._peaks[next(iter(self._peaks))]
        return found


def network(graph: Graph, graph_at: Callable[[int, int | None], Graph]) -> Network:
    """The network of `graph`; `graph_at(batch, layers)` makes it anew for any batch, with so many of its first blocks or all.

    The first blocks are those of the first kind, then of the next. The batch is the first dim of the first input.
    """
    own = merge_period(graph)
    folded = fold(own)
    depths = places(own, folded).depths

    @cache
    def whole_at(batch: int) -> Graph:
        return own if batch == sample_num(own) else merge_period(graph_at(batch, None))

    def short_at(batch: int, count: int) -> Graph:
        first = sum(depths[1:-2]) + min(count, depths[-2]) if len(depths) > 2 and own is graph else None
        few = merge_period(graph_at(batch, first))
        return shorten(few, fold(few), count)

    return Network(whole_at, short_at, depths, folded.class_of)


def network_as_it_is(graph: Graph, batch: int) -> Network:
    """The network of `graph` at the only batch that it can be had at: asked for at any, it is that."""
    own = merge_period(graph)
    folded = fold(own)
    depths = places(own, folded).depths
    short_at = (lambda _, count: shorten(own, folded, count)) if not why_whole(own) else lambda _, count: own
    return Network(lambda _: own, short_at, depths, folded.class_of, batch)
