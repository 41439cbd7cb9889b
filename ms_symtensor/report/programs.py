"""The programs that a plan makes MindSpore write: what report and files are made from."""

from dataclasses import replace

from ms_symtensor.program import stage_program
from ms_symtensor.program.stage_program import Programs, StageProgram
from ms_symtensor.strategy.plan import MicroBatchLoss, Plan
from ms_symtensor.tensor.graph import Graph


def programs_of(plan: Plan, graph: Graph) -> Programs:
    """One program for all ranks; with micro-batches one for every stage. Errors: those of `partition`."""
    found = stage_program.programs_of(graph, plan.stages, plan.pipeline)
    if plan.loss is not MicroBatchLoss.COUNTED or plan.pipeline is None:
        return found
    return [replace(one, counted=True) for one in found if isinstance(one, StageProgram)]
