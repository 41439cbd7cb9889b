"""The memory of a rank of a pipeline stage, whose gradients add up over the micro-batches.

MindSpore adds gradients up in parameters of their own (`accu_grads`): whole ones, whatever the optimizer shards, unless
level2 scatters them on the way.
"""

import math
from collections.abc import Mapping

from ms_symtensor.cost.parameter import STATES_B, updating_B
from ms_symtensor.cost.step import HCCL_BUFFER_B, buffers_B
from ms_symtensor.program.program import Program
from ms_symtensor.tensor.dtype import size_B


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
    found = {"parameters": 0, "gradients": 0, "optimizer_states": 0}
    for name, placement in micro.parameters.items():
        count = times.get(block_of.get(name, ""), 1)
        share = math.prod(placement.slice_shape)
        found["parameters"] += count * share * size_B(placement.dtype)
        if placement.requires_grad:  # another stage's too: what is sent there is their sum
            summed = share if scatters_gradients else math.prod(placement.layout.slice_shape)
            found["gradients"] += count * summed * size_B(placement.dtype)
            found["optimizer_states"] += count * share * STATES_B if placement.owner is None else 0
    if swap_optimizer:
        found["optimizer_states"] = 0
        activations_B = max(activations_B, updating_B(micro.parameters))
    between_B = HCCL_BUFFER_B if stage_num > 1 else 0
    return {**found, "activations": activations_B, "buffers": buffers_B(micro) + between_B}
