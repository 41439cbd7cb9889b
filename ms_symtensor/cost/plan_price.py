"""The price of a whole plan: what `plan` prints, `estimate` answers, `validate` tests and `calibrate` fits.

One program for all ranks, or one for every pipeline stage; the step is that of `stage_time`, the memory that of the fullest
stage.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.bill import Bill, Part, Work, Written, bill_of, work_s
from ms_symtensor.cost.parameter import stored_B, update_peak_B
from ms_symtensor.cost.runtime import Runtime, Stored
from ms_symtensor.cost.stage_memory import stage_memory_B
from ms_symtensor.cost.stage_time import (
    EXPERTS,
    PASSES,
    StageSeconds,
    pipelined_step_s,
    seconds_of_bill,
    update_s,
)
from ms_symtensor.cost.step import TIMES, memory_B
from ms_symtensor.program.fusion import fused_program
from ms_symtensor.program.meanings import Meanings, meanings
from ms_symtensor.program.pipeline import Pipeline
from ms_symtensor.program.program import ParameterPlacement, Program
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.program.stage_memory import stage_activation_peak_B
from ms_symtensor.program.stage_program import Programs, StageProgram, programs_of
from ms_symtensor.tensor.graph import Graph

_Name = TypeVar("_Name")


@dataclass(frozen=True)
class StageBill:
    """What a stage of a plan does, whatever the cluster: its bill, its parameters, each so many times, its settings, and its
    memory by `cost.step.MEMORIES`.
    """

    bill: Bill
    parameters: Sequence[tuple[ParameterPlacement, int]]
    settings: Settings
    memory_B: Mapping[str, int]

    def stored_as(self, stored: Stored | None) -> Mapping[str, int]:
        """Its memory under a run-time that has parameters as `stored`."""
        if stored is None:
            return self.memory_B
        level = self.settings.optimizer_level if stored.level is None else stored.level
        at_rest = stored_B(self.parameters, stored, level)
        if self.settings.swap_optimizer:
            at_rest["optimizer_states"] = 0
        activations_B = max(self.memory_B["activations"], update_peak_B(self.parameters, stored, level))
        return {**self.memory_B, **at_rest, "activations": activations_B}


@dataclass(frozen=True)
class PlanBill:
    """The stages of a plan, first to last; `pipeline` None: one stage that takes the batch as a whole."""

    stages: tuple[StageBill, ...]
    pipeline: Pipeline | None


@dataclass(frozen=True)
class PlanPrice:
    """A step of a plan.

    Attributes:
        time_s: seconds by what an average stage spends (`cost.step.TIMES`); "bubble": what it waits for others; "overhead":
            what it waits for the host. They add up to the step.
        hidden_s: seconds of communication that runs beside computation, by `Part`, of an average stage.
        experts_s: of all that, what an average stage spends on experts (`cost.stage_time.EXPERTS`).
        memory_B: bytes of every stage at its peak, by `cost.step.MEMORIES`.
        stage_each_s: seconds of a micro-batch on every stage, forward and backward.
    """

    step_time_s: float
    time_s: Mapping[str, float]
    hidden_s: Mapping[str, float]
    memory_B: tuple[Mapping[str, int], ...]
    stage_each_s: tuple[float, ...]
    experts_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def stage_peaks_B(self) -> tuple[int, ...]:
        """Bytes of every stage."""
        return tuple(sum(one.values()) for one in self.memory_B)

    @property
    def fullest_B(self) -> Mapping[str, int]:
        """Bytes of the fullest stage, by what for."""
        return max(self.memory_B, key=lambda one: sum(one.values()))

    @property
    def peak_memory_B(self) -> int:
        return max(self.stage_peaks_B)


def plan_bill(
    graph: Graph,
    stages: Sequence[StagePlan],
    pipeline: Pipeline | None = None,
    known: Meanings | None = None,
    programs: Programs | None = None,
    fuses: frozenset[str] = frozenset(),
) -> PlanBill:
    """The bill of a plan: `stages` of `graph`, which with a `pipeline` is the network of one micro-batch.

    `known`, `programs`: what the operators mean, and the plan's programs, where they are there already; `fuses`: see
    `program.fusion`. Errors: those of `partition` and `partition_stages`.
    """
    found = meanings(graph) if known is None else known
    written = programs_of(graph, stages, pipeline, found) if programs is None else programs
    bills = []
    for number, stage in enumerate(stages):
        program = fused_program(graph, written[number], found, fuses)
        bill = bill_of(Written.of(graph, stage, program, found, fuses))
        parameters = [(each, 1) for each in program.parameters.values()]
        bills.append(StageBill(bill, parameters, stage.settings, _memory_of(graph, stage, program)))
    return PlanBill(tuple(bills), pipeline)


def _memory_of(graph: Graph, stage: StagePlan, program: Program | StageProgram) -> Mapping[str, int]:
    if not isinstance(program, StageProgram):
        return memory_B(graph, stage, program)
    number, swaps, peak_B = program.pipeline.stage_num, stage.settings.swap_optimizer, stage_activation_peak_B(program)
    return stage_memory_B(program.micro, number, program.scatters_gradients, peak_B, {}, {}, swaps)


def priced(bill: PlanBill, cluster: Cluster, runtime: Runtime) -> PlanPrice:
    """The price of a plan on `cluster` under `runtime`."""
    seconds = seconds_of_stages(bill, cluster, runtime)
    number, interleave = (1, 1) if bill.pipeline is None else (bill.pipeline.micro_batch_num, bill.pipeline.interleave)
    step_s = pipelined_step_s(seconds, number, interleave)
    time_s = _mean_s(seconds, number)
    if len(seconds) > 1:
        time_s["bubble"] = max(0.0, step_s - math.fsum(time_s.values()))
    each = tuple(stage.each_s for stage in seconds)
    experts_s = _each_s([stage.experts_s for stage in seconds], EXPERTS, number)
    hidden_s = {part.value: s for part, s in _each_s([stage.hidden_s for stage in seconds], Part, number).items()}
    memory_B = tuple(stage.stored_as(runtime.stores) for stage in bill.stages)
    return PlanPrice(step_s, time_s, hidden_s, memory_B, each, experts_s)


def seconds_of_stages(bill: PlanBill, cluster: Cluster, runtime: Runtime) -> list[StageSeconds]:
    """What every stage spends, first to last."""
    known: dict[Work, float] = {}  # stages that are alike share their work

    def seconds(work: Work) -> float:
        if work not in known:
            known[work] = work_s(work, cluster)
        return known[work]

    return [
        seconds_of_bill(
            one.bill, update_s(one.parameters, one.settings, cluster, runtime.updates), cluster, runtime, seconds
        )
        for one in bill.stages
    ]


def price_plan(
    graph: Graph,
    stages: Sequence[StagePlan],
    pipeline: Pipeline | None,
    cluster: Cluster,
    runtime: Runtime,
    known: Meanings | None = None,
) -> PlanPrice:
    """`priced` of `plan_bill`."""
    return priced(plan_bill(graph, stages, pipeline, known, fuses=runtime.fuses), cluster, runtime)


def _mean_s(stages: Sequence[StageSeconds], micro_batch_num: int) -> dict[str, float]:
    """What an average stage spends in a step."""
    found = dict.fromkeys(TIMES, 0.0)
    for stage in stages:
        for (place, kind), seconds in stage.spent_s.items():
            share = _times(place, micro_batch_num) / len(stages)
            found[kind] = found.get(kind, 0.0) + share * seconds
    return {kind: s for kind, s in found.items() if kind in TIMES or s > 0}


def _each_s(
    stages: Sequence[Mapping[tuple[str, _Name], float]], names: Iterable[_Name], micro_batch_num: int
) -> dict[_Name, float]:
    """Seconds of an average stage, by `names`, those it has."""
    found: dict[_Name, float] = {}
    for name in names:
        every = [
            _times(place, micro_batch_num) * seconds / len(stages)
            for stage in stages
            for (place, of), seconds in stage.items()
            if of == name
        ]
        if every:
            found[name] = math.fsum(every)
    return found


def _times(place: str, micro_batch_num: int) -> int:
    assert place in PASSES
    return micro_batch_num if place in ("forward", "backward") else 1
