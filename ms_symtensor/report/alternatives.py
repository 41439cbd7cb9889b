"""What else could have been done, priced by the same formulas: the strategies that people write by hand."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.bill import Written, bill_of
from ms_symtensor.cost.plan_price import PlanBill, StageBill, plan_bill
from ms_symtensor.cost.plan_price import priced as plan_price
from ms_symtensor.cost.runtime import DEFAULT, Runtime, load
from ms_symtensor.cost.step import memory_B
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.program.fusion import fused_program
from ms_symtensor.program.long_runs import EACH, measure
from ms_symtensor.program.meanings import Meanings, meanings
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Program
from ms_symtensor.program.recomputation import gathering_again
from ms_symtensor.program.settings import Recompute, StagePlan
from ms_symtensor.report.text import seconds, size, table
from ms_symtensor.search.constraints.summary import degrees
from ms_symtensor.search.folded.alternating import merge_period
from ms_symtensor.search.folded.folding import fold, shorten
from ms_symtensor.search.space.undivided import why_whole
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.uniform.folded import parameters_of


@dataclass(frozen=True)
class Alternative:
    """Predicted seconds of a step and peak bytes of a device under another strategy."""

    name: str
    step_time_s: float
    peak_memory_B: int


def priced(
    graph: Graph, stages: Mapping[str, StagePlan], cluster: Cluster, runtime: Runtime | None = None
) -> tuple[Alternative, ...]:
    """The strategies `stages`, by name, that MindSpore would accept, the fastest first; equal blocks are cut alike in each.

    `runtime`: that of the plan they stand beside; None: MindSpore's.
    """
    found, known, under = [], meanings(graph), runtime or load(DEFAULT)
    together = merge_period(graph)
    for name, stage in stages.items():
        try:
            bill = _bill(together, stage, known, under)
            cost = plan_price(bill, cluster, under)
        except InvalidStrategyError:
            continue
        found.append(Alternative(name, cost.step_time_s, cost.peak_memory_B))
    return tuple(sorted(found, key=lambda a: a.step_time_s))


def as_run(graph: Graph, stages: Mapping[str, StagePlan], runtime: Runtime) -> dict[str, StagePlan]:
    """`stages` as `runtime` runs them: with sequence parallelism some gather tokens again that other ranks hold."""
    if not runtime.gathers_again:
        return dict(stages)
    return {
        name: gathering_again(stage, graph) if degrees(graph, stage).sequence_parallel else stage
        for name, stage in stages.items()
    }


def _bill(graph: Graph, stage: StagePlan, known: Meanings, runtime: Runtime) -> PlanBill:
    """The bill of a step of `stage`: of every run of periods that are alike few are written (`program.long_runs`)."""
    folded = fold(graph)
    segments, written = list[tuple[tuple[tuple[str, ...], ...], int]](), list[int]()
    recompute = dict[str, Recompute]()
    for periods in [] if why_whole(graph) else folded.periods:
        few = 0
        for chosen, alike in groupby(periods, key=lambda names: [*map(stage.settings.recompute.get, names)]):
            count = len(list(alike))
            names = tuple(periods[few : few + min(count, EACH)])
            few += len(names)
            segments.append((names, count))
            for period in names:
                recompute |= {name: way for name, way in zip(period, chosen, strict=True) if way is not None}
        written += [few] * len(periods[0])
    if not segments:
        return plan_bill(graph, (stage,), known=known, fuses=runtime.fuses)
    short = shorten(graph, folded, written)
    of_short = {op.name: stage.strategies[op.name] for op in short.ops if op.name in stage.strategies}
    plan = StagePlan(of_short, replace(stage.settings, recompute=recompute))
    program = fused_program(short, partition(short, plan, known=known), known, runtime.fuses)
    assert isinstance(program, Program)
    times = {name: 1 + count - EACH for names, count in segments if count > EACH for name in names[1]}
    memory = memory_B(short, plan, program, times)
    runs = measure(program, [names for names, _ in segments])
    memory["activations"] += runs.peak_B([count - len(names) for names, count in segments])
    memory["activations"] -= runs.peak_B([0] * len(segments))
    bill = bill_of(Written(short, plan, program, known, runtime.fuses), times)
    return PlanBill((StageBill(bill, parameters_of(short, program.parameters, times), plan.settings, memory),), None)


def alternatives_text(plan: Plan, alternatives: tuple[Alternative, ...]) -> str:
    """A table of the plan and its alternatives."""
    prediction = plan.prediction
    rows = [
        ("this plan", seconds(prediction.step_time_s), "1.00", size(prediction.peak_memory_B), _fits(prediction.fits))
    ]
    rows += [
        (
            a.name,
            seconds(a.step_time_s),
            f"{a.step_time_s / prediction.step_time_s:.2f}",
            size(a.peak_memory_B),
            _fits(a.peak_memory_B <= prediction.limit_B),
        )
        for a in alternatives
    ]
    return "Alternatives, predicted alike\n" + table(rows, ("", "step", "ratio", "peak", ""), right=(1, 2, 3))


def _fits(does: bool) -> str:
    return "fits" if does else "does not fit"
