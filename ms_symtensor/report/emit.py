"""Everything that a plan is written as, in one directory."""

import os

from ms_symtensor.program.pipeline import Pipeline
from ms_symtensor.program.stage_program import partition_stages
from ms_symtensor.strategy.checkpoint import checkpoint_json, checkpoint_protobuf, strategy_checkpoint
from ms_symtensor.strategy.file import files_of
from ms_symtensor.strategy.operator_json import operator_strategy_text
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.python_code import python_code
from ms_symtensor.strategy.writing import write_files
from ms_symtensor.tensor.graph import Graph

OPERATOR_FILE = "operator_strategy.json"
CHECKPOINT_FILE = "parameter_layout"  # .json and .ckpt: MindSpore chooses the form by the ending
CODE_FILE = "shard.py"
REPORT_FILE = "report.txt"
ACCUMULATED = "accu_grads"
"""The same for the parameters in which MindSpore's pipeline steps add gradients up."""
ADAM_STATES = ("adam_m", "adam_v")
"""What MindSpore's Adam and AdamWeightDecay put before the names of parameters for their states."""


def write_plan(plan: Plan, graph: Graph, report: str, directory: str | os.PathLike[str]) -> tuple[str, ...]:
    """Write the plan, its graph, MindSpore's own forms of it, Python code and the `report`; all or none.

    The names of the files are returned. Errors: InputError if the directory cannot be written; InvalidStrategyError
    where MindSpore cannot be told the plan.
    """
    files: dict[str, str | bytes] = {
        **files_of(plan, graph),
        **(_for_mindspore(plan, graph) if plan.pipeline is None else _stages_for_mindspore(plan, graph, plan.pipeline)),
        CODE_FILE: python_code(graph, plan),
        REPORT_FILE: report + "\n",
    }
    write_files(directory, files)
    return tuple(files)


def _for_mindspore(plan: Plan, graph: Graph) -> dict[str, str | bytes]:
    checkpoint = strategy_checkpoint(graph, plan.stage, ADAM_STATES)
    return {
        OPERATOR_FILE: operator_strategy_text(graph, plan),
        f"{CHECKPOINT_FILE}.json": checkpoint_json(checkpoint),
        f"{CHECKPOINT_FILE}.ckpt": checkpoint_protobuf(checkpoint),
    }


def _stages_for_mindspore(plan: Plan, graph: Graph, pipeline: Pipeline) -> dict[str, str | bytes]:
    """A checkpoint of either kind for every stage, the stage's number in its name; MindSpore's resharding merges them
    (`merge_pipeline_strategys`). One operator strategy for all, unless stages are interleaved.
    """
    files: dict[str, str | bytes] = {}
    if pipeline.interleave == 1:
        files[OPERATOR_FILE] = operator_strategy_text(graph, plan)
    for program, stage in zip(partition_stages(graph, plan.stages, pipeline), plan.stages, strict=True):
        checkpoint = strategy_checkpoint(
            program.graph, stage, (*ADAM_STATES, ACCUMULATED), program.parameters, program.stage
        )
        files |= {
            f"{CHECKPOINT_FILE}_{program.stage}.json": checkpoint_json(checkpoint),
            f"{CHECKPOINT_FILE}_{program.stage}.ckpt": checkpoint_protobuf(checkpoint),
        }
    return files
