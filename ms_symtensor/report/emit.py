"""Everything that a plan is written as, in one directory."""

import os
import re
from collections.abc import Sequence

from ms_symtensor.program.program import Program
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.strategy.checkpoint import checkpoint_json, checkpoint_protobuf, merged, strategy_checkpoint
from ms_symtensor.strategy.file import files_of
from ms_symtensor.strategy.mindformers import mindformers_yaml
from ms_symtensor.strategy.operator_json import operator_strategy_text
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.python_code import python_code
from ms_symtensor.strategy.writing import write_files
from ms_symtensor.tensor.graph import Graph

OPERATOR_FILE = "operator_strategy.json"
CHECKPOINT_FILE = "parameter_layout"  # .json and .ckpt: MindSpore chooses the form by the ending
_STRATEGIES = re.compile(rf"{re.escape(OPERATOR_FILE)}|{CHECKPOINT_FILE}(_\d+)?\.(json|ckpt)")
"""The names of strategy files, of which plans have different ones: those of another plan do not stay beside a plan."""
CODE_FILE = "shard.py"
MINDFORMERS_FILE = "mindformers.yaml"
REPORT_FILE = "report.txt"
ACCUMULATED = "accu_grads"
"""What MindSpore's steps with micro-batches put before the names of parameters, for those in which gradients add up."""
OPTIMIZER_STATES = (
    *("adam_m", "adam_v"),  # nn.AdamWeightDecay
    *("moment1", "moment2", "vhat"),  # nn.Adam
    *("moments", "accum", "stat"),  # nn.Momentum, nn.SGD
    *("lamb_m", "lamb_v"),  # nn.Lamb
    *("exp_avg", "exp_avg_sq", "max_exp_avg_sq"),  # mint.optim.AdamW and MindFormers' AdamW
)
"""What optimizers put before the names of parameters for their states. Of a state that is not in the strategy checkpoint,
MindSpore's resharding leaves the slices as they are, without a word."""


def write_plan(
    plan: Plan,
    graph: Graph,
    programs: Sequence[Program | StageProgram],
    report: str,
    directory: str | os.PathLike[str],
) -> tuple[str, ...]:
    """Write the plan, its graph, MindSpore's own forms of it, Python code and the `report`; all or none. Strategy files of a plan
    that was there before are removed.

    `programs` are those of the plan (`programs_of`). The names of the files are returned. Errors: InputError if the directory
    cannot be written; InvalidStrategyError where MindSpore cannot be told the plan.
    """
    files: dict[str, str | bytes] = {
        **files_of(plan, graph),
        **_for_mindspore(plan, graph, programs),
        CODE_FILE: python_code(graph, plan),
        MINDFORMERS_FILE: mindformers_yaml(plan, graph),
        REPORT_FILE: report + "\n",
    }
    write_files(directory, files, lambda name: _STRATEGIES.fullmatch(name) is not None)
    return tuple(files)


def _for_mindspore(plan: Plan, graph: Graph, programs: Sequence[Program | StageProgram]) -> dict[str, str | bytes]:
    """An operator strategy, unless stages are interleaved, and strategy checkpoints in both forms: of all stages, and of each of
    several, its number in the name, as MindSpore's compile of that stage writes it.
    """
    files: dict[str, str | bytes] = {}
    if plan.pp_interleave_num == 1:
        files[OPERATOR_FILE] = operator_strategy_text(graph, plan)
    states = OPTIMIZER_STATES if plan.pipeline is None else (*OPTIMIZER_STATES, ACCUMULATED)
    stages = [
        strategy_checkpoint(program.graph, stage, program.parameters, states, program.stage)
        if isinstance(program, StageProgram)
        else strategy_checkpoint(graph, stage, program.parameters, states)
        for program, stage in zip(programs, plan.stages, strict=True)
    ]
    numbered = {f"{CHECKPOINT_FILE}_{n}": one for n, one in enumerate(stages)} if len(stages) > 1 else {}
    for name, checkpoint in {CHECKPOINT_FILE: merged(stages), **numbered}.items():
        files |= {f"{name}.json": checkpoint_json(checkpoint), f"{name}.ckpt": checkpoint_protobuf(checkpoint)}
    return files
