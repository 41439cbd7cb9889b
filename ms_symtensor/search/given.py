"""Price a plan that somebody else made, by the formulas of the search: a yardstick for its own.

Strategies, stages, micro-batches, optimizer sharding and recomputation are given; blocks per stage and recomputed blocks may
be left to the search, which then recomputes as few as fit.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.meanings import meanings
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings, StagePlan
from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.folded.depth import at_depth, judged
from ms_symtensor.search.folded.folding import fold
from ms_symtensor.search.folded.memory import PeakMemory, ShortGraphs, few_blocks, short_graphs
from ms_symtensor.search.pipelined import Pipelined, plan_of
from ms_symtensor.search.plan import one_stage_plan
from ms_symtensor.search.priced import as_priced
from ms_symtensor.search.space.family import Single
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.network import Network
from ms_symtensor.search.stages.rows import given_row
from ms_symtensor.search.stages.whole import Whole, as_given, settled, with_fewest
from ms_symtensor.search.tables.problem import plain_settings, problem_of_family
from ms_symtensor.strategy.plan import Plan, SearchReport
from ms_symtensor.tensor.graph import Graph

METHOD = "given by hand"


@dataclass(frozen=True)
class Given:
    """A plan by hand.

    `strategies(graph)`: those of the operators of the network with any number of blocks, at the size of a micro-batch.
    `layers`: blocks of every stage (None: divided such that the slowest stage is as fast as can be); `recomputed`: how many
    of them are recomputed, first ones first (None: as few as fit, or all where even that does not fit).
    """

    shape: Shape
    level: OptimizerLevel
    strategies: Callable[[Graph], Mapping[str, OpStrategy]]
    layers: tuple[int, ...] | None = None
    recomputed: tuple[int, ...] | None = None


def price_given(network: Network, request: Request, given: Given) -> Plan:
    """The plan `given` for `network`, priced; `fits` of its prediction tells whether it does.

    Errors: InvalidStrategyError for what MindSpore would reject, or not train rightly.
    """
    if not given.shape.accumulates:
        return _one_stage(network, request, given)
    short = network.short(given.shape.batch)
    of = problem_of_family(
        short, request.cluster, Single(given.shape.mesh), request.rules, given=given.strategies(short)
    )
    row = given_row(of, given.shape, given.level)
    found = None
    if given.recomputed is None and given.layers is None:
        found = settled(network, [row], request.limit_B, request.rules)
    if found is None:
        layers = given.layers or even(sum(network.depths[1:-1]), given.shape.stages)

        def laid(again: Sequence[int]) -> Whole:
            return as_given(network, row, layers, again, request.rules)

        found = laid(given.recomputed) if given.recomputed is not None else with_fewest(laid, layers, request.limit_B)
    plan = plan_of(network, request, found, Pipelined(found, found.estimate.step_time_s, 0, (), {}))
    return as_priced(plan, network.graph_at(given.shape.batch), request)


def even(blocks: int, stages: int) -> tuple[int, ...]:
    """So many blocks on so many stages; the first ones take one more where they do not divide."""
    return tuple(blocks // stages + (number < blocks % stages) for number in range(stages))


def _one_stage(network: Network, request: Request, given: Given) -> Plan:
    graph = network.graph_at(given.shape.batch)
    folded = fold(graph)
    few = few_blocks(graph, folded)
    shorts = short_graphs(few, fold(few), meanings(few, request.rules), folded.kinds)
    strategies = given.strategies(few)
    settings = replace(plain_settings(few, math.prod(given.shape.mesh)), optimizer_level=given.level)
    plain = judged(shorts, strategies, settings, request.cluster, request.rules)
    count = (
        sum(given.recomputed)
        if given.recomputed is not None
        else _fewest(shorts, strategies, settings, request, plain.cost.memory_B)
    )
    settings = replace(settings, recompute=dict.fromkeys(shorts.blocks[:count], Recompute()))
    found = judged(shorts, strategies, settings, request.cluster, request.rules)
    stage = StagePlan(at_depth(folded.class_of, few, strategies), settings)
    return one_stage_plan(graph, request, stage, found, SearchReport(0, 0.0, 0.0, METHOD))


def _fewest(
    shorts: ShortGraphs,
    strategies: Mapping[str, OpStrategy],
    settings: Settings,
    request: Request,
    plain_B: Mapping[str, int],
) -> int:
    """The fewest recomputed blocks that fit; all where even those do not."""
    at_rest_B = sum(plain_B.values()) - plain_B["activations"] - plain_B["buffers"]
    peaks = PeakMemory(shorts, strategies, settings)
    low, high = 0, len(shorts.blocks)
    while low < high:
        middle = (low + high) // 2 if low else 0
        if at_rest_B + sum(peaks.of(middle)) <= request.limit_B:
            high = middle
        else:
            low = middle + 1
    return high
