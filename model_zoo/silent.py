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

SILENT: Mapping[str, Mapping[str, Any]] = {
    "llama": {"max_position_embeddings": 2048},
    "mistral": {"n_kv_heads": 8, "window": 4096},
    "ministral": {"n_kv_heads": 8, "window": 4096},
    "smollm3": {"n_kv_heads": 4, "rotary_base": 2e6},
    "seed_oss": {"n_kv_heads": 8},
    "internlm3": {"n_kv_heads": 2, "head_dim": 128, "norm_epsilon": 1e-5},
    "ernie4_5": {"n_kv_heads": 2, "head_dim": 128, "norm_epsilon": 1e-5, "rotary_base": 5e5},
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
    "gemma": {"n_kv_heads": 16},
    "gemma2": {"n_kv_heads": 4, "window": 4096},
    "olmo2": {"max_position_embeddings": 2048, "norm_epsilon": 1e-5},
    "olmo3": {"max_position_embeddings": 2048, "norm_epsilon": 1e-5, "window": 4096, "rotary_base": 5e5},
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
    "dots1": {
        "n_kv_heads": 32, "intermediate_size": 10944, "experts.intermediate_size": 1408, "window": 4096,
        "full_layers": 62, "max_position_embeddings": 2048,
    },
    "qwen3_moe": {
        "n_kv_heads": 4, "intermediate_size": 6144, "experts.number": 128, "experts.per_token": 8,
        "experts.intermediate_size": 768, "window": 4096,
    },
    "deepseek_v2": _LATENT | {
        "intermediate_size": 11008, "experts.number": 64, "experts.intermediate_size": 1407, "shared_num": 2,
        "max_position_embeddings": 2048,
    },
    "deepseek_v3": _DEEPSEEK_V3,
    "deepseek_v32": _DEEPSEEK_V3,
    "glm_moe_dsa": _DEEPSEEK_V3 | {
        "intermediate_size": 12288, "experts.groups": 1, "experts.groups_per_token": 1, "plain_head_dim": 192,
        "latent.value_head_dim": 256, "norm_epsilon": 1e-5,
    },
    "glm4_moe": {
        "n_kv_heads": 8, "intermediate_size": 10944, "experts.number": 128, "experts.per_token": 8,
        "experts.intermediate_size": 1408, "shared_num": 1, "norm_epsilon": 1e-5,
    },
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
