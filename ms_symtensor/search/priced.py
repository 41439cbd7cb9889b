"""A plan that was found, with the price of the programs that it makes MindSpore write (`cost.plan_price`).

The search compares layouts by tables that leave out what depends on all stages together: what these send each other, how the end
of one stage hides behind another, and what the run-time hides.
"""

from dataclasses import replace

from ms_symtensor.cost.plan_price import price_plan
from ms_symtensor.program.meanings import meanings
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph

ROUNDING = 1e-9
"""By such a share sums in another order may be larger."""


def as_priced(plan: Plan, graph: Graph, request: Request) -> Plan:
    """`plan` for `graph` with the prediction that its programs give.

    The gap is that of the tables, and what the price is above them; where the price is below, other plans may gain as much, and
    the gap stays as it is.
    """
    found = price_plan(
        graph, plan.stages, plan.pipeline, request.cluster, request.runtime, known=meanings(graph, request.rules)
    )
    before, gap = plan.prediction, plan.search.optimality_gap
    ratio = found.step_time_s / before.step_time_s
    memory = found.fullest_B
    prediction = replace(
        before,
        time_s=found.time_s,
        hidden_s=found.hidden_s,
        experts_s=found.experts_s,
        memory_B=memory,
        fits=sum(memory.values()) <= request.limit_B,
    )
    considered = tuple(
        replace(one, step_time_s=found.step_time_s) if one.step_time_s == before.step_time_s else one
        for one in plan.search.considered
    )
    above = (1 + gap) * ratio - 1 if ratio > 1 + ROUNDING else gap
    search = replace(plan.search, optimality_gap=max(gap, above), considered=considered)
    runtime = request.runtime
    return replace(plan, prediction=prediction, search=search, runtime=runtime.name, hide=runtime.hide)
