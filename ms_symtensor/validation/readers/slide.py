"""DeepSeek-V3 on 64 devices (HLPP 2025 slide): 26.84 % and 31.42 % MFU, and out of memory, by data and tensor parallelism.

The slide leaves out how many of the 61 blocks were run, pipeline and expert parallelism, batch and recomputation: 671e9
parameters do not fit on 64 devices of 64 GB in any way. Assumed:

- data x tensor parallelism is all there is (its three products are 64), so no pipeline;
- optimizer sharding, whole blocks recomputed, experts over 8 devices, and a global batch of 512 samples of 4096 tokens, one
  per data-parallel rank and micro-batch: MindFormers' own settings for DeepSeek-V3, which recompute almost every block
  (research/deepseek3/deepseek3_671b/pretrain_deepseek3_671b.yaml). With experts over 16 to 64 devices the order comes out
  the same, the utilisations do not, and over 32 and 64 DP64 fits;
- as many blocks as fit with DP32 x TP2, 3 of them dense, as published.
"""

from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.validation.configuration import FULL_RECOMPUTATION, Configuration
from ms_symtensor.validation.readers.dryrun import deepseek_v3

BLOCKS = 5  # the deepest of which DP32 x TP2 fits into 64 GB under these assumptions
EXPERT_PARALLEL = 8
DEVICES = 64
SEQ_LENGTH = 4096
GLOBAL_BATCH_SIZE = 512


def slide_configuration(data_parallel: int, model_parallel: int) -> Configuration:
    """The assumed configuration behind one line of the slide."""
    return Configuration(
        deepseek_v3(BLOCKS),
        SEQ_LENGTH,
        data_parallel=data_parallel,
        model_parallel=model_parallel,
        sequence_parallel=model_parallel > 1,
        expert_parallel=EXPERT_PARALLEL,
        expert_model_parallel=1,  # MindFormers' DeepSeek-V3 leaves experts whole
        micro_batch_size=1,
        micro_batch_num=max(1, GLOBAL_BATCH_SIZE // data_parallel),
        recomputation=FULL_RECOMPUTATION,
        optimizer_level=OptimizerLevel.LEVEL1,
        framework="mindspore",
        overlap_gradients=False,
        overlap_weights=False,
    )
