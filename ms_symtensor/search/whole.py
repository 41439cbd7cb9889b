"""The whole plan: the survey's best shapes, each with the true peak of its stages.

The survey leaves out what lives only for a moment. So for its best shapes the program of a stage is written down on their own
mesh, and the blocks are divided again with what its peak leaves for them. The answer is the best of these; its gap is the
distance to the survey's bound.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.step import buffers_B
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.liveness import activation_peak_B
from ms_symtensor.program.partition import partition
from ms_symtensor.program.settings import Recompute, Settings, StagePlan
from ms_symtensor.search.family import Family
from ms_symtensor.search.outer import Estimate, Outcome, divided, estimated, parts_of, survey
from ms_symtensor.search.rows import Row
from ms_symtensor.search.shapes import Shape
from ms_symtensor.search.stage_layers import laid_out
from ms_symtensor.tensor.graph import Graph

ShortAt = Callable[[int], Graph]
"""The network at so many samples, with SHORT blocks of every kind."""

REFINED = 3
"""At most so many of the survey's best shapes are settled: those whose survey is below the best that was settled."""


@dataclass(frozen=True)
class Whole:
    """The best plan: its shape and stages, the strategies in the network of SHORT blocks, and the bytes of moments.

    `moments_B` is what a stage needs beyond what it keeps.
    """

    estimate: Estimate
    row: Row
    strategies: Mapping[str, OpStrategy]
    moments_B: float

    @property
    def settings(self) -> Settings:
        """Those of a stage, nothing recomputed."""
        return settings_of(self.row)


def whole_plan(
    short_at: ShortAt,
    depths: tuple[int, ...],
    cluster: Cluster,
    space: Sequence[Shape],
    limit_B: float,
    rules: Mapping[str, Rule] | None = None,
    keep: int = 10,
    known_s: float = math.inf,
) -> tuple[Outcome, Whole | None]:
    """What was learnt of `space`, and the fastest plan of several stages that fit `limit_B`; None if none does and beats
    `known_s`.
    """
    outcome = survey(short_at, depths, space, cluster, limit_B, rules, keep, known_s)
    best: Whole | None = None
    for estimate in [e for e in outcome.estimates if e.shape.stages > 1][:REFINED]:
        if best is not None and estimate.step_time_s >= best.estimate.step_time_s:
            break
        of_shape = [row for row in outcome.rows if row.shape == estimate.shape]
        found = settled(short_at(estimate.shape.batch), depths, of_shape, limit_B, rules)
        if found is not None and found.estimate.step_time_s < (known_s if best is None else best.estimate.step_time_s):
            best = found
    return outcome, best


def settled(
    graph: Graph,
    depths: tuple[int, ...],
    rows: Sequence[Row],
    limit_B: float,
    rules: Mapping[str, Rule] | None = None,
) -> Whole | None:
    """The best of `rows`, choices for one shape, with the true peaks of its stages; None if nothing fits.

    `graph`: the network with few blocks, at the size of the shape's micro-batch.
    """
    guesses = [(guess, row) for row in rows if (guess := divided(row, depths, limit_B)) is not None]
    best: Whole | None = None
    for guess, row in sorted(guesses, key=lambda pair: pair[0].step_time_s):
        if best is not None and guess.step_time_s >= best.estimate.step_time_s:
            break
        strategies = strategies_of(row)
        try:
            moments_B = _moments_B(graph, row, strategies, rules)
        except InvalidStrategyError:
            continue  # a mesh like the family's other ones in all but this
        found = divided(row, depths, limit_B - moments_B)
        if found is not None and (best is None or found.step_time_s < best.estimate.step_time_s):
            best = Whole(found, row, strategies, moments_B)
    return best


def as_given(
    graph: Graph,
    depths: tuple[int, ...],
    row: Row,
    layers: Sequence[int],
    recomputed: Sequence[int],
    rules: Mapping[str, Rule] | None = None,
) -> Whole:
    """`row` on stages of so many blocks, of which each recomputes so many, whether they fit or not; `graph` as in `settled`."""
    strategies, parts = strategies_of(row), parts_of(row, depths)
    stages = laid_out(parts, layers, recomputed, row.shape.micro_batch_num)
    return Whole(estimated(row, depths, parts, stages), row, strategies, _moments_B(graph, row, strategies, rules))


def settings_of(row: Row) -> Settings:
    """The settings of a stage on the mesh of `row`, nothing recomputed."""
    return replace(row.problem.settings, device_num=math.prod(row.shape.mesh), optimizer_level=row.level)


def strategies_of(row: Row) -> dict[str, OpStrategy]:
    """The strategies of `row` on its own mesh, by the operators' names in the network with SHORT blocks."""
    of = row.problem
    family = of.known.pricer.family

    def own(degrees: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(_degree(family, n, row.member) for n in dims) for dims in degrees)

    found = {}
    for name, number in of.known.index.items():
        strategy = of.known.items[number].strategies[row.choice[number]]
        outputs = None if strategy.outputs is None else own(strategy.outputs)
        found[name] = OpStrategy(own(strategy.inputs), outputs)
    return found


def _degree(family: Family, n: int, member: int) -> int:
    degrees = family.degree(n)
    assert degrees is not None, f"{n} slices are no product of axes"
    return int(degrees[member])


def _moments_B(graph: Graph, row: Row, strategies: Mapping[str, OpStrategy], rules: Mapping[str, Rule] | None) -> float:
    """Bytes that a micro-batch needs beyond what it keeps: what lives only for a moment, and communication buffers.

    Where blocks are recomputed, that includes what one of them makes again.
    """
    costs = row.costs
    where = row.problem.places
    depths = np.array([1, *(len(names) for names in where.kinds), 1])
    found = 0.0
    for blocks, kept_B in (((), costs.kept_B), (row.problem.blocks, costs.kept_recomputed_B)):
        settings = replace(settings_of(row), recompute=dict.fromkeys(blocks, Recompute()))
        program = partition(graph, StagePlan(strategies, settings), rules)
        found = max(found, activation_peak_B(program) - float((kept_B * depths).sum()) + buffers_B(program))
    return found
