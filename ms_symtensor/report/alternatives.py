"""What else could have been done, priced by the same formulas: the strategies that people write by hand."""

from collections.abc import Mapping
from dataclasses import dataclass

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.step import price
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.program.meanings import meanings
from ms_symtensor.program.partition import partition
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.report.text import seconds, size, table
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph


@dataclass(frozen=True)
class Alternative:
    """Predicted seconds of a step and peak bytes of a device under another strategy."""

    name: str
    step_time_s: float
    peak_memory_B: int


def priced(graph: Graph, stages: Mapping[str, StagePlan], cluster: Cluster) -> tuple[Alternative, ...]:
    """The strategies `stages`, by name, that MindSpore would accept, the fastest first."""
    found, known = [], meanings(graph)
    for name, stage in stages.items():
        try:
            cost = price(graph, stage, partition(graph, stage, known=known), cluster, known)
        except InvalidStrategyError:
            continue
        found.append(Alternative(name, cost.step_time_s, cost.peak_memory_B))
    return tuple(sorted(found, key=lambda a: a.step_time_s))


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
