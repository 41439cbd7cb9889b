"""What MindFormers' networks in graph mode refuse, and how they run degrees (mindformers 1.9.0 and 2.1.0, parallel_core).

Sources: transformer_config.py (`__post_init__`), training_graph/transformer/attention.py, moe/moe_layer.py and moe/ffn.py,
base_models/gpt/gpt_model.py, transformer/utils.py (LayerSetting).
"""

from collections.abc import Iterator
from dataclasses import replace

from model_zoo.config import TransformerConfig
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.targets.exporter import CannotSayError
from ms_symtensor.targets.mindformers.recompute import lists_of
from ms_symtensor.uniform.layout import Degrees, Selection, UniformLayout
from ms_symtensor.uniform.rules import Rules, refused_by_mindspore, sharing_sequences


def forms(config: TransformerConfig, degrees: Degrees) -> Iterator[Degrees]:
    """The ways to run `degrees`: experts are never cut within, and sequences are shared out by AlltoAll of heads (ulysses_cp) or
    gathers of keys and values (colossalai_cp).
    """
    width = 1 if config.experts is not None else 0
    yield from sharing_sequences(config, replace(degrees, expert_model_parallel=width))


def refused_degrees(config: TransformerConfig, of: Degrees) -> str:
    """Why MindFormers' network is not built with these degrees; empty: it is."""
    tensor, context = of.model_parallel, of.context_parallel
    return _first(
        (config.num_heads % tensor or config.n_kv_heads % tensor,
         f"{config.num_heads} heads and {config.n_kv_heads} key-value heads must divide by model_parallel {tensor}"),
        (of.sequence_parallel and tensor == 1, "use_seq_parallel needs model_parallel above 1"),
        (of.sequence_parallel and config.seq_length // context % tensor,
         f"use_seq_parallel: {config.seq_length} tokens must divide by context_parallel x model_parallel"),
        (config.experts is not None and tensor > 1 and not of.sequence_parallel,
         "experts with model_parallel need use_seq_parallel"),
        (config.experts is not None and of.data_parallel * tensor % max(1, of.expert_parallel),
         f"expert_parallel {of.expert_parallel} must divide data_parallel x model_parallel {of.data_parallel * tensor}"),
        (config.experts is not None and config.experts.dispatcher != "alltoall"
         and max(1, of.expert_parallel) < config.experts.node_ranks,
         f"alltoall_deredundency: expert_parallel {of.expert_parallel} must be npu_nums_per_device or more"),
        (context > 1 and of.exchanges_heads and not of.can_exchange_heads(config.n_kv_heads),
         f"ulysses_cp: {config.n_kv_heads} key-value heads must divide by model_parallel x context_parallel"),
        (config.seq_length % context, f"{config.seq_length} tokens must divide by context_parallel {context}"),
    )  # fmt: skip


def refusal(config: TransformerConfig, layout: UniformLayout) -> str:
    """Why MindFormers cannot run or be told `layout`; empty: it can."""
    of = layout.degrees
    tensor = of.model_parallel
    reason = _of_network(config) or refused_degrees(config, of) or _first(
        (config.vocab_size % tensor, f"a vocabulary of {config.vocab_size} must divide by model_parallel {tensor}"),
        (config.experts is not None and of.expert_model_parallel != 1, "the width of an expert is not cut"),
        (layout.optimizer_level > OptimizerLevel.LEVEL2,
         "optimizer_level=level3 cannot stand beside gradient_accumulation_shard, which its files have: levels 0 to 2"),
        (layout.optimizer_level is OptimizerLevel.LEVEL2 and layout.stages.number == 1 < layout.stages.micro_batch_num,
         "gradient_accumulation_shard does not go with gradients that add up on one stage"),
        (layout.optimizer_level is OptimizerLevel.LEVEL2 and layout.stages.number > 1 and reads_embedding_twice(config),
         "MindSpore does not compile gradient_accumulation_shard where first and last stage read the weight of the embedding"),
        (layout.optimizer_weight_shard_size != -1, "the optimizer shards over all copies"),
        (not of.cuts_embedding, "mcore networks cut the embedding as the head: vocab_emb_dp is turned to False"),
        (of.gathers_logits, "the loss is computed from a cut vocabulary"),
        (layout.stages.head_stage not in (-1, layout.stages.number - 1), "the head is on the last stage"),
    )  # fmt: skip
    return reason or refused_by_mindspore(config, layout) or _unsayable(config, layout)


def _of_network(config: TransformerConfig) -> str:
    """Why MindFormers has no such network, whatever its layout; empty: it has."""
    return _first(
        (not config.causal, "it trains decoders"),
        (config.position == "distance" or config.embedding_norm or config.normed_head,
         "its networks bias no scores by distance, and normalise neither embeddings nor the head's table"),
        (config.delta is not None or config.attention_gate,
         "it has no network with gated linear attention or gates of attention"),
        (config.is_hybrid, "its state-space layers are not modelled"),
        (config.indexer is not None,
         "its indexer and sparse attention are kernels in a Morph of fixed layout, which are not modelled"),
    )  # fmt: skip


def _first(*checks: tuple[object, str]) -> str:
    """The words of the first check that holds."""
    return next((f"MindFormers: {words}" for is_refused, words in checks if is_refused), "")


def reads_embedding_twice(config: TransformerConfig) -> bool:
    """Whether the last stage reads the weight of the embedding, too: for its head, or to predict a second token."""
    return config.tied_embeddings or config.second_token_weight > 0


def _unsayable(config: TransformerConfig, layout: UniformLayout) -> str:
    if not layout.recompute.marks and len(layout.recompute.blocks) == 1 and not layout.stages.layers:
        return ""  # as the search begins; what it adds are counts of first blocks
    try:
        lists = lists_of(config, layout)
    except CannotSayError as error:
        return f"MindFormers: {error}"
    return "" if min(map(min, lists.held)) else "MindFormers: a model chunk has no block"


RULES = Rules(
    forms,
    refusal,
    levels=(1, 2),
    selections=((Selection.ACTIVATION,), (Selection.ATTENTION_CORE, Selection.ACTIVATION)),
    mixes_context=True,
    moves_blocks=True,
)

LEGACY_RULES = replace(RULES, selections=())
"""Of the older networks, whose patterns name other cells: they recompute whole blocks."""
