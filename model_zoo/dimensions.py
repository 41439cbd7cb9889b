"""The published dimensions of the networks in the zoo."""

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, get_args

from model_zoo.config import LORA_ALPHA, Attention, ExpertForm, Experts, LatentSizes, Lora, TransformerConfig
from model_zoo.described import config_of
from model_zoo.phase import of_text
from ms_symtensor.errors import InputError


# fmt: off
def _llama(name: str, **dimensions: Any) -> TransformerConfig:
    """LLaMA's architecture, which most decoders have taken over; `dimensions` may change any of its choices."""
    choices: dict[str, Any] = {
        "norm": "rms_norm", "norm_epsilon": 1e-5, "activation": "swiglu", "position": "rotary", "linear_bias": False,
        "qkv_bias": False, "tied_embeddings": False,
    }
    return TransformerConfig(name=name, **(choices | dimensions))


_PUBLISHED = (
    # https://huggingface.co/meta-llama/Llama-2-7b-hf config.json
    _llama(
        "llama2_7b", hidden_size=4096, num_layers=32, num_heads=32, n_kv_heads=32, intermediate_size=11008,
        vocab_size=32000, max_position_embeddings=4096,
    ),
    # https://huggingface.co/meta-llama/Llama-2-13b-hf config.json
    _llama(
        "llama2_13b", hidden_size=5120, num_layers=40, num_heads=40, n_kv_heads=40, intermediate_size=13824,
        vocab_size=32000, max_position_embeddings=4096,
    ),
    # https://huggingface.co/meta-llama/Meta-Llama-3-8B config.json
    _llama(
        "llama3_8b", hidden_size=4096, num_layers=32, num_heads=32, n_kv_heads=8, intermediate_size=14336,
        vocab_size=128256, max_position_embeddings=8192, rotary_base=500000.0,
    ),
    # https://huggingface.co/meta-llama/Llama-2-70b-hf config.json
    _llama(
        "llama2_70b", hidden_size=8192, num_layers=80, num_heads=64, n_kv_heads=8, intermediate_size=28672,
        vocab_size=32000, max_position_embeddings=4096,
    ),
    # https://huggingface.co/meta-llama/Meta-Llama-3-70B config.json
    _llama(
        "llama3_70b", hidden_size=8192, num_layers=80, num_heads=64, n_kv_heads=8, intermediate_size=28672,
        vocab_size=128256, max_position_embeddings=8192, rotary_base=500000.0,
    ),
    # https://huggingface.co/Qwen/Qwen1.5-72B config.json
    _llama(
        "qwen1_5_72b", hidden_size=8192, num_layers=80, num_heads=64, n_kv_heads=64, intermediate_size=24576,
        vocab_size=152064, max_position_embeddings=32768, rotary_base=1000000.0, norm_epsilon=1e-6, qkv_bias=True,
    ),
    # https://huggingface.co/deepseek-ai/deepseek-coder-7b-base-v1.5 config.json
    _llama(
        "deepseek_coder_7b", hidden_size=4096, num_layers=30, num_heads=32, n_kv_heads=32, intermediate_size=11008,
        vocab_size=102400, max_position_embeddings=4096, norm_epsilon=1e-6,
    ),
    # https://huggingface.co/internlm/internlm2-20b config.json; its wqkv is written as three projections
    _llama(
        "internlm2_20b", hidden_size=6144, num_layers=48, num_heads=48, n_kv_heads=8, intermediate_size=16384,
        vocab_size=92544, max_position_embeddings=32768, rotary_base=1000000.0,
    ),
    # https://huggingface.co/codellama/CodeLlama-34b-hf config.json
    _llama(
        "codellama_34b", hidden_size=8192, num_layers=48, num_heads=64, n_kv_heads=8, intermediate_size=22016,
        vocab_size=32000, max_position_embeddings=16384, rotary_base=1000000.0,
    ),
    # https://huggingface.co/Qwen/Qwen3-32B config.json
    _llama(
        "qwen3_32b", hidden_size=5120, num_layers=64, num_heads=64, n_kv_heads=8, head_dim=128,
        intermediate_size=25600, vocab_size=151936, max_position_embeddings=40960, rotary_base=1000000.0,
        norm_epsilon=1e-6, qk_norm="head",
    ),
    # https://huggingface.co/Qwen/Qwen-7B config.json; adapters: mindspore-lab/mindformers finetune_qwen_7b_lora.yaml
    _llama(
        "qwen_7b_lora", hidden_size=4096, num_layers=32, num_heads=32, n_kv_heads=32, intermediate_size=11008,
        vocab_size=151936, max_position_embeddings=8192, norm_epsilon=1e-6, qkv_bias=True,
        lora=Lora(rank=64, alpha=16.0, trains_vocabulary=True),
    ),
    # https://huggingface.co/mistralai/Mixtral-8x7B-v0.1 config.json
    _llama(
        "mixtral_8x7b", hidden_size=4096, num_layers=32, num_heads=32, n_kv_heads=8, intermediate_size=14336,
        vocab_size=32000, max_position_embeddings=32768, rotary_base=1000000.0,
        experts=Experts(number=8, per_token=2, intermediate_size=14336),
    ),
    # https://huggingface.co/Qwen/Qwen3-30B-A3B config.json
    _llama(
        "qwen3_30b_a3b", hidden_size=2048, num_layers=48, num_heads=32, n_kv_heads=4, head_dim=128,
        intermediate_size=6144, vocab_size=151936, max_position_embeddings=40960, rotary_base=1000000.0,
        norm_epsilon=1e-6, qk_norm="head", experts=Experts(number=128, per_token=8, intermediate_size=768),
    ),
    # https://huggingface.co/deepseek-ai/DeepSeek-V3 config.json; the weight of the second token: arXiv:2412.19437, 4.2
    _llama(
        "deepseek_v3", hidden_size=7168, num_layers=61, num_heads=128, n_kv_heads=128, head_dim=192,
        intermediate_size=18432, vocab_size=129280, max_position_embeddings=163840, norm_epsilon=1e-6,
        latent_attention=LatentSizes(query_rank=1536, key_value_rank=512, rotary_head_dim=64, value_head_dim=128),
        experts=Experts(
            number=256, per_token=8, intermediate_size=2048, shared_size=2048, scoring="sigmoid", groups=8,
            groups_per_token=4, scale=2.5,
        ),
        dense_layers=3, second_token_weight=0.3,
    ),
    # https://huggingface.co/openai-community/gpt2-xl config.json
    TransformerConfig(
        name="gpt2_xl", hidden_size=1600, num_layers=48, num_heads=25, n_kv_heads=25, intermediate_size=6400,
        vocab_size=50257, max_position_embeddings=1024, norm="layer_norm", norm_epsilon=1e-5, activation="gelu",
        position="learned", linear_bias=True, qkv_bias=True, tied_embeddings=True, seq_length=1024,
    ),
    # https://huggingface.co/google-bert/bert-large-uncased config.json
    TransformerConfig(
        name="bert_large", hidden_size=1024, num_layers=24, num_heads=16, n_kv_heads=16, intermediate_size=4096,
        vocab_size=30522, max_position_embeddings=512, norm="layer_norm", norm_epsilon=1e-12, activation="gelu",
        position="learned", linear_bias=True, qkv_bias=True, tied_embeddings=True, causal=False, type_vocab_size=2,
        seq_length=512,
    ),
)
# fmt: on
PUBLISHED: Mapping[str, TransformerConfig] = MappingProxyType({config.name: config for config in _PUBLISHED})


def dimensions_of(
    name: str,
    num_layers: int | None = None,
    seq_length: int | None = None,
    batch_size: int = 16,
    attention: Attention | None = None,
    compute_dtype: str = "bfloat16",
    lazy_inline: bool = False,
    dense_layers: int | None = None,
    experts: ExpertForm = "capacity",
    load_imbalance: float | None = None,
    token_groups: int | None = None,
    dimensions: str = "",
    lora: int | None = None,
    phase: str = "",
) -> TransformerConfig:
    """The published network `name`, with the given number of layers (None: all), tokens per sample and global batch.

    `dense_layers` of them come before the first one with experts (None: as published). `experts` and `load_imbalance` (None: 1.1)
    say for how many tokens an expert has room; those of a sample are routed in `token_groups` (None: 1) groups (`Experts`).

    `dimensions`: those of a network that is not published here, as `described.text_of` writes them. `lora`: the rank of low-rank
    adapters, which alone are trained. `phase`: of serving, as `Phase.text`; parameters are in the compute type then.
    `attention` None: flash, or the one form that the network has.

    `seq_length` None stands for 4096, or all learned positions where there are fewer. InputError if the name is
    unknown (the message lists the known ones) or a value does not fit the network.
    """
    if name not in PUBLISHED and not dimensions:
        raise InputError(f"unknown model {name!r}: give a config.json, or one of {', '.join(PUBLISHED)}")
    config = config_of(name, dimensions) if dimensions else PUBLISHED[name]
    if config.kinds and num_layers is not None:
        if not 0 < num_layers <= config.num_layers:
            raise InputError(
                f"{name} says of {config.num_layers} layers what each is: give a num_layers from 1 to {config.num_layers}"
            )
        config = config.with_layers(range(num_layers))
    if lora is not None:
        if not 1 <= lora <= config.hidden_size:
            raise InputError(
                f"{name}: the rank of lora is {lora}; it must be at least 1, and at most the hidden size, {config.hidden_size}"
            )
        config = replace(config, lora=Lora(lora, LORA_ALPHA, trains_vocabulary=False))
    if phase:
        config = replace(config, phase=of_text(phase), param_dtype=compute_dtype, second_token_weight=0.0)
    return replace(
        config,
        num_layers=config.num_layers if num_layers is None else num_layers,
        seq_length=config.seq_length if seq_length is None else seq_length,
        batch_size=batch_size,
        attention=config.attention if attention is None else attention,
        compute_dtype=compute_dtype,
        lazy_inline=lazy_inline,
        dense_layers=config.dense_layers if dense_layers is None else dense_layers,
        experts=_experts(config, experts, load_imbalance, token_groups),
    )


def _experts(
    config: TransformerConfig, form: ExpertForm, load_imbalance: float | None, token_groups: int | None
) -> Experts | None:
    if token_groups is None:
        return _with_room(config, form, load_imbalance)
    if config.experts is None:
        raise InputError(f"{config.name} has no experts: leave token_groups out")
    if token_groups < 1:
        raise InputError(f"token_groups is {token_groups}: give at least 1")
    return _with_room(replace(config, experts=replace(config.experts, token_groups=token_groups)), form, load_imbalance)


def _with_room(config: TransformerConfig, form: ExpertForm, load_imbalance: float | None) -> Experts | None:
    if form not in get_args(ExpertForm):
        known = ", ".join(f'"{one}"' for one in get_args(ExpertForm))
        raise InputError(f"{config.name}: unknown form of experts {form!r}; known: {known}")
    if form == "capacity" and load_imbalance is None:
        return config.experts
    if config.experts is None:
        raise InputError(f"{config.name} has no experts: leave their form and load_imbalance out")
    experts = replace(config.experts, dropless=form == "dropless", by_sample=form == "by_sample")
    if load_imbalance is None:
        return experts
    if form == "dropless":
        raise InputError("dropless experts have room for all tokens, whatever load_imbalance is: give one of both")
    if not 0 < load_imbalance < math.inf:
        raise InputError(f"load_imbalance is {load_imbalance}: give a number above 0, 1 for an even load")
    return replace(experts, load_imbalance=load_imbalance)
