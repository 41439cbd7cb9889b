"""`parameter_layout`: strategy checkpoints in both forms, of all stages, and of each of several, its number in the name, as
MindSpore's compile of that stage writes it.
"""

from ms_symtensor.files.writing import Content
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.strategy.checkpoint import checkpoint_json, checkpoint_protobuf, merged, strategy_checkpoint
from ms_symtensor.strategy.folder import CHECKPOINT_FILE
from ms_symtensor.targets.exporter import Exporter, Planned

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


def _files(planned: Planned) -> dict[str, Content]:
    plan, graph = planned.plan, planned.graph
    states = OPTIMIZER_STATES if plan.pipeline is None else (*OPTIMIZER_STATES, ACCUMULATED)
    stages = [
        strategy_checkpoint(program.graph, stage, program.parameters, states, program.stage)
        if isinstance(program, StageProgram)
        else strategy_checkpoint(graph, stage, program.parameters, states)
        for program, stage in zip(planned.programs, plan.stages, strict=True)
    ]
    numbered = {f"{CHECKPOINT_FILE}_{n}": one for n, one in enumerate(stages)} if len(stages) > 1 else {}
    found: dict[str, Content] = {}
    for name, checkpoint in {CHECKPOINT_FILE: merged(stages), **numbered}.items():
        found |= {f"{name}.json": checkpoint_json(checkpoint), f"{name}.ckpt": checkpoint_protobuf(checkpoint)}
    return found


EXPORTER = Exporter(CHECKPOINT_FILE, _files)
