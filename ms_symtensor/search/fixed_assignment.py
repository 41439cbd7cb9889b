"""Price a plan that somebody else made, by the formulas of the search: a yardstick for its own.

Strategies, stages, micro-batches, optimizer sharding and recomputation are given; blocks per stage and recomputed blocks may
be left to the search, which then recomputes as few as fit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.folded.folding import fold
from ms_symtensor.search.found import Found, as_priced, plan_of
from ms_symtensor.search.space.family import Single
from ms_symtensor.search.space.step_layouts import StepLayout
from ms_symtensor.search.stages.layout_candidates import fixed_candidate
from ms_symtensor.search.stages.materialize import MaterializedPlan, as_given, made_feasible, with_fewest
from ms_symtensor.search.stages.network import Network
from ms_symtensor.search.stages.stage_layers import even
from ms_symtensor.search.tables.pricing import Pricer
from ms_symtensor.search.tables.problem import problem_of
from ms_symtensor.search.tables.variables import variables
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph


@dataclass(frozen=True)
class FixedAssignment:
    """A plan by hand.

    `strategies(graph)`: those of the operators of the network with any number of blocks, at the size of a micro-batch.
    `layers`: blocks of every stage (None: divided such that the slowest stage is as fast as can be); `recomputed`: how many
    of them are recomputed, first ones first (None: as few as fit, or all where even that does not fit).
    """

    shape: StepLayout
    level: OptimizerLevel
    strategies: Callable[[Graph], Mapping[str, OpStrategy]]
    layers: tuple[int, ...] | None = None
    recomputed: tuple[int, ...] | None = None


def price_fixed(network: Network, request: Request, fixed: FixedAssignment) -> Plan:
    """The plan `fixed` for `network`, priced; `fits` of its prediction tells whether it does.

    Errors: InvalidStrategyError for what MindSpore would reject, or not train rightly.
    """
    short = network.short(fixed.shape.batch)
    pricer = Pricer(request.cluster, Single(fixed.shape.mesh))
    known = variables(short, fold(short), pricer, request.rules, fixed=fixed.strategies(short))
    of = problem_of(short, known)
    row = fixed_candidate(of, fixed.shape, fixed.level, network.depths)
    found = None
    if fixed.recomputed is None and fixed.layers is None:
        found = made_feasible(network, row, request.limit_B)
    if found is None:
        layers = fixed.layers or even(sum(network.depths[1:-1]), fixed.shape.stages)

        def laid(recomputation: Sequence[int]) -> MaterializedPlan:
            return as_given(network, row, layers, recomputation)

        found = laid(fixed.recomputed) if fixed.recomputed is not None else with_fewest(laid, layers, request.limit_B)
    plan = plan_of(network, request, Found(found, bounds_s={fixed.shape: found.estimate.step_time_s}))
    return as_priced(plan, network.graph_at(fixed.shape.batch), request)
