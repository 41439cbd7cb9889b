"""The stages of a plan as a run-time runs them, which its price is that of."""

from ms_symtensor.cost.runtime import Runtime
from ms_symtensor.program.recomputation import gathering_again
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph


def as_run_by(plan: Plan, graph: Graph, runtime: Runtime) -> tuple[StagePlan, ...]:
    """The stages of `plan` for `graph`; under some run-times they gather tokens again that other ranks hold."""
    if not (runtime.gathers_again and plan.sequence_parallel):
        return plan.stages
    return tuple(gathering_again(stage, graph) for stage in plan.stages)
