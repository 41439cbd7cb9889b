"""Every step of a small network of equal blocks on pipeline stages, priced from the programs of its stages."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

from benchmarks.brute_force import all_priced, combinations, selections
from ms_symtensor.algebra.divisors import divisors
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.move import message_s
from ms_symtensor.cost.stage_memory import stage_memory_B
from ms_symtensor.cost.stage_time import StageSeconds, pipelined_step_s, stage_seconds
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.meanings import Meanings, meanings
from ms_symtensor.program.parameters import is_synchronised
from ms_symtensor.program.partition import partition
from ms_symtensor.program.passes import Pass
from ms_symtensor.program.pipeline import Pipeline, dealt, in_runs, runs_of
from ms_symtensor.program.program import Phase, Role
from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.program.settings import OptimizerLevel, Recompute, StagePlan
from ms_symtensor.program.stage_graph import stage_graphs
from ms_symtensor.program.stage_memory import MicroBatch, micro_batch, stage_activation_peak_B
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.search.best import best_plan
from ms_symtensor.search.constraints.limits import Limits
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.folded.folding import Fold, fold
from ms_symtensor.search.space.step_layouts import StepLayout, interleaved
from ms_symtensor.search.stages.network import Network
from ms_symtensor.search.tables.problem import plain_settings
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph

LEVELS = (OptimizerLevel.NONE, OptimizerLevel.LEVEL1, OptimizerLevel.LEVEL2)
"""Those that are planned where gradients add up: MindSpore does not combine level 3 with them, nor level 2 on one stage."""

Chosen = tuple[OpStrategy, ...]
"""A strategy for every class of operators, in the order of the fold."""


RecomputedWork = tuple[Recompute | None, ...]
"""What the first blocks of a stage compute again, one after the other; further ones nothing."""


class Step(NamedTuple):
    """One way to run a step; `layers` of every stage, of which it recomputes `recomputation`, if only in part."""

    time_s: float
    memory_B: int
    micro_batch_num: int
    level: OptimizerLevel
    layers: tuple[int, ...]
    recomputation: tuple[int, ...]
    interleave: int = 1

    def __str__(self) -> str:
        text = (
            f"{self.micro_batch_num} micro-batches, {'+'.join(map(str, self.layers))} blocks, level {self.level.value}"
        )
        text += f", {self.interleave} runs per stage" if self.interleave > 1 else ""
        return text + (f", {'+'.join(map(str, self.recomputation))} recomputed" if any(self.recomputation) else "")


@dataclass(frozen=True)
class Case:
    """A network of `blocks` blocks, equal ones but perhaps for the first, and what is asked for."""

    network: Network
    blocks: int
    device_num: int
    batch: int
    limits: Limits
    cluster: Cluster
    certified_gap: float | None = None

    def __str__(self) -> str:
        first = self.network.graph_at(self.batch).blocks[0]
        kinds = " ".join(op.type for op in self.network.graph_at(self.batch).ops if op.block in (None, first))
        pinned = f", {self.limits}" if str(self.limits) else ""
        return f"{self.device_num} devices, batch {self.batch}, {self.blocks} blocks{pinned}: {kinds}"

    def planned(self, limit_B: int = 1 << 60) -> Plan:
        request = Request(
            self.cluster, self.device_num, self.batch, 1, limit_B, limits=self.limits, certified_gap=self.certified_gap
        )
        return best_plan(self.network, request)

    @property
    def lone(self) -> bool:
        """Whether the first block is like no other."""
        return len(self.network.depths) > 3

    @property
    def ways(self) -> Iterator[StepLayout]:
        """Stages, micro-batches, several of these, and model chunks per stage; meshes left out."""
        for stages, number, runs in itertools.product((1, 2, 4), divisors(self.batch), self.limits.interleaves):
            possible = stages <= self.blocks and self.device_num % stages == 0 and number >= max(2, stages)
            if possible and self.limits.allow(stages, number, runs):
                shape = interleaved(StepLayout(stages, number, (), self.batch // number), runs, self.blocks)
                yield from [] if shape is None else [shape]


@dataclass(frozen=True)
class Held:
    """What a stage costs that holds a part of the network: seconds, and the program itself."""

    seconds: StageSeconds
    program: StageProgram
    _one: dict[bool, MicroBatch] = field(default_factory=dict)

    def memory_B(self, every: Sequence[Pass], interleave: int) -> int:
        """Peak bytes over every pass of a micro-batch through one of so many model chunks."""
        runs, several = in_runs(self.program.graph.blocks, interleave), interleave > 1
        stages, scatters = self.program.pipeline.stage_num, self.program.scatters_gradients
        if several not in self._one:
            self._one[several] = micro_batch(self.program.micro, scatters, several)
        peak_B = self._one[several].peak(runs, every).total_B
        return sum(stage_memory_B(self.program.micro, stages, scatters, peak_B, {}, {}).values())


class Border(NamedTuple):
    """Seconds of a micro-batch of what is sent between the runs of a stage, and its bytes, which wait until they are sent."""

    each_s: float
    size_B: int


@dataclass
class Parts:
    """The parts of a network at one batch on stages of `device_num` devices, each priced once for each choice."""

    case: Case
    batch: int
    device_num: int
    _known: dict[int, tuple[Graph, Meanings, Fold]] = field(default_factory=dict)

    def of(self, layers: int) -> tuple[Graph, Meanings, Fold]:
        """The network with so many blocks, what its operators mean, and its classes."""
        if layers not in self._known:
            graph = self.case.network.short_at(self.batch, layers)
            self._known[layers] = graph, meanings(graph), fold(graph)
        return self._known[layers]

    def choices(self) -> list[Chosen]:
        """Every joint choice of strategies."""
        graph, known, folded = self.of(self.case.blocks)
        classes = [m[0].name for m in folded.members if known[m[0].name][1].shardable]
        return [tuple(named[n] for n in classes) for named in combinations(graph, self.device_num, known, folded)]

    def ways(self, blocks: int, recompute: bool, select: bool) -> list[RecomputedWork]:
        """What a stage of so many blocks may compute again: so many first ones as a whole, or any operators of each."""
        if not select:
            return [(Recompute(),) * recomputation for recomputation in range(blocks + 1 if recompute else 1)]
        graph, _, _ = self.of(self.case.blocks)
        return list(itertools.product(selections(graph, graph.blocks[0]), repeat=blocks))

    def held(
        self,
        chosen: Chosen,
        level: OptimizerLevel,
        before: int,
        blocks: int,
        behind: int,
        recomputation: RecomputedWork,
    ) -> Held | None:
        """A stage of so many blocks, `before` and `behind` which so many stand, and of which the first compute
        `recomputation` that; None where MindSpore rejects it.
        """
        layers = tuple(n for n in (before, blocks, behind) if n)
        return self.program(
            chosen, level, Pipeline(runs_of(layers), max(2, len(layers))), int(before > 0), recomputation
        )

    def program(
        self, chosen: Chosen, level: OptimizerLevel, pipeline: Pipeline, number: int, recomputation: RecomputedWork
    ) -> Held | None:
        """The stage `number` of `pipeline`, whose first blocks compute `recomputation` again; None where MindSpore rejects it."""
        graph, known, folded = self.of(pipeline.layer_num)
        classes = [m for m in folded.members if known[m[0].name][1].shardable]
        strategies = {op.name: s for members, s in zip(classes, chosen, strict=True) for op in members}
        names = [graph.blocks[n] for run in pipeline.layers[number] for n in run]
        recompute = {name: one for name, one in zip(names, recomputation, strict=False) if one is not None}
        settings = replace(plain_settings(graph, self.device_num), optimizer_level=level, recompute=recompute)
        plan = StagePlan(strategies, settings)
        try:
            part = stage_graphs(graph, [plan] * pipeline.stage_num, pipeline, known)[number]
            inside = {op.name: known[op.name] for op in part.graph.ops}
            micro = partition(part.graph, plan, known=inside, borders=part.borders)
        except InvalidStrategyError:
            return None
        if not all(is_synchronised(p) for p in micro.parameters.values() if p.requires_grad):
            return None
        program = StageProgram(number, part.graph, pipeline, level, micro)
        return Held(stage_seconds(program, plan, self.case.cluster), program)

    def border(self, held: Held, turns: PipelineSchedule) -> Border:
        """What several model chunks per stage send and receive between them."""
        if turns.interleave == 1:
            return Border(0.0, 0)
        micro = held.program.micro
        ends = [n for n in micro.nodes if n.role is Role.BORDER and n.phase is Phase.FORWARD and n.parameter is None]
        sent = [n for n in ends if n.kind == "Send"] or [n for n in ends if n.kind == "Receive"]
        sizes_B = [micro.tensors[(n.inputs or n.outputs)[0]].size_B for n in sent]
        cluster, ranks = self.case.cluster, (0, self.device_num)
        one_s = sum(message_s(cluster, "Send", ranks, size_B) for size_B in sizes_B)
        return Border(2 * (turns.interleave - 1) * one_s, sum(sizes_B))


def divisions(blocks: int, stages: int) -> list[tuple[int, ...]]:
    """Every way to put so many blocks on so many stages, one at least on each."""
    cuts = itertools.combinations(range(1, blocks), stages - 1)
    return [tuple(b - a for a, b in itertools.pairwise((0, *cut, blocks))) for cut in cuts]


def all_steps(case: Case, recompute: bool, select: bool = False) -> Iterator[Step]:
    """Seconds and peak bytes of every step; `recompute`: with every number of recomputed blocks on every stage too; `select`:
    with any operators of any blocks recomputed, but for what is neither faster nor smaller than another way for the same stage.
    """
    if case.limits.allow(1, 1):
        graph = case.network.graph_at(case.batch)
        for one in all_priced(graph, case.cluster, case.device_num, recompute, select):
            settings = one.stage.settings
            recomputation = (len(settings.recompute),)
            yield Step(one.time_s, one.memory_B, 1, settings.optimizer_level, (case.blocks,), recomputation)
    for shape in case.ways:
        parts = Parts(case, shape.batch, case.device_num // shape.stages)
        levels = [level for level in LEVELS if shape.stages > 1 or level is not OptimizerLevel.LEVEL2]
        for chosen, level in itertools.product(parts.choices(), levels):
            yield from _steps(parts, chosen, level, shape, recompute, select)


def _steps(
    parts: Parts, chosen: Chosen, level: OptimizerLevel, shape: StepLayout, recompute: bool, select: bool
) -> Iterator[Step]:
    """Those of one choice of layouts on so many stages."""
    known: dict[tuple[int, int, int, RecomputedWork], Held | None] = {}
    number_of, turns = shape.micro_batch_num, shape.schedule

    def held(number: int, before: int, blocks: int, recomputation: RecomputedWork) -> _Way | None:
        behind = parts.case.blocks - before - blocks
        if not parts.case.lone:  # of equal blocks one stands for any number
            before, behind = min(before, 1), min(behind, 1)
        key = before, blocks, behind, recomputation
        if key not in known:
            known[key] = parts.held(chosen, level, *key)
        if (found := known[key]) is None:
            return None
        border = parts.border(found, turns)
        size_B = found.memory_B(turns.passes(number, shape.stages), shape.interleave) + border.size_B
        alone, half_s = found.seconds, border.each_s / 2
        seconds = replace(alone, forward_s=alone.forward_s + half_s, backward_s=alone.backward_s + half_s)
        return _Way(size_B, seconds, sum(one is not None for one in recomputation))

    def in_chunks(number: int, layers: tuple[int, ...], recomputation: RecomputedWork) -> _Way | None:
        """A stage of model chunks that differ, by its own program."""
        pipeline = Pipeline(runs_of(dealt(layers, shape.interleave), shape.interleave), number_of)
        found = parts.program(chosen, level, pipeline, number, recomputation)
        if found is None:
            return None
        held_B, scatters = stage_activation_peak_B(found.program), found.program.scatters_gradients
        size_B = sum(stage_memory_B(found.program.micro, shape.stages, scatters, held_B, {}, {}).values())
        return _Way(size_B, found.seconds, sum(one is not None for one in recomputation))

    @cache
    def ways(number: int, layers: tuple[int, ...]) -> list[_Way]:
        before, blocks = sum(layers[:number]), layers[number]
        differ = parts.case.lone and shape.interleave > 1
        every = [
            in_chunks(number, layers, recomputation) if differ else held(number, before, blocks, recomputation)
            for recomputation in parts.ways(blocks, recompute, select)
        ]
        there = [way for way in every if way is not None]
        return _worth(there) if select else there

    for layers in divisions(parts.case.blocks, shape.stages):
        if min(layers) < shape.interleave:
            continue
        for some in itertools.product(*(ways(number, layers) for number in range(len(layers)))):
            time_s = pipelined_step_s([way.seconds for way in some], number_of, shape.interleave)
            memory_B, recomputation = max(way.memory_B for way in some), tuple(way.recomputation for way in some)
            yield Step(time_s, memory_B, number_of, level, layers, recomputation, shape.interleave)


class _Way(NamedTuple):
    """A stage with so many blocks that compute something again."""

    memory_B: int
    seconds: StageSeconds
    recomputation: int


def _worth(ways: Sequence[_Way]) -> list[_Way]:
    """Those of `ways` than which no other one is smaller and as fast: what is recomputed does not change a step's end."""
    found: list[_Way] = []
    for way in sorted(ways, key=lambda way: (way.memory_B, way.seconds.each_s)):
        if not found or way.seconds.each_s < found[-1].seconds.each_s:
            found.append(way)
    return found
