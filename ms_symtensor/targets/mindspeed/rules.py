"""What MindSpeed-LLM on Megatron's core 0.12 refuses, and how it runs degrees.

Sources: github.com/Ascend/MindSpeed-LLM@015ce048, mindspeed_llm/training/arguments.py (`_validate_*`);
github.com/Ascend/MindSpeed, mindspeed/features_manager; github.com/NVIDIA/Megatron-LM, core 0.12.1, megatron:
training/arguments.py (`validate_args`), core/transformer/transformer_config.py (`__post_init__`), core/parallel_state.py,
core/pipeline_parallel/schedules.py.
"""

from collections.abc import Iterator
from dataclasses import replace

from model_zoo.config import TransformerConfig
from ms_symtensor.program.schedules import DEFAULT_SCHEDULER
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.targets.exporter import CannotSayError
from ms_symtensor.targets.mindspeed.dimensions import unsayable
from ms_symtensor.targets.mindspeed.recompute import counted
from ms_symtensor.uniform.layout import Degrees, Selection, UniformLayout
from ms_symtensor.uniform.rules import Rules, sharing_sequences


def forms(config: TransformerConfig, degrees: Degrees) -> Iterator[Degrees]:
    """The ways to run `degrees`: experts cut by tensor-parallel ranks, or whole ones (expert-tensor-parallel-size 1); sequences
    shared out by AlltoAll of heads (ulysses_cp_algo), or keys that go round a ring (megatron_cp_algo).
    """
    widths = {degrees.model_parallel, 1} if config.experts is not None else {0}
    for width in sorted(widths, reverse=True):
        yield from sharing_sequences(config, replace(degrees, expert_model_parallel=width))


def refusal(config: TransformerConfig, layout: UniformLayout) -> str:
    """Why MindSpeed-LLM cannot run or be told `layout`; empty: it can."""
    every = (unsayable(config), _of_degrees(config, layout.degrees), _of_stages(config, layout), _of_optimizer(layout))
    reason = next(filter(None, every), "") or _of_recomputation(config, layout)
    return f"MindSpeed: {reason}" if reason else ""


def _of_degrees(config: TransformerConfig, of: Degrees) -> str:
    tensor, context = of.model_parallel, of.context_parallel
    parallel, width = of.expert_parallel or 1, of.expert_model_parallel or tensor
    checks = (
        (config.num_heads % tensor or config.n_kv_heads % tensor,
         f"{config.num_heads} heads and {config.n_kv_heads} key-value heads must divide by tensor-model-parallel-size {tensor}"),
        (config.vocab_size % tensor, f"a vocabulary of {config.vocab_size} must divide by tensor-model-parallel-size {tensor}"),
        (of.sequence_parallel and tensor == 1, "sequence-parallel needs tensor-model-parallel-size above 1"),
        (of.sequence_parallel and config.seq_length // context % tensor,
         f"sequence-parallel: {config.seq_length} tokens must divide by context-parallel-size x tensor-model-parallel-size"),
        (config.experts is not None and tensor > 1 and not of.sequence_parallel,
         "experts with tensor parallelism need sequence-parallel"),
        (context > 1 and config.seq_length % (2 * context),
         f"{config.seq_length} tokens must divide by 2 x context-parallel-size {context}"),
        (context > 1 and of.exchanges_heads and not of.can_exchange_heads(config.n_kv_heads),
         f"ulysses_cp_algo: {config.n_kv_heads} key-value heads must divide by tensor- x context-parallel-size"),
        (context > 1 and config.second_token_weight, "mtp-num-layers does not go with context parallelism"),
        (config.experts is not None and (config.experts.number % parallel or of.devices % (parallel * width)),
         f"{parallel} slices of experts, each cut {width} times, must divide the {of.devices} devices of a stage"),
        (not of.cuts_embedding, "tensor parallelism cuts the embedding"),
        (of.gathers_logits, "the loss is computed from a cut vocabulary"),
        (config.experts is not None and (tensor % width or config.experts.intermediate_size % width),
         f"an expert's width cannot be cut by expert-tensor-parallel-size {width}"),
    )  # fmt: skip
    return next((words for is_refused, words in checks if is_refused), "")


def _of_stages(config: TransformerConfig, layout: UniformLayout) -> str:
    stages = layout.stages
    held = stages.in_order(config.num_layers)
    checks = (
        (stages.head_stage not in (-1, stages.number - 1), "the head is on the last stage"),
        (min(held) < 1, "a model chunk has no block"),
        (stages.interleave > 1 and len(set(held)) > 1,
         f"{config.num_layers} layers on {stages.number} stages of {stages.interleave} virtual ones must divide evenly"),
        (stages.interleave > 1 and stages.micro_batch_num % stages.number,
         f"interleaved stages: {stages.micro_batch_num} micro-batches must divide by {stages.number} stages"),
        (stages.scheduler != DEFAULT_SCHEDULER, "its schedule is 1f1b, interleaved with virtual stages"),
    )  # fmt: skip
    return next((words for is_refused, words in checks if is_refused), "")


def _of_optimizer(layout: UniformLayout) -> str:
    level = layout.optimizer_level
    checks = (
        (level > OptimizerLevel.LEVEL1, "use-distributed-optimizer shards states and float32 weights: optimizer_level is 0 or 1"),
        (layout.optimizer_weight_shard_size != -1, "the optimizer shards over all copies"),
        (layout.swap_optimizer and level is OptimizerLevel.NONE, "swap-optimizer needs optimizer_level=1"),
    )  # fmt: skip
    return next((words for is_refused, words in checks if is_refused), "")


def _of_recomputation(config: TransformerConfig, layout: UniformLayout) -> str:
    try:
        counted(config, layout)
    except CannotSayError as error:
        return str(error)
    return ""


RULES = Rules(
    forms,
    refusal,
    levels=(1,),
    selections=((Selection.ACTIVATION,),),
    mixes_context=True,
    moves_blocks=True,
    recomputes_alike=True,
)
