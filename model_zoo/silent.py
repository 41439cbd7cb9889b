"""What the classes of transformers 5.24 take for a size that a config.json lacks, by model_type, in the facts of `families`.

Hidden size, layers, heads and vocabulary have no such value here: a file that lacks these is refused.
"""

from collections.abc import Mapping
from typing import Any

_LATENT = {
    "latent.key_value_rank": 512, "plain_head_dim": 128, "latent.rotary_head_dim": 64, "latent.value_head_dim": 128,
}  # fmt: skip
_DEEPSEEK_V3 = _LATENT | {
    "dense_first": 3, "intermediate_size": 18432, "experts.number": 256, "experts.per_token": 8, "experts.scale": 2.5,
    "experts.intermediate_size": 2048, "experts.groups": 8, "experts.groups_per_token": 4, "shared_num": 1,
}  # fmt: skip
_INDEXER = {"indexer.heads": 64, "indexer.head_dim": 128, "indexer.keys": 2048}
_GLM4_MOE = {
    "n_kv_heads": 8, "intermediate_size": 10944, "experts.number": 128, "experts.per_token": 8,
    "experts.intermediate_size": 1408, "shared_num": 1, "norm_epsilon": 1e-5,
}  # fmt: skip
_MIXTRAL = {"experts.number": 8, "experts.per_token": 2, "experts.intermediate_size": 11008}
_DELTA = {
    "head_dim": 256, "rotated_share": 0.25, "full_step": 4, "delta.key_heads": 16, "delta.value_heads": 32, "delta.key_size": 128,
    "delta.value_size": 128, "delta.kernel": 4,
}  # fmt: skip
_SHORT = {"max_position_embeddings": 2048}
_STATE_SPACE = {
    "state_space.heads": 128, "state_space.groups": 1, "state_space.state_size": 256, "state_space.kernel": 4,
    "state_space.expand": 2,
}  # fmt: skip

SILENT: Mapping[str, Mapping[str, Any]] = {
    "bloom": {"norm_epsilon": 1e-5},
    "llama": {"max_position_embeddings": 2048},
    "mistral": {"n_kv_heads": 8, "window": 4096},
    "ministral": {"n_kv_heads": 8, "window": 4096},
    "ministral3": {"n_kv_heads": 8, "head_dim": 128, "norm_epsilon": 1e-5, "rotary_base": 1e6},
    "mistral4": {
        "latent.query_rank": 1024, "latent.key_value_rank": 256, "plain_head_dim": 64, "latent.rotary_head_dim": 64,
        "latent.value_head_dim": 128, "intermediate_size": 12288, "experts.number": 128, "experts.per_token": 4,
        "experts.intermediate_size": 2048, "shared_num": 1,
    },
    "cwm": {"n_kv_heads": 8, "head_dim": 128, "window": 8192, "norm_epsilon": 1e-5, "rotary_base": 1e6},
    "iquestcoder": {"n_kv_heads": 8, "head_dim": 128, "norm_epsilon": 1e-5},
    "exaone": {"n_kv_heads": 8, "norm_epsilon": 1e-5, "rotary_base": 5e5},
    "exaone4": {"n_kv_heads": 32, "window": 4096, "max_position_embeddings": 2048, "norm_epsilon": 1e-5},
    "exaone_moe": {
        "n_kv_heads": 32, "intermediate_size": 16384, "experts.number": 64, "experts.per_token": 8, "experts.scale": 2.5,
        "experts.intermediate_size": 1024, "shared_num": 1, "window": 4096, "max_position_embeddings": 2048,
        "norm_epsilon": 1e-5,
    },
    "helium": {"n_kv_heads": 20, "norm_epsilon": 1e-8, "rotary_base": 1e5},
    "youtu": _LATENT,
    "hunyuan_v1_dense": _SHORT | {"norm_epsilon": 1e-5},
    "hunyuan_v1_moe": _SHORT | {
        "experts.number": 1, "experts.per_token": 1, "experts.intermediate_size": 11008, "norm_epsilon": 1e-5,
    },
    "hunyuan_vl": _SHORT | {"norm_epsilon": 1e-5},
    "hy_v3": {
        "n_kv_heads": 8, "intermediate_size": 13312, "experts.number": 192, "experts.per_token": 8, "experts.scale": 2.826,
        "experts.intermediate_size": 1536, "norm_epsilon": 1e-5, "rotary_base": 11158840.0,
    },
    "smollm3": {"n_kv_heads": 4, "rotary_base": 2e6},
    "seed_oss": {"n_kv_heads": 8},
    "internlm3": {"n_kv_heads": 2, "head_dim": 128, "norm_epsilon": 1e-5},
    "ernie4_5": {"n_kv_heads": 2, "head_dim": 128, "norm_epsilon": 1e-5, "rotary_base": 5e5},
    "paddleocr_vl": {"n_kv_heads": 2, "head_dim": 128, "norm_epsilon": 1e-5, "rotary_base": 5e5},
    "qwen2_5_omni": {"n_kv_heads": 4, "window": 32768, "full_layers": 28, "rotary_base": 1e6},
    "qwen3_omni_moe": {
        "n_kv_heads": 4, "intermediate_size": 18944, "experts.number": 128, "experts.per_token": 8,
        "experts.intermediate_size": 768, "rotary_base": 1e6,
    },
    "qwen2": {"n_kv_heads": 32, "window": 4096, "full_layers": 28},
    "qwen2_vl": {"n_kv_heads": 8, "window": 4096, "full_layers": 80, "norm_epsilon": 1e-5, "rotary_base": 1e6},
    "qwen2_5_vl": {"n_kv_heads": 8, "window": 4096, "full_layers": 80, "norm_epsilon": 1e-5, "rotary_base": 1e6},
    "qwen3_vl": {"n_kv_heads": 32, "rotary_base": 5e5},
    "qwen3_vl_moe": {
        "n_kv_heads": 16, "head_dim": 128, "intermediate_size": 5632, "experts.number": 60, "experts.per_token": 4,
        "experts.intermediate_size": 1408, "tied_embeddings": True, "rotary_base": 5e5,
    },
    "qwen3": {"n_kv_heads": 32, "window": 4096, "full_layers": 28},
    "phi3": {"norm_epsilon": 1e-5},
    "glm": {"n_kv_heads": 2, "norm_epsilon": 1.5625e-07},
    "glm4": {"n_kv_heads": 2, "norm_epsilon": 1.5625e-07},
    "glm4v": {"n_kv_heads": 2, "norm_epsilon": 1e-5},
    "glm_ocr": {"n_kv_heads": 8, "norm_epsilon": 1e-5},
    "olmo": _SHORT,
    "granite": _SHORT,
    "granitemoe": _SHORT | _MIXTRAL,
    "granitemoeshared": _SHORT | _MIXTRAL,
    "granitemoehybrid": _SHORT | _MIXTRAL | _STATE_SPACE | {"experts.shared_size": 1024},
    "bamba": _STATE_SPACE | {
        "n_kv_heads": 8, "intermediate_size": 14336, "max_position_embeddings": 262144, "norm_epsilon": 1e-5,
    },
    "nemotron_h": {
        "n_kv_heads": 8, "head_dim": 128, "activation": "relu2", "intermediate_size": 21504, "norm_epsilon": 1e-5,
        "max_position_embeddings": 4096, "experts.number": 8, "experts.per_token": 2, "experts.intermediate_size": 7688,
        "experts.shared_size": 7688, "layer_types": ["linear_attention", "moe", "full_attention", "mlp"],
        "state_space.heads": 128, "state_space.head_size": 64, "state_space.groups": 8, "state_space.state_size": 128,
        "state_space.kernel": 4, "state_space.least_step": 0.001,
    },
    "mamba2": {
        "norm_epsilon": 1e-5, "state_space.heads": 128, "state_space.head_size": 64, "state_space.groups": 8,
        "state_space.state_size": 128, "state_space.kernel": 4, "state_space.expand": 2,
    },
    "granite_swa": {"n_kv_heads": 4, "window": 128, "max_position_embeddings": 8192, "norm_epsilon": 1e-5},
    "granitemoe_swa": _SHORT | _MIXTRAL | {"window": 128},
    "hyperclovax": _SHORT,
    "minicpm3": {
        "latent.query_rank": 768, "latent.key_value_rank": 256, "plain_head_dim": 64, "latent.rotary_head_dim": 32,
        "norm_epsilon": 1e-5,
    },
    "cohere": {"norm_epsilon": 1e-5, "rotary_base": 5e5},
    "cohere2": {"window": 4096, "norm_epsilon": 1e-5},
    "stablelm": {"n_kv_heads": 32, "norm_epsilon": 1e-5},
    "starcoder2": {"n_kv_heads": 2, "norm_epsilon": 1e-5},
    "phi": _SHORT | {"norm_epsilon": 1e-5},
    "persimmon": {"norm_epsilon": 1e-5},
    "gpt_neox": _SHORT | {"norm_epsilon": 1e-5},
    "falcon": _SHORT | {"norm_epsilon": 1e-5},
    "nemotron": {"norm_epsilon": 1e-5},
    "arcee": {"norm_epsilon": 1e-5},
    "apertus": {"norm_epsilon": 1e-5},
    "jais2": {"norm_epsilon": 1e-5},
    "gpt2": {"max_position_embeddings": 1024, "norm_epsilon": 1e-5},
    "gpt_bigcode": {"max_position_embeddings": 1024, "norm_epsilon": 1e-5},
    "opt": _SHORT,
    "gemma": {"n_kv_heads": 16},
    "gemma2": {"n_kv_heads": 4, "window": 4096},
    "vaultgemma": {"n_kv_heads": 4, "window": 4096},
    "olmo2": {"max_position_embeddings": 2048, "norm_epsilon": 1e-5},
    "olmo_hybrid": {"delta.kernel": 4, "delta.by_heads": True, "intermediate_size": 11008, "max_position_embeddings": 65536},
    "olmo3": {"max_position_embeddings": 2048, "norm_epsilon": 1e-5, "window": 4096, "rotary_base": 5e5},
    "afmoe": {
        "intermediate_size": 6144, "experts.number": 64, "experts.per_token": 6, "experts.intermediate_size": 1408,
        "shared_num": 2, "window": 1024, "norm_epsilon": 1e-5,
    },
    "mixtral": {
        "n_kv_heads": 8, "experts.number": 8, "experts.per_token": 2, "experts.intermediate_size": 14336,
        "norm_epsilon": 1e-5, "rotary_base": 1e6,
    },
    "qwen2_moe": {
        "n_kv_heads": 16, "intermediate_size": 5632, "experts.number": 60, "experts.per_token": 4,
        "experts.intermediate_size": 1408, "experts.shared_size": 5632, "window": 4096, "full_layers": 28,
    },
    "olmoe": {
        "n_kv_heads": 16, "experts.number": 64, "experts.per_token": 8, "experts.intermediate_size": 2048,
        "norm_epsilon": 1e-5,
    },
    "flex_olmo": {
        "experts.number": 7, "experts.per_token": 5, "experts.intermediate_size": 11008, "rotary_base": 5e5,
    },
    "mellum": {
        "n_kv_heads": 4, "intermediate_size": 7168, "experts.number": 64, "experts.per_token": 8,
        "experts.intermediate_size": 896, "window": 1024, "rotary_base": 5e5, "local_base": 1e4,
    },
    "solar_open": {
        "n_kv_heads": 8, "experts.number": 128, "experts.per_token": 8, "experts.intermediate_size": 1280, "shared_num": 1,
        "norm_epsilon": 1e-5, "rotary_base": 1e6,
    },
    "sarvam_moe": {
        "n_kv_heads": 4, "head_dim": 64, "intermediate_size": 8192, "experts.number": 128, "experts.per_token": 6,
        "experts.intermediate_size": 1024, "experts.scale": 2.5, "shared_num": 1, "rotary_base": 8e6,
    },
    "sarvam_mla": _DEEPSEEK_V3 | {
        "dense_first": 1, "intermediate_size": 16384, "experts.number": 128, "experts.groups": 1,
        "experts.groups_per_token": 1,
    },
    "dots1": {
        "n_kv_heads": 32, "intermediate_size": 10944, "experts.intermediate_size": 1408, "window": 4096,
        "full_layers": 62, "max_position_embeddings": 2048,
    },
    "qwen3_moe": {
        "n_kv_heads": 4, "intermediate_size": 6144, "experts.number": 128, "experts.per_token": 8,
        "experts.intermediate_size": 768, "window": 4096,
    },
    "qwen3_next": _DELTA | {
        "n_kv_heads": 2, "intermediate_size": 5632, "experts.number": 512, "experts.per_token": 10,
        "experts.intermediate_size": 512, "experts.shared_size": 512,
    },
    "qwen3_5": _DELTA | {"n_kv_heads": 4},
    "qwen3_5_moe": _DELTA | {
        "n_kv_heads": 2, "experts.number": 256, "experts.per_token": 8, "experts.intermediate_size": 512,
        "experts.shared_size": 512,
    },
    "deepseek_v2": _LATENT | {
        "intermediate_size": 11008, "experts.number": 64, "experts.intermediate_size": 1407, "shared_num": 2,
        "max_position_embeddings": 2048,
    },
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_linear": _LATENT | {
        "intermediate_size": 9216, "experts.number": 256, "experts.per_token": 8, "experts.intermediate_size": 1024,
        "experts.scale": 2.446, "shared_num": 1, "norm_epsilon": 1e-5, "delta.key_heads": 32, "delta.key_size": 128,
        "delta.kernel": 4,
    },
    "deepseek_v32": _DEEPSEEK_V3 | _INDEXER,
    "glm_moe_dsa": _DEEPSEEK_V3 | _INDEXER | {
        "indexer.heads": 32,
        "intermediate_size": 12288, "experts.groups": 1, "experts.groups_per_token": 1, "plain_head_dim": 192,
        "latent.value_head_dim": 256, "norm_epsilon": 1e-5,
    },
    "glm4_moe": _GLM4_MOE,
    "glm4_moe_lite": {
        "latent.key_value_rank": 512, "plain_head_dim": 192, "latent.rotary_head_dim": 64, "latent.value_head_dim": 256,
        "intermediate_size": 10240, "experts.number": 64, "experts.per_token": 4, "experts.intermediate_size": 1536,
        "experts.scale": 1.8, "shared_num": 1, "norm_epsilon": 1e-5,
    },
    "glm4v_moe": _GLM4_MOE,
    "minimax_m2": {
        "n_kv_heads": 8, "head_dim": 128, "experts.number": 256, "experts.per_token": 8,
        "experts.intermediate_size": 1536, "rotary_base": 5e6,
    },
    "ernie4_5_moe": {
        "n_kv_heads": 4, "intermediate_size": 12288, "experts.number": 64, "experts.per_token": 6, "shared_num": 2,
        "experts.intermediate_size": 1536, "experts_start": 1, "norm_epsilon": 1e-5, "rotary_base": 5e5,
    },
    "phimoe": {
        "n_kv_heads": 8, "experts.number": 16, "experts.per_token": 2, "experts.intermediate_size": 6400,
        "norm_epsilon": 1e-5, "rotary_base": 1e6,
    },
    "gpt_oss": {
        "n_kv_heads": 8, "experts.number": 128, "experts.per_token": 4, "experts.intermediate_size": 2880,
        "window": 128, "norm_epsilon": 1e-5, "rotary_base": 1.5e5,
    },
    "llama4": {
        "n_kv_heads": 8, "head_dim": 128, "intermediate_size": 16384, "experts.number": 16, "experts.per_token": 1,
        "experts.intermediate_size": 8192, "chunk": 8192, "tempered_from": 8192, "norm_epsilon": 1e-5,
        "rotary_base": 5e5,
    },
}  # fmt: skip
