"""A plan's step over time: its timeline, the seconds of its operators, and what lies in its stages' memory."""

from collections.abc import Sequence
from dataclasses import dataclass

from ms_symtensor.cost.bill import Written
from ms_symtensor.cost.node_time import NodeTime, node_times
from ms_symtensor.cost.plan_price import PlanPrice, plan_bill, priced, seconds_of_stages
from ms_symtensor.cost.runtime import runtime_of
from ms_symtensor.cost.stage_time import StageSeconds
from ms_symtensor.errors import InputError
from ms_symtensor.program.fusion import fused_program
from ms_symtensor.program.meanings import Meanings, meanings
from ms_symtensor.program.program import Program
from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.program.stage_program import StageProgram, programs_of
from ms_symtensor.strategy.as_run import as_run_by
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.timeline.memory import StageMemory, stage_memory
from ms_symtensor.timeline.replay import StepTimeline, replay

SAME = 1e-9
"""A relative difference that is none: of sums in another order."""


@dataclass(frozen=True)
class Step:
    """A step of a plan.

    Attributes:
        price: that of the plan.
        programs: of all ranks, or of every stage.
        seconds: what every stage spends.
        timeline: when.
        operators: the nodes of every stage's program that take time, forward and then backward: of one micro-batch where there
            are several.
        memory: of every stage.
    """

    plan: Plan
    graph: Graph
    known: Meanings
    price: PlanPrice
    programs: Sequence[Program] | Sequence[StageProgram]
    seconds: tuple[StageSeconds, ...]
    timeline: StepTimeline
    operators: tuple[tuple[NodeTime, ...], ...]
    memory: tuple[StageMemory, ...]


def step_of(plan: Plan, graph: Graph) -> Step:
    """The step of `plan`, whose graph is `graph`.

    Raises:
        InputError: if this version prices the plan's step or peak at something else than the plan says.
    """
    runtime, cluster, known = runtime_of(plan.runtime, plan.hide), plan.planned_for, meanings(graph)
    stages = as_run_by(plan, graph, runtime)
    programs = programs_of(graph, stages, plan.pipeline, known)
    bill = plan_bill(graph, stages, plan.pipeline, known, programs, runtime.fuses)
    price, seconds = priced(bill, cluster, runtime), tuple(seconds_of_stages(bill, cluster, runtime))
    _require_same(plan, price)
    schedule = PipelineSchedule(plan.micro_batch_num, plan.pp_interleave_num, plan.pipeline_scheduler)
    timeline = replay(seconds, schedule, plan.prediction.step_time_s)
    written = [fused_program(graph, program, known, runtime.fuses) for program in programs]
    operators = tuple(
        node_times(Written.of(graph, stage, one, known, runtime.fuses), plan.planned_for)
        for stage, one in zip(stages, written, strict=True)
    )
    memory = tuple(
        stage_memory(graph, program, of_stage, timeline.stages[number], operators[number])
        for number, (program, of_stage) in enumerate(zip(written, price.memory_B, strict=True))
    )
    return Step(plan, graph, known, price, programs, seconds, timeline, operators, memory)


def _require_same(plan: Plan, price: PlanPrice) -> None:
    said = plan.prediction
    for name, theirs, ours in (
        ("step_time_s", said.step_time_s, price.step_time_s),
        ("peak_memory_B", said.peak_memory_B, price.peak_memory_B),
    ):
        if abs(theirs - ours) > SAME * theirs:
            raise InputError(
                f"the plan says {name} {theirs:.6g}, and this version of ms_symtensor makes it {ours:.6g}: plan again, so that"
                " all numbers are of one version"
            )
