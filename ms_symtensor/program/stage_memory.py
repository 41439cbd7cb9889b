"""What the activations of a pipeline stage need: those of several micro-batches at once.

Under 1F1B stage i of P runs min(M, P - i) forward passes before the first backward pass (Narayanan et al. 2021, "Efficient
Large-Scale Language Model Training on GPU Clusters", section 2.2), and then one of each in turn. So that many micro-batches
lie in memory, all of them but one at the end of their forward pass.
"""

from ms_symtensor.program.liveness import activation_peak_B, lives, program_steps
from ms_symtensor.program.program import Phase, Role
from ms_symtensor.program.stage_program import StageProgram


def in_flight(program: StageProgram) -> int:
    """Micro-batches whose activations a rank of the stage keeps at once.

    With interleaving, `interleave` runs of every stage count like stages of their own, and a stage warms up twice as long:
    min(M v, 2 (P - i - 1) + (v - 1) P + 1) runs of blocks (the same paper), each 1/v of the stage.
    """
    pipeline = program.pipeline
    stages, runs = pipeline.stage_num, pipeline.interleave
    if runs == 1:
        return min(pipeline.micro_batch_num, stages - program.stage)
    warm = 2 * (stages - program.stage - 1) + (runs - 1) * stages + 1
    return -(-min(pipeline.micro_batch_num * runs, warm) // runs)


def kept_B(program: StageProgram) -> int:
    """Bytes that a micro-batch keeps from its forward to its backward pass. Weights, gathered or cast once for all
    micro-batches, are not counted.
    """
    micro = program.micro
    steps = program_steps(micro)
    forward = sum(node.phase is Phase.FORWARD for node in micro.nodes)
    weights = {t for node in micro.nodes if node.role is Role.WEIGHT for t in node.outputs}
    weights |= {t for n in micro.nodes if n.role is Role.BORDER and n.parameter is not None for t in n.outputs}
    return sum(
        micro.tensors[tensor].size_B
        for tensor, (first, last) in lives(steps, micro.kept).items()
        if first < forward <= last and tensor not in weights
    )


def stage_activation_peak_B(program: StageProgram) -> int:
    """Peak bytes of live activations on a rank of the stage. Parameters and their gradients are not counted."""
    return activation_peak_B(program.micro) + (in_flight(program) - 1) * kept_B(program)
