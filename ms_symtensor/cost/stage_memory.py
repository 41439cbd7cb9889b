"""The memory of a rank of a pipeline stage, whose gradients add up over the micro-batches.

MindSpore adds gradients up in parameters of their own (`accu_grads`): whole ones, whatever the optimizer shards, unless
level2 scatters them on the way.
"""

from collections.abc import Mapping

from ms_symtensor.cost.step import HCCL_BUFFER_B, peak_B
from ms_symtensor.program.program import Program


def stage_memory_B(
    micro: Program,
    stage_num: int,
    scatters_gradients: bool,
    activations_B: int,
    times: Mapping[str, int],
    block_of: Mapping[str, str],
    swap_optimizer: bool = False,
) -> dict[str, int]:
    """Bytes by `cost.step.MEMORIES` of a rank whose micro-batch runs `micro`, on one of `stage_num` stages.

    `times`: how many equal blocks some of the blocks stand for; `block_of`: the block of every parameter that is in one. What
    stages exchange goes through one communicator of all ranks, beside those of the stage. `swap_optimizer`: optimizer states
    stay on the host.
    """
    placements = ((one, times.get(block_of.get(name, ""), 1)) for name, one in micro.parameters.items())
    found = peak_B(micro, placements, activations_B, swap_optimizer, scatters_gradients)
    found["buffers"] += HCCL_BUFFER_B if stage_num > 1 else 0
    return found
