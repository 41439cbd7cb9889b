"""The true peak memory of a plan, found on a short network and carried on to the full depth.

The blocks of a kind make two runs (`program.long_runs`): those that are recomputed, then those that are not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby

from ms_symtensor.cost.parameter import updating_B
from ms_symtensor.cost.step import buffers_B
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.long_runs import EACH, ShortProgram, measure
from ms_symtensor.program.meanings import Meanings
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Program
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.search.folded.folding import Fold, shorten
from ms_symtensor.search.folded.mix import WHOLE, Mix
from ms_symtensor.tensor.graph import Graph

Peak = tuple[int, int]
"""Bytes of activations at the peak, and of communication buffers."""

Runs = tuple[tuple[int, int], ...]
"""Of every kind of blocks, how many are recomputed and how many are not."""


@dataclass(frozen=True)
class ShortGraphs:
    """`graph`: a network with at most 2 EACH of the repeated blocks of every kind, whose operators mean what `known` says.

    `kinds`: all the blocks that the network really has, kind by kind.
    """

    graph: Graph
    kinds: tuple[tuple[str, ...], ...]
    known: Meanings
    _folded: Fold
    _by_counts: dict[tuple[int, ...], Graph] = field(default_factory=dict)

    @property
    def blocks(self) -> tuple[str, ...]:
        return tuple(name for names in self.kinds for name in names)

    def runs(self, recomputed: int) -> Runs:
        """The true runs where the first `recomputed` blocks are recomputed."""
        found = []
        for names in self.kinds:
            here = min(recomputed, len(names))
            recomputed -= here
            found.append((here, len(names) - here))
        return tuple(found)

    def short_runs(self, true: Runs) -> Runs:
        """The runs of the short network that stands for the one with `true` runs."""
        here = (len(names) for names in self._folded.kinds)
        pairs = zip(true, here, strict=True)
        return tuple((a, b) if a + b <= min(2 * EACH, n) else (min(a, EACH), min(b, EACH)) for (a, b), n in pairs)

    def of(self, runs: Runs) -> Graph:
        """The network with so many blocks."""
        counts = tuple(a + b for a, b in runs)
        if counts not in self._by_counts:
            self._by_counts[counts] = shorten(self.graph, self._folded, counts)
        return self._by_counts[counts]

    def named(self, runs: Runs) -> tuple[tuple[str, ...], ...]:
        """The blocks of every run, recomputed and not, of one kind after the other."""
        found: list[tuple[str, ...]] = []
        for names, (recomputation, plain) in zip(self.kinds, runs, strict=True):
            found += [names[:recomputation], names[recomputation : recomputation + plain]]
        return tuple(found)


def short_graphs(
    graph: Graph, folded: Fold, known: Meanings, of: tuple[tuple[str, ...], ...] | None = None
) -> ShortGraphs:
    """The short networks of `graph`, whose operators mean what `known` says; `of`: the blocks that it stands for."""
    return ShortGraphs(graph, folded.kinds if of is None else of, known, folded)


def few_blocks(graph: Graph, folded: Fold) -> Graph:
    """`graph` with 2 EACH blocks of every kind; itself where blocks of several kinds take turns, whose runs are short."""
    kinds = folded.kinds
    inside = {name: kind for kind, names in enumerate(kinds) for name in names}
    turns = [kind for kind, _ in groupby(inside[op.block] for op in graph.ops if op.block in inside)]
    return shorten(graph, folded, 2 * EACH) if len(turns) == len(kinds) else graph


@dataclass
class PeakMemory:
    """Peaks for one choice of strategies and settings, for any number of recomputed blocks: of those that `mix` puts first."""

    shorts: ShortGraphs
    strategies: Mapping[str, OpStrategy]
    settings: Settings
    mix: Mix = WHOLE
    _known: dict[Runs, ShortProgram] = field(default_factory=dict)
    _programs: dict[Runs, Program] = field(default_factory=dict)

    def of(self, recomputed: int) -> Peak:
        """The peak with the first `recomputed` blocks recomputed."""
        true = self.shorts.runs(recomputed)
        runs = self.shorts.short_runs(true)
        if runs not in self._known:
            self._known[runs] = measure(self.program(runs), self.shorts.named(runs))
        short = self._known[runs]
        peak_B = short.peak_B(further(true, runs))
        if self.settings.swap_optimizer:
            peak_B = max(peak_B, updating_B(self.program(runs).parameters))
        return peak_B, buffers_B(self.program(runs))

    def program(self, runs: Runs) -> Program:
        """The program of the network with `runs`."""
        if runs not in self._programs:
            self._programs[runs] = partition(self.shorts.of(runs), self.plan(runs), known=self.shorts.known)
        return self._programs[runs]

    def plan(self, runs: Runs) -> StagePlan:
        """The choice for the network with `runs`."""
        kept = {op.name: self.strategies[op.name] for op in self.shorts.of(runs).ops if op.name in self.strategies}
        return StagePlan(kept, replace(self.settings, recompute=self.mix.recompute(self.shorts.named(runs))))


def further(true: Runs, runs: Runs) -> tuple[int, ...]:
    """How many further blocks the runs of the true network have, run by run."""
    return tuple(
        n - m for longer, shorter in zip(true, runs, strict=True) for n, m in zip(longer, shorter, strict=True)
    )
