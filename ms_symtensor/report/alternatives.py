"""What else could have been done, priced by the same formulas: the strategies that people write by hand."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby, islice

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
from ms_symtensor.search.folded.alternating import joint_stage, merge_period
from ms_symtensor.search.folded.folding import Fold, few_blocks, fold, shorten
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
    of_graph, of_together = fold(graph), fold(together)
    for name, stage in stages.items():
        joint = joint_stage(stage, together)
        try:
            if joint is None:
                bill = _bill(graph, of_graph, stage, known, under)
            else:
                bill = _bill(together, of_together, joint, known, under)
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


def _bill(graph: Graph, folded: Fold, stage: StagePlan, known: Meanings, runtime: Runtime) -> PlanBill:
    """The bill of a step of `stage`: of every run of blocks that are alike few are written (`program.long_runs`)."""
    order = {name: place for place, name in enumerate(graph.blocks)}
    segments, names = list[tuple[tuple[str, ...], int]](), set(order)
    recompute = dict[str, Recompute]()
    for kind in folded.kinds if few_blocks(graph, folded) is not graph else ():
        left = iter(kind)
        for chosen, alike in groupby(sorted(kind, key=order.__getitem__), key=stage.settings.recompute.get):
            count = len(list(alike))
            written = tuple(islice(left, min(count, EACH)))
            segments.append((written, count))
            recompute |= {} if chosen is None else dict.fromkeys(written, chosen)
        names -= set(left)
    if not segments:
        return plan_bill(graph, (stage,), known=known, fuses=runtime.fuses)
    short = shorten(graph, folded, [len(names.intersection(kind)) for kind in folded.kinds])
    of_short = {op.name: stage.strategies[op.name] for op in short.ops if op.name in stage.strategies}
    plan = StagePlan(of_short, replace(stage.settings, recompute=recompute))
    program = fused_program(short, partition(short, plan, known=known), known, runtime.fuses)
    assert isinstance(program, Program)
    times = {written[1]: 1 + count - EACH for written, count in segments if count > EACH}
    memory = memory_B(short, plan, program, times)
    runs = measure(program, [[(name,) for name in written] for written, _ in segments])
    memory["activations"] += runs.peak_B([count - len(written) for written, count in segments])
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
