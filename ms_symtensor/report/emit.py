"""Everything that a plan is written as, in one directory."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ms_symtensor.program.program import Program
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.strategy.checkpoint import checkpoint_json, checkpoint_protobuf, merged, strategy_checkpoint
from ms_symtensor.strategy.file import files_of
from ms_symtensor.strategy.folder import (
    CHECKPOINT_FILE,
    CODE_FILE,
    DIGESTS_FILE,
    MINDFORMERS_FILE,
    OPERATOR_FILE,
    REPORT_FILE,
    write,
)
from ms_symtensor.strategy.mindformers import mindformers_yaml
from ms_symtensor.strategy.operator_json import operator_strategy_text
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.python_code import python_code
from ms_symtensor.tensor.graph import Graph

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


@dataclass(frozen=True)
class Written:
    """The names of the files of a plan's folder, and the digest of the folder."""

    names: tuple[str, ...]
    digest: str


def write_plan(
    plan: Plan,
    graph: Graph,
    programs: Sequence[Program | StageProgram],
    report: str,
    directory: str | os.PathLike[str],
) -> Written:
    """Write the plan, its graph, MindSpore's own forms of it, Python code and the `report`, in place of the plan that was there
    before; all or none.

    `programs` are those of the plan (`programs_of`). Errors: InputError if the directory
    cannot be written; InvalidStrategyError where MindSpore cannot be told the plan.
    """
    files: dict[str, str | bytes] = {
        **files_of(plan, graph),
        **for_mindspore(plan, graph, programs),
        CODE_FILE: python_code(graph, plan),
        MINDFORMERS_FILE: mindformers_yaml(plan, graph),
        REPORT_FILE: report + "\n",
    }
    return Written((*files, DIGESTS_FILE), write(directory, files))


def for_mindspore(plan: Plan, graph: Graph, programs: Sequence[Program | StageProgram]) -> dict[str, str | bytes]:
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
