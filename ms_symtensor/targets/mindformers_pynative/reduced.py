"""A file at reduced dims for two to eight processes: the same kinds of cuts, of a small network in float32."""

import copy
from typing import Any

from ms_symtensor.errors import InputError
from ms_symtensor.targets.mindformers_pynative.degrees import Degrees, degrees_of
from ms_symtensor.targets.mindformers_pynative.shape import shape_of

Config = dict[str, Any]
MOST_RANKS = 8
_SMALL: Config = {
    "vocab_size": 64, "seq_length": 16, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 8, "max_position_embeddings": 32, "hidden_act": "silu", "position_embedding_type": "rope",
    "params_dtype": "float32", "compute_dtype": "float32", "layernorm_compute_dtype": "float32",
    "softmax_compute_dtype": "float32", "rotary_dtype": "float32", "use_attn_mask_compression": False,
}  # fmt: skip
_QWEN: Config = {"num_key_value_heads": 4, "head_dim": 4}
_DEEPSEEK: Config = {
    "moe_intermediate_size": 16, "first_k_dense_replace": 1, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "moe_shared_expert_intermediate_size": 16, "num_nextn_predict_layers": 0, "q_lora_rank": 16, "kv_lora_rank": 8,
    "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8, "num_key_value_heads": 8, "n_group": 0, "topk_group": 0,
    "moe_router_load_balancing_type": "none", "moe_aux_loss_coeff": 0.0, "moe_router_enable_expert_bias": False,
    "routed_scaling_factor": 1.0,
}  # fmt: skip
_COMPRESSED: Config = {
    "moe_intermediate_size": 16, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_shared_expert_intermediate_size": 16,
    "num_hash_layers": 0, "num_nextn_predict_layers": 0, "q_lora_rank": 16, "o_lora_rank": 8, "o_groups": 2,
    "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8, "compress_ratios": [4, 0],
    "apply_dsa_kernel_fusion": False, "index_n_heads": 4, "index_head_dim": 8, "index_topk": 2,
    "moe_router_load_balancing_type": "none", "moe_aux_loss_coeff": 0.0, "moe_router_enable_expert_bias": False,
    "routed_scaling_factor": 1.0,
}  # fmt: skip
LEFT_OUT = (
    "stages and context parallelism are hyper-parallel's, and are not run",
    "no balancing loss, no groups of experts, no layer of multi-token prediction",
    "of DeepSeek-V4 no compression of 128 tokens, no fused kernels",
)


def reduced(config: Config, device_num: int) -> tuple[Config, int]:
    """A small file that cuts as `config` does on `device_num` devices, and its number of processes.

    InputError where nothing is cut that can be run.
    """
    shape, degrees = shape_of(config["model"]), degrees_of(config, device_num)
    found = copy.deepcopy(config)
    found["model"] |= _SMALL | {"qwen3": _QWEN, "deepseek_v3": _DEEPSEEK, "deepseek_v4": _COMPRESSED}[shape.family]
    ranks, given = _degrees(degrees)
    if ranks == 1:
        raise InputError("one rank of stages and context parallelism alone is nothing to prove: give more devices")
    found["parallelism"] = {**given, "sequence_parallel": given["tensor_parallel"] > 1}
    found["training"] = {"local_batch_size": 1, "global_batch_size": ranks // given["tensor_parallel"]}
    found["recompute"] = {"mode": "None"}
    found.pop("recompute_comm", None)
    found.pop("swap", None)
    return found, ranks


def _degrees(degrees: Degrees) -> tuple[int, Config]:
    """Processes, and the keys of degrees: as they are if they fit, or two ranks of each kind that has more."""
    apart = degrees.pipeline * degrees.context
    if apart == 1 and degrees.device_num <= MOST_RANKS:
        ranks, tensor, expert, shard, dense = (
            degrees.device_num, degrees.tensor, degrees.expert, degrees.data_shard, degrees.dense_shard,
        )  # fmt: skip
    else:
        tensor, replicas = min(degrees.tensor, 2), min(degrees.replicas, 2)
        shard = min(degrees.data_shard, 2)
        ranks = tensor * replicas * shard
        if ranks < 4 and degrees.data > shard * replicas:
            shard, ranks = shard * 2, ranks * 2
        expert = min(degrees.expert, 4, shard * tensor)
        dense = min(2, shard) if degrees.dense_shard else None
    return ranks, {
        "tensor_parallel": tensor,
        "expert_parallel": expert,
        "data_parallel_shard": shard,
        "dense_fsdp_shard_size": dense,
        "expert_parallel_use_safe_tokens": degrees.safe_tokens,
    }
