"""The dims of the network of a training file, in the keys of a Hugging Face config.json.

Sources: the classes of models/*/configuration_*.py, which say what is taken where the file is silent, and the synonyms of
parallel_core/transformer_config_utils.py (COMMON_CONFIG_MAPPING), both of mindformers 1.9.0 and 2.1.0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from model_zoo.config import Experts, TransformerConfig
from ms_symtensor.errors import InputError

DEREDUNDANCY = ("alltoall_deredundancy", "alltoall_deredundency")
"""The dispatcher in two levels, as versions spell it."""

LEGACY = {"ChatGLM2Config": "glm", "LlamaConfig": "llama"}
"""Classes of the older networks, and the family that they are planned as."""

SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "num_hidden_layers": ("num_layers", "n_layer"),
    "num_attention_heads": ("num_heads", "n_head"),
    "num_key_value_heads": ("n_kv_heads", "num_query_groups"),
    "intermediate_size": ("ffn_hidden_size",),
    "head_dim": ("kv_channels",),
    "rms_norm_eps": ("layernorm_epsilon", "layer_norm_epsilon"),
    "attention_bias": ("qkv_has_bias", "add_qkv_bias"),
    "vocab_size": ("padded_vocab_size",),
    "num_nextn_predict_layers": ("mtp_depth", "mtp_num_layers"),
    "moe_intermediate_size": ("moe_ffn_hidden_size",),
    "num_experts_per_tok": ("num_experts_chosen", "moe_router_topk"),
    "n_group": ("moe_router_num_groups",),
    "topk_group": ("moe_router_group_topk",),
    "routed_scaling_factor": ("moe_router_topk_scaling_factor",),
    "n_shared_experts": ("shared_expert_num",),
    "shared_expert_intermediate_size": ("moe_shared_expert_intermediate_size",),
    "qk_nope_head_dim": ("qk_head_dim",),
    "qk_rope_head_dim": ("qk_pos_emb_head_dim",),
    "rope_theta": ("theta", "rotary_base"),
    "use_qk_norm": ("qk_layernorm",),
}

_DENSE = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size", "head_dim",
    "vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_theta", "tie_word_embeddings", "attention_bias",
)  # fmt: skip
_EXPERTS = ("num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", "shared_expert_intermediate_size")
_LATENT = (
    "kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "n_routed_experts", "n_shared_experts",
    "first_k_dense_replace", "routed_scaling_factor", "num_nextn_predict_layers",
)  # fmt: skip
_NO_SIZE = ("tie_word_embeddings", "num_key_value_heads", "attention_bias")
_DEEPSEEK: dict[str, Any] = {
    "vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "num_hidden_layers": 61, "num_nextn_predict_layers": 1, "num_attention_heads": 128, "n_shared_experts": 1,
    "n_routed_experts": 256, "routed_scaling_factor": 2.5, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128, "n_group": 8, "topk_group": 4,
    "num_experts_per_tok": 8, "first_k_dense_replace": 3, "norm_topk_prob": True, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
}  # fmt: skip
_QWEN: dict[str, Any] = {
    "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
}  # fmt: skip


@dataclass(frozen=True)
class _Class:
    """A configuration class: the `keys` that it reads as a config.json has them, and its values where the file is `silent`."""

    keys: tuple[str, ...]
    silent: Mapping[str, Any]


CLASSES: Mapping[str, _Class] = {
    "qwen3": _Class(_DENSE, _QWEN),
    "telechat3": _Class((*_DENSE, "use_qk_norm"), {**_QWEN, "vocab_size": 131072}),
    "qwen3_moe": _Class(
        (*_DENSE, *_EXPERTS, "num_experts"),
        {
            **_QWEN, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 24, "num_key_value_heads": 4,
            "moe_intermediate_size": 768, "num_experts_per_tok": 8, "num_experts": 128,
        },
    ),
    "deepseek_v3": _Class((*_DENSE, *_EXPERTS, *_LATENT), _DEEPSEEK),
    "telechat3_moe": _Class(
        (*_DENSE, *_EXPERTS, *_LATENT),
        {
            **_DEEPSEEK, "vocab_size": 131072, "hidden_size": 2560, "intermediate_size": 7680,
            "moe_intermediate_size": 1536, "num_hidden_layers": 4, "num_attention_heads": 32, "n_routed_experts": 192,
            "routed_scaling_factor": 2.8,
        },
    ),
    "glm": _Class(
        _DENSE,
        {
            "num_hidden_layers": 28, "vocab_size": 65024, "hidden_size": 4096, "intermediate_size": 13696, "head_dim": 128,
            "num_attention_heads": 32, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "attention_bias": True,
        },
    ),
    "llama": _Class(
        _DENSE,
        {
            "num_hidden_layers": 32, "vocab_size": 32000, "hidden_size": 4096, "num_attention_heads": 32,
            "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
        },
    ),
}  # fmt: skip

NOT_MODELLED = (
    "experimental_attention_variant", "window_size", "nope_layer_interval", "pet_config", "use_ring_attention",
    "post_self_attn_layernorm", "post_mlp_layernorm", "apply_residual_connection_post_layernorm", "sandwich_norm",
)  # fmt: skip
"""Keys of model_config that change the mathematics or the program, and are not modelled."""

MODELLED: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swiglu", "fusedswiglu"), "gated_linear_unit": (True,),
    "normalization": ("RMSNorm", "FusedRMSNorm"), "position_embedding_type": ("rope", "yarn", "llama3"),
    **dict.fromkeys(("add_bias_linear", "add_mlp_fc1_bias_linear", "add_mlp_fc2_bias_linear"), (False,)),
    **dict.fromkeys(("hidden_dropout", "attention_dropout"), (0.0,)),
}  # fmt: skip
"""Keys of model_config with the values that the modelled networks have."""


def is_legacy(model: Mapping[str, Any]) -> bool:
    """Whether `model_config` names a class of the older networks, which are not those of parallel_core."""
    return model.get("type") in LEGACY


def hugging_face(model: Mapping[str, Any], pretrained: Mapping[str, Any]) -> dict[str, Any]:
    """`model_config` over the config.json `pretrained` ({}: there is none), in the keys of a config.json.

    Raises:
        InputError: for a network that MindFormers does not train in graph mode, or with parts that are not modelled.
    """
    named = _named(model)
    kind = LEGACY.get(str(model.get("type"))) or named.get("model_type") or pretrained.get("model_type")
    if kind not in CLASSES:
        raise InputError(
            f"model_config.model_type {kind!r} is none that MindFormers trains in graph mode and that is known here:"
            f" {', '.join(CLASSES)}; or give --pretrained-model-dir"
        )
    for key in NOT_MODELLED:
        if model.get(key) not in (None, False, "None"):
            raise InputError(f"model_config.{key} {model[key]!r} is not modelled")
    for key, values in MODELLED.items():
        if model.get(key) is not None and model[key] not in values:
            raise InputError(f"model_config.{key} {model[key]!r} is not modelled: only {' or '.join(map(str, values))}")
    of = CLASSES[str(kind)]
    if named.get("use_qk_norm") is False and "use_qk_norm" not in of.keys and not is_legacy(model):
        raise InputError(f"model_config.qk_layernorm False is not modelled: {kind} normalises queries and keys")
    found = dict(pretrained) if pretrained else dict(of.silent)
    found |= {key: value for key, value in named.items() if key in of.keys and value is not None}
    experts = (
        named.get("num_experts")
        or named.get("n_routed_experts")
        or named.get("expert_num")
        or named.get("num_moe_experts")
    )
    if experts:
        found |= {key: experts for key in ("num_experts", "n_routed_experts") if key in of.keys}
    found |= {key: named[key] for key in ("n_group", "topk_group") if named.get(key) and "n_group" in of.silent}
    if named.get("n_group") == 0:
        found = {key: value for key, value in found.items() if key not in ("n_group", "topk_group")}
    if str(model.get("type")) == "ChatGLM2Config":
        found |= {"partial_rotary_factor": 0.5}
        groups = model.get("multi_query_group_num", 2) if model.get("multi_query_attention", True) else None
        found |= {"num_key_value_heads": groups or found["num_attention_heads"]}
    found.setdefault("num_key_value_heads", found.get("num_attention_heads"))
    return {**found, "model_type": kind}


def _named(model: Mapping[str, Any]) -> dict[str, Any]:
    """`model` with every key by its first name."""
    of = {other: name for name, others in SYNONYMS.items() for other in others}
    found: dict[str, Any] = {}
    for key, value in model.items():
        found.setdefault(of.get(key, key), value)
    return found


def as_mindformers_runs(
    config: TransformerConfig, model: Mapping[str, Any], seq_length: int, batch: int
) -> TransformerConfig:
    """`config` with the sequence, batch, types and forms of operators that the file says."""
    latent, experts = config.latent_attention, config.experts
    if latent is not None:
        padded = latent.value_head_dim != config.head_dim
        latent = replace(latent, pads_values=padded)
    capacity = model.get("moe_expert_capacity_factor", model.get("capacity_factor"))
    if experts is not None and isinstance(capacity, int | float) and capacity > 0:
        experts = replace(experts, load_imbalance=float(capacity))
    if experts is not None:
        experts = replace(_dispatched(experts, model), by_sample=True)
    flash = model.get("use_flash_attention", not is_legacy(model))
    return replace(
        config,
        latent_attention=latent,
        experts=experts,
        seq_length=seq_length,
        batch_size=batch,
        attention="flash" if flash else "self",
        compute_dtype=_type(model, "compute_dtype", "bfloat16"),
        param_dtype=_type(model, "params_dtype", _type(model, "param_init_type", "float32")),
    )


def _dispatched(experts: Experts, model: Mapping[str, Any]) -> Experts:
    """`experts`, to which tokens go as the file says; `training_file` notes dispatchers that are not modelled."""
    by_level = model.get("moe_token_dispatcher_type") in DEREDUNDANCY
    ranks = model.get("npu_nums_per_device")
    return replace(
        experts,
        dispatcher="alltoall_deredundancy" if by_level else "alltoall",
        node_ranks=ranks if isinstance(ranks, int) and ranks > 0 else experts.node_ranks,
        safe_tokens=bool(model.get("use_pad_tokens", True)) and not is_legacy(model) and not by_level,
    )


def _type(model: Mapping[str, Any], key: str, default: str) -> str:
    name = str(model.get(key, default))
    return {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(name, name)
