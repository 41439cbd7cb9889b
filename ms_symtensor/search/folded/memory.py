"""The true peak memory of a plan, found on a short network and carried on to the full depth.

The blocks of a kind make two runs: those that are recomputed, then those that are not. The live bytes of a long run are known
everywhere from a run of three blocks: further blocks, put before the last one, only add what the middle one keeps until the
backward pass, and only while they wait for it. (The first and the last of a run may keep other tensors, since what a block
moves or casts for the next one is kept or not with either of the two.)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby

from ms_symtensor.cost.parameter import updating_B
from ms_symtensor.cost.step import buffers_B
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.liveness import live_B, lives, program_steps
from ms_symtensor.program.meanings import Meanings
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Program
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.search.folded.folding import Fold, shorten
from ms_symtensor.search.folded.mix import WHOLE, Mix
from ms_symtensor.tensor.graph import Graph

EACH = 3
"""Blocks of a run in the longest short program."""

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
        for names, (again, plain) in zip(self.kinds, runs, strict=True):
            found += [names[:again], names[again : again + plain]]
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
    _known: dict[Runs, "_Short"] = field(default_factory=dict)
    _programs: dict[Runs, Program] = field(default_factory=dict)

    def of(self, recomputed: int) -> Peak:
        """The peak with the first `recomputed` blocks recomputed."""
        true = self.shorts.runs(recomputed)
        runs = self.shorts.short_runs(true)
        if runs not in self._known:
            self._known[runs] = _measure(self.program(runs), self.shorts.named(runs))
        short = self._known[runs]
        peak_B = short.peak_B(further(true, runs))
        if self.settings.swap_optimizer:
            peak_B = max(peak_B, updating_B(self.program(runs).parameters))
        return peak_B, short.buffers_B

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


@dataclass(frozen=True)
class _Short:
    """The live bytes of a short program, step by step.

    `waits` tells for every step how many of the runs have their further blocks run forward and waiting for their backward
    pass. `kept_B` is what one more block of every run keeps.
    """

    live_B: tuple[int, ...]
    waits: tuple[int, ...]
    kept_B: tuple[int, ...]
    buffers_B: int

    def peak_B(self, more: tuple[int, ...]) -> int:
        """The peak with `more` further blocks in every run."""
        waiting = (0, *accumulate(n * kept for n, kept in zip(more, self.kept_B, strict=True)))
        return max((live + waiting[w] for live, w in zip(self.live_B, self.waits, strict=True)), default=0)


def _measure(program: Program, runs: tuple[tuple[str, ...], ...]) -> _Short:
    """Measure a short program whose blocks make `runs`."""
    sizes = {i: t.size_B for i, t in enumerate(program.tensors)}
    steps = program_steps(program)
    alive = lives(steps, program.kept)
    made_in = {t: n.block for n in program.nodes for t in n.outputs}
    half = sum(not s.is_backward for s in steps)
    kept: dict[str | None, int] = {}
    for tensor, (first, last) in alive.items():
        if first < half <= last:
            kept[made_in[tensor]] = kept.get(made_in[tensor], 0) + sizes[tensor]
    waits: dict[str | None, int] = {}
    for number, names in enumerate(runs):
        waits |= {name: number + (place > 0) for place, name in enumerate(names)}
    return _Short(
        tuple(live_B(alive, sizes, len(steps))),
        tuple(waits.get(n.block, len(runs)) for n in program.nodes),
        tuple(kept.get(names[1], 0) if len(names) > 1 else 0 for names in runs),
        buffers_B(program),
    )
