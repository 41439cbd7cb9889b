"""Everything that a plan is written as, in one directory."""

import os

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
ADAM_STATES = ("adam_m", "adam_v")
"""What MindSpore's Adam and AdamWeightDecay put before the names of parameters for their states."""


def write_plan(plan: Plan, graph: Graph, report: str, directory: str | os.PathLike[str]) -> tuple[str, ...]:
    """Write the plan, its graph, MindSpore's own forms of it, Python code and the `report`; all or none.

    The names of the files are returned. Errors: InputError if the directory cannot be written; InvalidStrategyError
    where MindSpore cannot be told the plan.
    """
    checkpoint = strategy_checkpoint(graph, plan.stage, ADAM_STATES)
    files: dict[str, str | bytes] = {
        **files_of(plan, graph),
        OPERATOR_FILE: operator_strategy_text(graph, plan.stage),
        f"{CHECKPOINT_FILE}.json": checkpoint_json(checkpoint),
        f"{CHECKPOINT_FILE}.ckpt": checkpoint_protobuf(checkpoint),
        CODE_FILE: python_code(graph, plan),
        REPORT_FILE: report + "\n",
    }
    write_files(directory, files)
    return tuple(files)
