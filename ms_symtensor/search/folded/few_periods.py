"""Programs of stages with few of their blocks: those that stand for all that have the same kind and recompute the same."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.borders import NO_BORDERS
from ms_symtensor.program.long_runs import ShortProgram, measure
from ms_symtensor.program.meanings import Meanings, meanings
from ms_symtensor.program.partition import partition
from ms_symtensor.program.pipeline import Pipeline, runs_of
from ms_symtensor.program.program import Program
from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.program.settings import Recompute, Settings, StagePlan
from ms_symtensor.program.stage_graph import StageGraph, stage_graphs
from ms_symtensor.program.stage_memory import MicroBatch, micro_batch
from ms_symtensor.search.folded.folding import Fold, fold, shorten
from ms_symtensor.tensor.graph import Graph, ParameterRef

Way = tuple[int, Recompute | None]
"""The kind of a block, and what of it is recomputed."""

Names = tuple[str, ...]
"""The blocks of a period, or of a part of one, by name."""


class Run(NamedTuple):
    """Equal periods of a group of kinds that take turns: the ways of their blocks, and how many there are."""

    group: int
    form: tuple[Way, ...]
    periods: int


@dataclass(frozen=True)
class Written:
    """A stage with few periods: its program, what that or one micro-batch of it needs, its blocks run by run and period by
    period, those of every way, the block of every parameter.
    """

    program: Program
    needs: MicroBatch | ShortProgram
    named: Sequence[Sequence[Names]]
    like: Mapping[Way, Sequence[str]]
    block_of: Mapping[str, str]

    @property
    def micro(self) -> MicroBatch:
        """What a micro-batch of it needs."""
        assert isinstance(self.needs, MicroBatch)
        return self.needs


@dataclass
class FewPeriods:
    """Writes programs of stages in one choice of strategies; `graph` has enough blocks of every kind for them."""

    graph: Graph
    strategies: Mapping[str, OpStrategy]
    settings: Settings
    schedule: PipelineSchedule
    rules: Mapping[str, Rule] | None = None
    _known: dict[tuple, Written] = field(default_factory=dict)
    _parts: dict[tuple, StageGraph] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._folded: Fold = fold(self.graph)
        self._meanings: Meanings = meanings(self.graph, self.rules)
        self.periods = self._folded.periods

    @property
    def turns(self) -> tuple[int, ...]:
        """How many kinds take turns, group by group (`Fold.turns`)."""
        return self._folded.turns

    def written(self, runs: tuple[Run, ...], before: tuple[int, ...], after: tuple[int, ...]) -> Written:
        """The stage of `runs`, a period of each of the groups `before` it and `after` it on stages of their own.

        InvalidStrategyError where MindSpore cannot cut here.
        """
        key = runs, before, after
        if key not in self._known:
            self._known[key] = self._write(*key)
        return self._known[key]

    def _write(self, runs: tuple[Run, ...], before: tuple[int, ...], after: tuple[int, ...]) -> Written:
        left = [iter(periods[int(group in before) :]) for group, periods in enumerate(self.periods)]
        named, like = list[list[Names]](), defaultdict[Way, list[str]](list)
        for run in runs:
            first, whole = sum(self.turns[: run.group]), islice(left[run.group], run.periods)
            named.append([tuple(period[kind - first] for kind, _ in run.form) for period in whole])
            for period in named[-1]:
                for name, way in zip(period, run.form, strict=True):
                    like[way].append(name)
        recompute = {name: chosen for (_, chosen), names in like.items() if chosen is not None for name in names}
        periods = Counter((*before, *after))
        for run in runs:
            periods[run.group] += run.periods
        groups = [group for group, count in periods.items() if count]
        if missing := [group for group in range(min(groups, default=0), max(groups, default=0)) if group not in groups]:
            absent = self.periods[missing[0]][0][0]
            raise InvalidStrategyError(f"a stage holds blocks before and behind those like {absent}, and none of these")
        held = (name for one in named for period in one for name in period)
        part = self._part(tuple(periods[group] for group in range(len(self.turns))), tuple(held))
        ops = part.graph.ops
        known = {op.name: self._meanings[op.name] for op in ops}
        block_of = {s.name: op.block or "" for op in ops for s in op.inputs if isinstance(s, ParameterRef)}
        plan = StagePlan(self.strategies, replace(self.settings, recompute=recompute))
        program = partition(part.graph, plan, known=known, borders=part.borders)
        needs: MicroBatch | ShortProgram
        if self.is_whole:
            needs = measure(program, named)
        else:
            needs = micro_batch(program, self.settings.optimizer_level, self.schedule.interleave > 1)
        return Written(program, needs, named, dict(like), block_of)

    @property
    def is_whole(self) -> bool:
        """Whether the whole batch is taken at once."""
        return self.schedule.micro_batch_num == 1

    def _part(self, periods: tuple[int, ...], held: tuple[str, ...]) -> StageGraph:
        """The part of the network that has the blocks `held`, where every group has so many `periods`."""
        if (periods, held) not in self._parts:
            self._parts[periods, held] = self._cut(periods, held)
        return self._parts[periods, held]

    def _cut(self, periods: Sequence[int], held: Sequence[str]) -> StageGraph:
        counts = [count for count, kinds in zip(periods, self.turns, strict=True) for _ in range(kinds)]
        graph = shorten(self.graph, self._folded, counts)
        if self.is_whole:
            return StageGraph(0, graph, NO_BORDERS)
        start = graph.blocks.index(held[0])
        layers = tuple(n for n in (start, len(held), len(graph.blocks) - start - len(held)) if n)
        pipeline, plan = Pipeline(runs_of(layers), max(2, len(layers))), StagePlan(self.strategies, self.settings)
        (part,) = stage_graphs(graph, [plan] * len(layers), pipeline, self._meanings, [int(start > 0)])
        return part
