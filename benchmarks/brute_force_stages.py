"""The search over pipeline stages against brute force: random small networks of equal blocks, the whole space of a step.

    python -m benchmarks.brute_force_stages [--cases 200] [--seed 0] [--most 3000]

Every step that a request allows is written down as the programs of its stages and priced as a whole (`cost.stage_time`,
`cost.stage_memory`): one, two or four stages (three divide no number of devices on which MindSpore forms groups), every number
of micro-batches, every division of the blocks, every joint choice of the operators' strategies (operators of one class alike,
on all stages), every sharding of the optimizer that is planned, and on every stage every number of recomputed blocks, first
ones first. On one stage also the whole batch at once. Stages that hold equal parts of a network are priced once.

`plan` must find a step as fast as the fastest, but for shardings of the optimizer that save less than `outer.WORTH`; under
memory limits between the smallest and the fastest step's peak, one within the gap that it states.
"""

import argparse
import itertools
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from benchmarks.brute_force import SAME, all_priced, combinations, size
from benchmarks.small_networks import layered_network
from ms_symtensor.cluster.load import load
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.stage_memory import stage_memory_B
from ms_symtensor.cost.stage_time import StageSeconds, pipelined_step_s, stage_seconds
from ms_symtensor.errors import InfeasibleError, InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.forward import Meanings, meanings
from ms_symtensor.program.parameters import is_synchronised
from ms_symtensor.program.partition import partition
from ms_symtensor.program.pipeline import Pipeline, block_names, in_flight, runs_of
from ms_symtensor.program.settings import OptimizerLevel, Recompute, StagePlan
from ms_symtensor.program.stage_graph import stage_graphs
from ms_symtensor.program.stage_memory import MicroBatch, micro_batch
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.search.best import best_plan
from ms_symtensor.search.domain import divisors
from ms_symtensor.search.folding import Fold, fold
from ms_symtensor.search.limits import Limits, limits_of
from ms_symtensor.search.network import Network, network
from ms_symtensor.search.outer import WORTH
from ms_symtensor.search.problem import plain_settings
from ms_symtensor.search.request import Request
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph

LEVELS = (OptimizerLevel.NONE, OptimizerLevel.LEVEL1)
"""Those that are planned where gradients add up: MindSpore does not combine level 3 with them, nor level 2 on one stage."""

Chosen = tuple[OpStrategy, ...]
"""A strategy for every class of operators, in the order of the fold."""


class Step(NamedTuple):
    """One way to run a step; `layers` of every stage, of which it recomputes `again`."""

    time_s: float
    memory_B: int
    micro_batch_num: int
    level: OptimizerLevel
    layers: tuple[int, ...]
    again: tuple[int, ...]

    def __str__(self) -> str:
        text = (
            f"{self.micro_batch_num} micro-batches, {'+'.join(map(str, self.layers))} blocks, level {self.level.value}"
        )
        return text + (f", {'+'.join(map(str, self.again))} recomputed" if any(self.again) else "")


@dataclass(frozen=True)
class Case:
    """A network of `blocks` equal blocks, and what is asked for."""

    network: Network
    blocks: int
    device_num: int
    batch: int
    limits: Limits
    cluster: Cluster

    def __str__(self) -> str:
        first = block_names(self.network.graph_at(self.batch))[0]
        kinds = " ".join(op.type for op in self.network.graph_at(self.batch).ops if op.block in (None, first))
        pinned = f", {self.limits}" if str(self.limits) else ""
        return f"{self.device_num} devices, batch {self.batch}, {self.blocks} blocks{pinned}: {kinds}"

    def planned(self, limit_B: int = 1 << 60) -> Plan:
        return best_plan(
            self.network, Request(self.cluster, self.device_num, self.batch, 1, limit_B, limits=self.limits)
        )

    @property
    def ways(self) -> Iterator[tuple[int, int]]:
        """Stages and micro-batches, several of these."""
        for stages in (1, 2, 4):
            if stages <= self.blocks and self.device_num % stages == 0:
                found = (n for n in divisors(self.batch) if n >= max(2, stages) and self.limits.allow(stages, n))
                yield from ((stages, n) for n in found)


@dataclass(frozen=True)
class Held:
    """What a stage costs that holds a part of the network: seconds, a micro-batch's bytes, and the program itself."""

    seconds: StageSeconds
    one: MicroBatch
    program: StageProgram

    def memory_B(self, flight: int, micro_batch_num: int) -> int:
        """Peak bytes with so many micro-batches at once."""
        return sum(stage_memory_B(self.program.micro, False, self.one.peak_B(flight, micro_batch_num), {}, {}).values())


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

    def held(
        self, chosen: Chosen, level: OptimizerLevel, first: bool, last: bool, blocks: int, again: int
    ) -> Held | None:
        """A stage of so many blocks, of which the first `again` are recomputed; None where MindSpore rejects it."""
        layers = tuple(n for n in (0 if first else 1, blocks, 0 if last else 1) if n)
        number = 0 if first else 1
        graph, known, folded = self.of(sum(layers))
        classes = [m for m in folded.members if known[m[0].name][1].shardable]
        strategies = {op.name: s for members, s in zip(classes, chosen, strict=True) for op in members}
        names = block_names(graph)[number : number + again]
        settings = replace(
            plain_settings(graph, self.device_num), optimizer_level=level, recompute=dict.fromkeys(names, Recompute())
        )
        plan, pipeline = StagePlan(strategies, settings), Pipeline(runs_of(layers), max(2, len(layers)))
        try:
            part = stage_graphs(graph, [plan] * len(layers), pipeline, known)[number]
            inside = {op.name: known[op.name] for op in part.graph.ops}
            micro = partition(part.graph, plan, known=inside, borders=part.borders)
        except InvalidStrategyError:
            return None
        if not all(is_synchronised(p) for p in micro.parameters.values() if p.requires_grad):
            return None
        program = StageProgram(number, part.graph, pipeline, level, micro)
        return Held(stage_seconds(program, plan, self.case.cluster), micro_batch(micro, False), program)


def divisions(blocks: int, stages: int) -> list[tuple[int, ...]]:
    """Every way to put so many blocks on so many stages, one at least on each."""
    cuts = itertools.combinations(range(1, blocks), stages - 1)
    return [tuple(b - a for a, b in itertools.pairwise((0, *cut, blocks))) for cut in cuts]


def all_steps(case: Case, recompute: bool) -> Iterator[Step]:
    """Seconds and peak bytes of every step; `recompute`: with every number of recomputed blocks on every stage too."""
    if case.limits.allow(1, 1):
        whole = all_priced(case.network.graph_at(case.batch), case.cluster, case.device_num, recompute)
        for one in whole:
            settings = one.stage.settings
            again = (len(settings.recompute),)
            yield Step(one.time_s, one.memory_B, 1, settings.optimizer_level, (case.blocks,), again)
    for stages, micro_batch_num in case.ways:
        parts = Parts(case, case.batch // micro_batch_num, case.device_num // stages)
        for chosen, level in itertools.product(parts.choices(), LEVELS):
            yield from _steps(parts, chosen, level, stages, micro_batch_num, recompute)


def _steps(
    parts: Parts, chosen: Chosen, level: OptimizerLevel, stages: int, micro_batch_num: int, recompute: bool
) -> Iterator[Step]:
    """Those of one choice of layouts on so many stages."""
    known: dict[tuple[bool, bool, int, int], Held | None] = {}
    sizes: dict[tuple, int] = {}

    def held(number: int, blocks: int, again: int) -> tuple[StageSeconds, int] | None:
        key = number == 0, number == stages - 1, blocks, again
        if key not in known:
            known[key] = parts.held(chosen, level, *key)
        if (found := known[key]) is None:
            return None
        flight = in_flight(number, stages, micro_batch_num)
        if (key, flight) not in sizes:
            sizes[key, flight] = found.memory_B(flight, micro_batch_num)
        return found.seconds, sizes[key, flight]

    for layers in divisions(parts.case.blocks, stages):
        counts = [range(n + 1) if recompute else range(1) for n in layers]
        for again in itertools.product(*counts):
            every = [held(number, *one) for number, one in enumerate(zip(layers, again, strict=True))]
            there = [one for one in every if one is not None]
            if len(there) == stages:
                time_s = pipelined_step_s([s for s, _ in there], micro_batch_num)
                yield Step(time_s, max(size for _, size in there), micro_batch_num, level, layers, again)


def disagreements(case: Case, steps: Sequence[Step], limited: bool, draw: random.Random) -> list[str]:
    """What `plan` does worse than brute force: without a memory limit, or under three of them."""
    fastest = min(steps)
    if not limited:
        return _disagreement(case, fastest, None)
    smallest_B = min(step.memory_B for step in steps)
    shares = (0.05, draw.uniform(0.1, 0.9), 1.0)
    limits_B = [int(smallest_B + share * (fastest.memory_B - smallest_B)) + 1 for share in shares]
    return [
        f"limit {limit_B}: {text}"
        for limit_B in limits_B
        for text in _disagreement(case, min(step for step in steps if step.memory_B <= limit_B), limit_B)
    ]


def _disagreement(case: Case, best: Step, limit_B: int | None) -> list[str]:
    """What `plan` does worse than `best`, the fastest step within a limit, if there is one: within the gap that it states."""
    try:
        found = case.planned() if limit_B is None else case.planned(limit_B)
    except InfeasibleError as error:
        return [f"{best.memory_B} bytes would do ({best}), but: {error}"]
    wrong, above = [], found.prediction.step_time_s / best.time_s - 1
    if limit_B is not None and found.prediction.peak_memory_B > limit_B:
        wrong.append(f"the plan needs {found.prediction.peak_memory_B}")
    gap = WORTH if limit_B is None else max(WORTH, found.search.optimality_gap)
    if above > gap + SAME:
        laid = "+".join(str(len(stage.settings.recompute)) for stage in found.stages)
        layers = "+".join(str(sum(map(len, runs))) for runs in found.pipeline.layers) if found.pipeline else "one stage"
        wrong.append(
            f"{above:.3g} above the optimum ({best}), stated gap {found.search.optimality_gap:.3g}; the plan has"
            f" {found.micro_batch_num} micro-batches, {layers} blocks, {laid} recomputed"
        )
    return wrong


def programs(case: Case, recompute: bool) -> int:
    """How many programs are priced to know every step of `case`, at most."""

    def stage_kinds(stages: int) -> int:
        longest = case.blocks - stages + 1
        each = sum(n + 1 if recompute else 1 for n in range(1, longest + 1))
        return min(stages, 3) * each if stages > 1 else case.blocks + 1 if recompute else 1

    total = 0
    for stages, micro_batch_num in case.ways:
        graph = case.network.short_at(case.batch // micro_batch_num, case.blocks)
        total += size(graph, case.device_num // stages) * len(LEVELS) * stage_kinds(stages)
    if case.limits.allow(1, 1):
        total += size(case.network.graph_at(case.batch), case.device_num) * 3 * stage_kinds(1)
    return total


def random_case(draw: random.Random, most: int, recompute: bool, cluster: Cluster) -> Case:
    """A case for which at most `most` programs are priced; half of the requests pin the stages, so that others stay in hand."""
    while True:
        blocks, device_num, batch = draw.randint(2, 5), draw.choice((2, 4, 4, 8, 8, 16)), draw.choice((2, 4, 8))
        graph_at = layered_network(draw, blocks, draw.choice((1, 1, 2)))
        pinned = draw.choice((None, 2, 4))
        if pinned is not None and (pinned > blocks or device_num % pinned or batch < pinned):
            continue
        limits = limits_of([("pipeline_stages", pinned)] if pinned else [])
        case = Case(network(graph_at(batch, None), graph_at), blocks, device_num, batch, limits, cluster)
        if programs(case, recompute) <= most:
            return case


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=3000, help="programs that are priced for a case")
    chosen = parser.parse_args()
    cluster, start, found, tried = load("atlas_800t_a2"), time.perf_counter(), 0, 0
    for number in range(chosen.cases):
        draw, limited = random.Random(f"{chosen.seed}/{number}"), number % 2 == 1
        case = random_case(draw, chosen.most, limited, cluster)
        steps = list(all_steps(case, limited))
        tried += len(steps)
        wrong = disagreements(case, steps, limited, draw)
        found += not wrong
        for text in wrong:
            print(f"case {number}, {case}: {text}", flush=True)
    seconds = time.perf_counter() - start
    print(f"{found}/{chosen.cases} optima found; {tried} steps priced in {seconds:.0f} s")
    return 0 if found == chosen.cases else 1


if __name__ == "__main__":
    sys.exit(main())
