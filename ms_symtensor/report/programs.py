"""The programs that a plan makes MindSpore write: what report and files are made from."""

from collections.abc import Sequence

from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Program
from ms_symtensor.program.stage_program import StageProgram, partition_stages
from ms_symtensor.strategy.plan import MicroBatchLoss, Plan
from ms_symtensor.tensor.graph import Graph


def programs_of(plan: Plan, graph: Graph) -> Sequence[Program] | Sequence[StageProgram]:
    """One program for all ranks; with micro-batches one for every stage. Errors: those of `partition`."""
    if plan.pipeline is None:
        return [partition(graph, plan.stage)]
    return partition_stages(graph, plan.stages, plan.pipeline, counted=plan.loss is MicroBatchLoss.COUNTED)
