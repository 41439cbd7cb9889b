"""The whole plan: the survey's best shapes, each solved again on its own mesh with the true peak of its stages.

The survey prices the blocks on a mesh that stands for many and leaves out what lives only for a moment. So its best shapes
are solved again, each on its mesh: in the exact space of that mesh, with the peak of a stage of so many blocks counted on
its program. The answer is the best of these; its gap is the distance to the survey's bound.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.step import buffers_B
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.liveness import activation_peak_B
from ms_symtensor.program.partition import partition
from ms_symtensor.program.settings import Recompute, Settings, StagePlan
from ms_symtensor.search.outer import Estimate, Outcome, Row, divided, rows, survey
from ms_symtensor.search.problem import Problem, problem
from ms_symtensor.search.shapes import Shape, shapes
from ms_symtensor.tensor.graph import Graph

GraphAt = Callable[[int, int], Graph]
"""The network at so many samples, with so many blocks of every kind."""

SHORT = 3
"""Blocks of every kind in the network whose tables are written down: a first, a last and one between them."""

REFINED = 3
"""So many of the survey's best shapes are solved again (empirical: the survey ranks them rightly to a few per mille)."""


@dataclass(frozen=True)
class Whole:
    """The best plan: its shape and stages, the operators' strategies in the network of SHORT blocks, and how it was found."""

    estimate: Estimate
    strategies: Mapping[str, OpStrategy]
    outcome: Outcome
    gap: float


def whole_plan(
    graph_at: GraphAt,
    depths: tuple[int, ...],
    cluster: Cluster,
    device_num: int,
    global_batch_size: int,
    limit_B: float,
    rules: Mapping[str, Rule] | None = None,
    keep: int = 10,
) -> Whole:
    """The fastest plan over all shapes of `device_num` devices whose stages fit `limit_B`.

    InfeasibleError if none fits.
    """
    space = shapes(device_num, global_batch_size, sum(depths[1:-1]))
    outcome = survey(lambda batch: graph_at(batch, SHORT), depths, space, cluster, limit_B, rules, keep)
    best: tuple[Estimate, Row] | None = None
    for estimate in outcome.estimates[:REFINED]:
        if best is not None and estimate.bound_s >= best[0].step_time_s:
            break
        found = solved(graph_at, depths, estimate.shape, cluster, limit_B, rules)
        if found is not None and (best is None or found[0].step_time_s < best[0].step_time_s):
            best = found
    if best is None:
        raise InfeasibleError(f"nothing found that fits {limit_B / 1024**3:.1f} GiB on {device_num} devices")
    one, row = best
    gap = max(0.0, one.step_time_s / outcome.bound_s - 1) if outcome.bound_s > 0 else 0.0
    return Whole(one, strategies_of(row), outcome, gap)


def solved(
    graph_at: GraphAt,
    depths: tuple[int, ...],
    shape: Shape,
    cluster: Cluster,
    limit_B: float,
    rules: Mapping[str, Rule] | None = None,
) -> tuple[Estimate, Row] | None:
    """The best estimate of one shape on its own mesh, with the true peaks of its stages; None if nothing fits."""
    of = problem(graph_at(shape.batch, SHORT), cluster, shape.mesh, rules)
    best: tuple[Estimate, Row] | None = None
    for row in rows(of, depths, [shape], limit_B):
        if best is not None and row.bound_s >= best[0].step_time_s:
            continue
        found = divided(row, depths, limit_B - _moments_B(row))
        if found is not None and (best is None or found.step_time_s < best[0].step_time_s):
            best = found, row
    return best


def strategies_of(row: Row) -> dict[str, OpStrategy]:
    """The strategies of `row`, by the operators' names in the network with SHORT blocks."""
    of: Problem = row.problem
    return {name: of.known.items[number].strategies[row.choice[number]] for name, number in of.known.index.items()}


def _moments_B(row: Row) -> float:
    """Bytes that a micro-batch needs beyond what it keeps: what lives only for a moment, and communication buffers.

    Where blocks are recomputed, that includes what one of them makes again.
    """
    of, c, m = row.problem, row.costs, row.member
    strategies = strategies_of(row)
    found = 0.0
    for blocks, kept in (((), c.kept_B[:, m]), (of.blocks, c.kept_recomputed_B[:, m])):
        settings = Settings(of.device_num, optimizer_level=row.level, recompute=dict.fromkeys(blocks, Recompute()))
        program = partition(of.graph, StagePlan(strategies, settings), known=of.known.meanings)
        at_rest_B = float((kept * of.places.depths).sum())
        found = max(found, activation_peak_B(program) - at_rest_B + buffers_B(program))
    return found
