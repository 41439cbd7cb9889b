"""A network whose depth and, mostly, batch can be chosen: what a search over pipeline stages and micro-batches needs to know."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.meanings import meanings
from ms_symtensor.program.one_stage import why_one_stage
from ms_symtensor.search.folded.alternating import merge_period
from ms_symtensor.search.folded.folding import fold, shorten
from ms_symtensor.search.folded.memory import PeakMemory, ShortGraphs, short_graphs
from ms_symtensor.search.folded.places import places
from ms_symtensor.search.folded.rebatched import rebatched
from ms_symtensor.search.folded.stage_peaks import StagePeaks
from ms_symtensor.search.folded.whole_peaks import WholePeaks
from ms_symtensor.search.space.undivided import why_whole
from ms_symtensor.search.stages.screening import SHORT
from ms_symtensor.search.tables.problem import sample_num
from ms_symtensor.tensor.graph import Graph

KEPT = 2
"""Layouts whose programs are kept: their search comes back to the last ones (empirical)."""

_Peaks = TypeVar("_Peaks")


@dataclass(frozen=True)
class Network:
    """`graph_at(batch)`: the whole network at so many samples; `short_at(batch, count)`: with `count` blocks of every kind. Where
    kinds of blocks take turns, a period of them is a block here (`folded.alternating`).

    `class_of`: the classes of the whole network's operators (`Fold.class_of`). `batch`: the only batch that it can be had at, if
    it is but one.
    """

    graph_at: Callable[[int], Graph]
    short_at: Callable[[int, int], Graph]
    depths: tuple[int, ...]
    class_of: Mapping[str, int]
    batch: int | None = None
    _known: dict[tuple[int, int], Graph] = field(default_factory=dict)
    _shorts: dict[tuple[int, int], ShortGraphs] = field(default_factory=dict)
    _peaks: dict[tuple, StagePeaks | WholePeaks] = field(default_factory=dict)
    _peaks_as_one: dict[tuple, PeakMemory] = field(default_factory=dict)
    _why_one_stage: dict[int, str] = field(default_factory=dict)

    def short(self, batch: int, count: int = SHORT) -> Graph:
        """`short_at(batch, count)`, made once."""
        if (batch, count) not in self._known:
            self._known[batch, count] = self.short_at(batch, count)
        return self._known[batch, count]

    def shorts(self, batch: int, rules: Mapping[str, Rule] | None, count: int = SHORT) -> ShortGraphs:
        """`short(batch, count)`, standing for the whole network, whose operators mean what `rules` say; further blocks need no
        names.
        """
        if (batch, count) not in self._shorts:
            short = self.short(batch, count)
            folded = fold(short)
            kinds = zip(folded.kinds, self.depths[1:-1], strict=True)
            names = tuple((*names, *[""] * (depth - len(names))) for names, depth in kinds)
            self._shorts[batch, count] = short_graphs(short, folded, meanings(short, rules), names)
        return self._shorts[batch, count]

    def why_one_stage(self, batch: int) -> str:
        """Why the network must not be laid out over stages (`program.one_stage`), told once for `batch`; empty if it may be."""
        if batch not in self._why_one_stage:
            self._why_one_stage[batch] = why_one_stage(self.graph_at(batch))
        return self._why_one_stage[batch]

    def peaks(self, key: tuple, written: Callable[[], StagePeaks | WholePeaks]) -> StagePeaks | WholePeaks:
        """What `written` gives for `key`, kept for the last ones that were asked for."""
        return _of_the_last(self._peaks, key, written)

    def peaks_as_one(self, key: tuple, written: Callable[[], PeakMemory]) -> PeakMemory:
        """As `peaks`, of the network on one stage."""
        return _of_the_last(self._peaks_as_one, key, written)


def _of_the_last(known: dict[tuple, _Peaks], key: tuple, written: Callable[[], _Peaks]) -> _Peaks:
    """What is `known` of `key`, or else `written`; those that were asked for last are kept."""
    found = known.pop(key) if key in known else written()
    known[key] = found
    while len(known) > KEPT:
        del known[next(iter(known))]
    return found


def network(graph: Graph, graph_at: Callable[[int, int | None], Graph]) -> Network:
    """The network of `graph`; `graph_at(batch, layers)` makes it anew for any batch, with so many of its first blocks or all.

    The first blocks are those of the first kind, then of the next. The batch is the first dim of the first input.
    """
    own = merge_period(graph)
    folded = fold(own)
    depths = places(own, folded).depths

    def made_anew(batch: int, count: int) -> Graph:
        first = sum(depths[1:-2]) + min(count, depths[-2]) if len(depths) > 2 and own is graph else None
        few = merge_period(graph_at(batch, first))
        return shorten(few, fold(few), count)

    @cache
    def short(batch: int) -> Graph:
        return made_anew(batch, SHORT)

    @cache
    def whole_at(batch: int) -> Graph:
        if batch == sample_num(own):
            return own
        return rebatched(own, folded, short(batch)) or merge_period(graph_at(batch, None))

    def short_at(batch: int, count: int) -> Graph:
        if count <= SHORT:
            return short(batch) if count == SHORT else made_anew(batch, count)
        longer = shorten(own, folded, count)
        return rebatched(longer, fold(longer), short(batch)) or made_anew(batch, count)

    return Network(whole_at, short_at, depths, folded.class_of)


def network_as_it_is(graph: Graph, batch: int) -> Network:
    """The network of `graph` at the only batch that it can be had at: asked for at any, it is that."""
    own = merge_period(graph)
    folded = fold(own)
    depths = places(own, folded).depths
    short_at = (lambda _, count: shorten(own, folded, count)) if not why_whole(own) else lambda _, count: own
    return Network(lambda _: own, short_at, depths, folded.class_of, batch)
