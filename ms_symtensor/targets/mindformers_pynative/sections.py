"""What a PyNative file may say where it is read: sections are records, counts whole numbers; and what no price is known for."""

from typing import Any

from ms_symtensor.strategy.reading import Field

_COUNTS = {
    "training": {"local_batch_size": 1, "global_batch_size": 1},
    "parallelism": {
        "tensor_parallel": 1, "context_parallel": 1, "ulysses_degree_in_cp": 0, "pipeline_parallel": 1,
        "pipeline_parallel_interleave_num": 1, "expert_parallel": 1, "data_parallel_shard": -1, "dense_fsdp_shard_size": 1,
    },
    "model": {
        "vocab_size": 1, "seq_length": 1, "hidden_size": 1, "intermediate_size": 1, "num_hidden_layers": 1,
        "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 1, "q_lora_rank": 1, "kv_lora_rank": 1,
        "qk_rope_head_dim": 1, "qk_nope_head_dim": 1, "v_head_dim": 1, "n_routed_experts": 1, "num_experts_per_tok": 1,
        "moe_intermediate_size": 1, "moe_shared_expert_intermediate_size": 0, "n_shared_experts": 0, "first_k_dense_replace": 0,
        "n_group": 0, "topk_group": 0, "num_nextn_predict_layers": 0, "o_groups": 1, "o_lora_rank": 1,
        "csa_window_size": 1, "index_n_heads": 1, "index_head_dim": 1, "index_topk": 1, "num_residual_streams": 1,
        "mhc_sinkhorn_iterations": 1, "sliding_window": 1, "hc_mult": 1, "hc_sinkhorn_iters": 1, "max_position_embeddings": 1,
    },
    "optimizer": {},
    "recompute": {},
}  # fmt: skip
"""Keys that are read as numbers, with the least."""
_PRICED = {
    "training.rampup_batch_size": (None,),
    "parallelism.data_parallel_shard_strategy": (None, "optim_grads_params"),
    "parallelism.cpu_offload": (None, False),
    "parallelism.enable_loss_parallel": (None, False),
    "parallelism.enable_mc2": (None, False),
    "parallelism.context_parallel_async": (None, False),
    "parallelism.pipeline_parallel_overlap_p2p": (None, False),
    "parallelism.pipeline_parallel_overlap_b_f": (None, False),
    "parallelism.pipeline_parallel_enable_dxdw_split": (None, False),
    "parallelism.moe_token_dispatcher_type": (None, "alltoall"),
    "model.compute_dtype": (None, "bfloat16"),
    "model.params_dtype": (None, "bfloat16"),
    "model.add_bias_linear": (None, False),
    "model.use_fused_mhc": (None, False),
    "optimizer.type": (None, "AdamW", "Muon"),
    "recompute_comm.enable": (None, False),
    "swap.enable": (None, False),
    "lora_config.target_modules": (None,),
}
"""Keys that change a step, and the values that prices take them to have."""


def require_sections(config: dict[str, Any], file: str) -> None:
    """InputError for a section that is no record, and a count that is no whole number; MindFormers refuses them too."""
    for section, counts in _COUNTS.items():
        if config.get(section) is None and section != "model":
            continue
        found = Field(config[section], file, section, "mend the file")
        for name, value in found.items():
            if name in counts and value.value is not None:
                value.integer(counts[name])
    parallelism = Field(config["parallelism"] or {}, file, "parallelism", "mend the file")
    key = "pipeline_parallel_layers_per_stage"
    if key in parallelism and parallelism[key].value not in (None, "auto"):
        for stage in parallelism[key].items_of_list():
            stage.text()
    model = Field(config["model"], file, "model", "mend the file")
    if "moe_aux_loss_coeff" in model and model["moe_aux_loss_coeff"].value is not None:
        model["moe_aux_loss_coeff"].number(0)


def not_priced(config: dict[str, Any]) -> list[str]:
    """Keys whose values change a step in a way that no price is known for: `swap.enable`."""
    found = []
    for path, known in _PRICED.items():
        section, _, key = path.partition(".")
        record = config.get(section)
        if isinstance(record, dict) and record.get(key) not in known:
            found.append(path)
    return found
