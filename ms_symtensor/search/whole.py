"""The whole plan: the survey's best shapes, each solved again on its own mesh with the true peak of its stages.

The survey prices the blocks on a mesh that stands for many and leaves out what lives only for a moment. So its best shapes
are solved again, each on its mesh: in the exact space of that mesh, with the peak of a stage of so many blocks counted on
its program. The answer is the best of these; its gap is the distance to the survey's bound.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.step import buffers_B
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.liveness import activation_peak_B
from ms_symtensor.program.partition import partition
from ms_symtensor.program.settings import Recompute, StagePlan
from ms_symtensor.search.outer import Estimate, Outcome, Row, divided, rows, survey
from ms_symtensor.search.problem import Problem, problem
from ms_symtensor.search.shapes import Shape
from ms_symtensor.tensor.graph import Graph

ShortAt = Callable[[int], Graph]
"""The network at so many samples, with SHORT blocks of every kind."""

REFINED = 3
"""At most so many of the survey's best shapes are solved again: those whose survey is below the best that was solved."""


@dataclass(frozen=True)
class Whole:
    """The best plan: its shape and stages, the layouts in the network of SHORT blocks, and what a stage
    needs beyond what it keeps.
    """

    estimate: Estimate
    row: Row
    moments_B: float


def whole_plan(
    short_at: ShortAt,
    depths: tuple[int, ...],
    cluster: Cluster,
    space: Sequence[Shape],
    limit_B: float,
    rules: Mapping[str, Rule] | None = None,
    keep: int = 10,
    known_s: float = math.inf,
    least_stages: int = 1,
) -> tuple[Outcome, Whole | None]:
    """What was learnt of `space`, and the fastest plan whose stages, `least_stages` of them, fit `limit_B`.

    None if no plan fits and beats `known_s`.
    """
    outcome = survey(short_at, depths, space, cluster, limit_B, rules, keep, known_s)
    best: tuple[Estimate, Row, float] | None = None
    for estimate in [one for one in outcome.estimates if one.shape.stages >= least_stages][:REFINED]:
        if best is not None and estimate.step_time_s >= best[0].step_time_s:
            break
        found = solved(short_at, depths, estimate.shape, cluster, limit_B, rules)
        if found is not None and found[0].step_time_s < (known_s if best is None else best[0].step_time_s):
            best = found
    return outcome, Whole(*best) if best is not None else None


def solved(
    short_at: ShortAt,
    depths: tuple[int, ...],
    shape: Shape,
    cluster: Cluster,
    limit_B: float,
    rules: Mapping[str, Rule] | None = None,
) -> tuple[Estimate, Row, float] | None:
    """The best estimate of one shape on its own mesh, with the true peaks of its stages; None if nothing fits.

    The last number is what a stage needs beyond what it keeps, in bytes.
    """
    of = problem(short_at(shape.batch), cluster, shape.mesh, rules)
    best: tuple[Estimate, Row, float] | None = None
    for row in rows(of, depths, [shape], limit_B):
        if best is not None and row.bound_s >= best[0].step_time_s:
            continue
        moments_B = _moments_B(row)
        found = divided(row, depths, limit_B - moments_B)
        if found is not None and (best is None or found.step_time_s < best[0].step_time_s):
            best = found, row, moments_B
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
        settings = replace(of.settings, optimizer_level=row.level, recompute=dict.fromkeys(blocks, Recompute()))
        program = partition(of.graph, StagePlan(strategies, settings), known=of.known.meanings)
        at_rest_B = float((kept * of.places.depths).sum())
        found = max(found, activation_peak_B(program) - at_rest_B + buffers_B(program))
    return found
