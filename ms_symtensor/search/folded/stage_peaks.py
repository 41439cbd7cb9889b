"""What every stage holds at its peak, by the formulas that `verify` compares with the compiler.

The program of a stage is written down with few blocks: of those that recompute alike the first, one for all between, and the
last; and one of every kind before and after it on stages of their own. What further blocks keep is counted for each. Where the
whole batch is taken at once, on one stage, the program is that of the whole step (`program.long_runs`); else it is that of a
micro-batch (`program.stage_memory`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from ms_symtensor.cost.stage_memory import stage_memory_B
from ms_symtensor.cost.step import peak_B
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.borders import NO_BORDERS
from ms_symtensor.program.long_runs import EACH, ShortProgram, measure
from ms_symtensor.program.meanings import Meanings, meanings
from ms_symtensor.program.partition import partition
from ms_symtensor.program.pipeline import Pipeline, in_runs, runs_of
from ms_symtensor.program.program import Program
from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.program.settings import OptimizerLevel, Settings, StagePlan
from ms_symtensor.program.stage_graph import StageGraph, stage_graphs
from ms_symtensor.program.stage_memory import MicroBatch, micro_batch
from ms_symtensor.search.folded.chain import Stage
from ms_symtensor.search.folded.folding import Fold, fold, shorten
from ms_symtensor.search.folded.mix import WHOLE, Mix
from ms_symtensor.tensor.graph import Graph, ParameterRef

FEW = 2 * EACH + 2
"""Blocks of every kind that a stage's program is made of at most: two runs, one block before, one after."""

Runs = tuple[tuple[int, ...], ...]
"""Of every kind of blocks, how many are in every part of a mixture: the first ones, and the others."""


@dataclass(frozen=True)
class _Written:
    """A stage with few blocks: its program, what that or one micro-batch of it needs, its blocks run by run, the block of every
    parameter.
    """

    program: Program
    needs: MicroBatch | ShortProgram
    named: tuple[tuple[str, ...], ...]
    block_of: Mapping[str, str]


@dataclass
class StagePeaks:
    """The memory of stages for one choice of strategies.

    `graph` has up to FEW blocks of every kind, of which there are truly so many as `depths` says. `sent_B`: where stages hold
    several model chunks, what one of them has made until it is sent.
    """

    graph: Graph
    depths: tuple[int, ...]
    strategies: Mapping[str, OpStrategy]
    settings: Settings
    schedule: PipelineSchedule
    rules: Mapping[str, Rule] | None = None
    sent_B: int = 0
    _known: dict[tuple, _Written] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._folded: Fold = fold(self.graph)
        self._names = self._folded.kinds
        self._meanings: Meanings = meanings(self.graph, self.rules)
        self._chain = [kind for kind, depth in enumerate(self.depths[1:-1]) for _ in range(depth)]

    def under(self, settings: Settings) -> "StagePeaks":
        """The same under other settings."""
        return replace(self, settings=settings, _known={})

    def of(self, stages: Sequence[Stage], mixes: Sequence[Mix] = ()) -> tuple[dict[str, int], ...]:
        """Bytes by `cost.step.MEMORIES` of a rank of every stage. InvalidStrategyError where MindSpore cannot cut here.

        `mixes`: what the blocks of every stage recompute that are recomputed, and the others.
        """
        found, start = [], 0
        for number, stage in enumerate(stages):
            mix = mixes[number] if mixes else WHOLE
            found.append(self.of_one(number, len(stages), start, stage, mix))
            start += stage.blocks
        return tuple(found)

    def of_one(self, number: int, stages: int, start: int, stage: Stage, mix: Mix = WHOLE) -> dict[str, int]:
        """Those of `stage`, the one with `number` of so many `stages`, before which `start` blocks stand."""
        written, true = self._with_few(start, stage, mix)
        blocks = [name for names, count in zip(written.named, true, strict=True) for name in _like(names, count)]
        times = {name: blocks.count(name) for names in written.named for name in names}
        program, block_of, swapped = written.program, written.block_of, self.settings.swap_optimizer
        if isinstance(written.needs, ShortProgram):
            more = [count - len(names) for names, count in zip(written.named, true, strict=True)]
            placed = ((one, times.get(block_of.get(name, ""), 1)) for name, one in program.parameters.items())
            return peak_B(program, placed, written.needs.peak_B(more), swapped)
        scatters, runs = (
            self.settings.optimizer_level is OptimizerLevel.LEVEL2,
            in_runs(blocks, self.schedule.interleave),
        )
        activations_B = written.needs.peak(runs, self.schedule.passes(number, stages)).total_B + self.sent_B
        return stage_memory_B(program, stages, scatters, activations_B, times, block_of, swapped)

    def program_of(self, start: int, stage: Stage) -> Program:
        """The program of a stage before which `start` blocks stand, with few of its blocks."""
        written, _ = self._with_few(start, stage, WHOLE)
        return written.program

    @property
    def _is_whole(self) -> bool:
        """Whether the whole batch is taken at once."""
        return self.schedule.micro_batch_num == 1

    def _with_few(self, start: int, stage: Stage, mix: Mix) -> tuple[_Written, list[int]]:
        """`stage` with few blocks, and how many there are truly in every part of the mixture, kind by kind."""
        held = self._chain[start : start + stage.blocks]
        parts = held[: stage.recomputed], held[stage.recomputed :]
        true = tuple(tuple(part.count(kind) for part in parts) for kind in range(len(self._names)))
        before, after = (tuple(sorted({*part})) for part in (self._chain[:start], self._chain[start + stage.blocks :]))
        few = tuple(
            self._few(ns, len(names) - before.count(kind) - after.count(kind))
            for kind, (names, ns) in enumerate(zip(self._names, true, strict=True))
        )
        written = self._written(few, before, after, mix)
        return written, [n for parts in true for n in parts]

    def _few(self, true: tuple[int, ...], most: int) -> tuple[int, ...]:
        """Blocks of the parts of a mixture that stand for those that there are truly, at most so many: of a micro-batch three for
        two as well, so that one program stands for both.
        """
        few = tuple(EACH if n > 1 else n for n in true)
        return few if sum(few) <= most and not self._is_whole else tuple(min(n, EACH) for n in true)

    def _written(self, runs: Runs, before: tuple[int, ...], after: tuple[int, ...], mix: Mix) -> _Written:
        key = runs, before, after, mix
        if key not in self._known:
            self._known[key] = self._write(*key)
        return self._known[key]

    def _write(self, runs: Runs, before: tuple[int, ...], after: tuple[int, ...], mix: Mix) -> _Written:
        first = [before.count(kind) for kind in range(len(runs))]
        named: list[tuple[str, ...]] = []
        for names, start, counts in zip(self._names, first, runs, strict=True):
            named += [names[start + end - n : start + end] for n, end in zip(counts, accumulate(counts), strict=True)]
        part = self._part(tuple(map(sum, runs)), before, after)
        ops = part.graph.ops
        known = {op.name: self._meanings[op.name] for op in ops}
        block_of = {s.name: op.block or "" for op in ops for s in op.inputs if isinstance(s, ParameterRef)}
        plan = StagePlan(self.strategies, replace(self.settings, recompute=mix.recompute(named)))
        program = partition(part.graph, plan, known=known, borders=part.borders)
        if self._is_whole:
            return _Written(
                program, measure(program, [[(name,) for name in part] for part in named]), tuple(named), block_of
            )
        one = micro_batch(program, self.settings.optimizer_level, self.schedule.interleave > 1)
        return _Written(program, one, tuple(named), block_of)

    def _part(self, held: tuple[int, ...], before: tuple[int, ...], after: tuple[int, ...]) -> StageGraph:
        """The part of the network that has so many blocks of every kind, between blocks of the kinds `before` and `after`."""
        counts = [before.count(kind) + count + after.count(kind) for kind, count in enumerate(held)]
        graph = shorten(self.graph, self._folded, counts)
        if self._is_whole:
            return StageGraph(0, graph, NO_BORDERS)
        layers = tuple(n for n in (len(before), sum(held), len(after)) if n)
        pipeline, plan = Pipeline(runs_of(layers), max(2, len(layers))), StagePlan(self.strategies, self.settings)
        (part,) = stage_graphs(graph, [plan] * len(layers), pipeline, self._meanings, [int(bool(before))])
        return part


def _like(names: Sequence[str], count: int) -> tuple[str, ...]:
    """`count` blocks of a part of a mixture, each by the name of one of few that is like it: first, between, or last."""
    if count <= 1:
        return tuple(names[:count])
    return names[0], *(names[1],) * (count - 2), names[-1]
