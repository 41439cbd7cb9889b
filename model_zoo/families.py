"""What the keys of a Hugging Face config.json mean, by its model_type.

A model_type is one line of `FAMILIES`: what its class fixes, what it takes where the file is silent, and which keys mean
something else there. Source: the files `configuration_*.py` and `modeling_*.py` of transformers 5.24 and 4.57; of networks
with code of their own (InternLM2, Kimi K2, TeleChat3) their published files. Facts have the names of `TransformerConfig`, those
of its parts a dot; what several facts make up is read in `layer_kinds` and `config_json`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Family:
    """A model_type: facts that are `fixed`, facts where the file is `silent`, what `keys` mean here ("": nothing), and `parts`
    that the zoo has not, by the key that brings them ("model_type": always).
    """

    fixed: Facts = field(default_factory=dict)
    silent: Facts = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)


KEYS: dict[str, str] = {
    "hidden_size": "hidden_size", "intermediate_size": "intermediate_size", "ffn_hidden_size": "intermediate_size",
    "num_hidden_layers": "num_layers", "num_layers": "num_layers", "vocab_size": "vocab_size",
    "num_attention_heads": "num_heads", "num_key_value_heads": "n_kv_heads", "head_dim": "head_dim",
    "max_position_embeddings": "max_position_embeddings", "rms_norm_eps": "norm_epsilon",
    "layer_norm_eps": "norm_epsilon", "layer_norm_epsilon": "norm_epsilon", "norm_eps": "norm_epsilon",
    "norm_epsilon": "norm_epsilon", "rope_theta": "rotary_base",
    "rotary_emb_base": "rotary_base", "rope_parameters": "rope", "rope_local_base_freq": "local_base",
    "partial_rotary_factor": "rotated_share", "rotary_pct": "rotated_share", "rotary_dim": "rotated_size",
    "no_rope_layers": "rotated_layers", "no_rope_layer_interval": "unrotated_step",
    "hidden_act": "activation", "hidden_activation": "activation",
    "tie_word_embeddings": "tied_embeddings", "attention_bias": "attention_bias", "qkv_bias": "qkv_bias",
    "mlp_bias": "mlp_bias", "use_bias": "bias", "bias": "bias", "use_qk_norm": "uses_qk_norm",
    "query_pre_attn_scalar": "score_size", "attn_logit_softcapping": "score_cap", "final_logit_softcapping": "logit_cap",
    # windows
    "sliding_window": "window", "sliding_window_size": "window", "use_sliding_window": "uses_window",
    "max_window_layers": "full_layers", "sliding_window_pattern": "window_period",
    "_sliding_window_pattern": "window_period", "layer_types": "layer_types", "attention_chunk_size": "chunk",
    "attn_temperature_tuning": "tempers", "floor_scale": "tempered_from", "attn_scale": "",
    # experts
    "num_experts": "experts.number", "num_local_experts": "experts.number", "n_routed_experts": "experts.number",
    "moe_num_experts": "experts.number", "num_experts_per_tok": "experts.per_token",
    "num_experts_per_token": "experts.per_token", "moe_k": "experts.per_token", "moe_topk": "experts.per_token",
    "moe_intermediate_size": "experts.intermediate_size", "expert_ffn_hidden_size": "experts.intermediate_size",
    "shared_expert_intermediate_size": "experts.shared_size", "n_shared_experts": "shared_num",
    "num_shared_experts": "shared_num", "num_shared_expert": "shared_num", "moe_num_shared_experts": "shared_num",
    "norm_topk_prob": "experts.normalised",
    "moe_renormalize": "experts.normalised", "routed_scaling_factor": "experts.scale", "n_group": "experts.groups",
    "num_expert_group": "experts.groups", "topk_group": "experts.groups_per_token", "scoring_func": "experts.scoring",
    "moe_router_activation_func": "experts.scoring", "topk_method": "topk_method",
    "first_k_dense_replace": "dense_first", "decoder_sparse_step": "experts_step", "moe_layer_freq": "experts_frequency",
    "interleave_moe_layer_step": "experts_step", "mlp_only_layers": "dense_layers", "moe_layers": "expert_layers",
    "mlp_layer_types": "mlp_types", "moe_layer_start_index": "experts_start", "moe_layer_end_index": "experts_end",
    "moe_layer_interval": "experts_step", "use_routing_bias": "uses_correction", "experts_per_token": "experts.per_token",
    "swiglu_limit": "experts.clamp", "swiglu_alpha": "experts.clamp_slope", "lm_head_bias": "head_bias",
    # latent attention
    "q_lora_rank": "latent.query_rank", "kv_lora_rank": "latent.key_value_rank",
    "qk_rope_head_dim": "latent.rotary_head_dim", "qk_nope_head_dim": "plain_head_dim",
    "v_head_dim": "latent.value_head_dim",
    "num_nextn_predict_layers": "second_tokens",
}  # fmt: skip
"""What keys mean in every family that does not say otherwise."""

DELTA_KEYS: dict[str, str] = {
    "linear_num_key_heads": "delta.key_heads", "linear_num_value_heads": "delta.value_heads",
    "linear_key_head_dim": "delta.key_size", "linear_value_head_dim": "delta.value_size",
    "linear_conv_kernel_dim": "delta.kernel",
}  # fmt: skip
"""Of gated linear attention; in other families such a key is refused."""

STATE_SPACE_KEYS: dict[str, str] = {
    "mamba_n_heads": "state_space.heads", "mamba_d_head": "state_space.head_size", "mamba_n_groups": "state_space.groups",
    "mamba_d_state": "state_space.state_size", "mamba_d_conv": "state_space.kernel", "mamba_expand": "state_space.expand",
    "mamba_conv_bias": "state_space.conv_bias", "mamba_proj_bias": "state_space.bias",
    "time_step_limit": "state_space.limits", "mamba_chunk_size": "",
}  # fmt: skip
"""Of state-space layers; in other families such a key is refused."""

ACTIVATIONS = {"silu": "swiglu", "swish": "swiglu", "gelu_pytorch_tanh": "geglu", "gelu_new": "geglu", "gelu": "geglu"}
"""The gated feed-forward of an activation. Both forms of gelu cost the same; the network computes the tanh form."""

UNGATED = dict.fromkeys(("gelu_pytorch_tanh", "gelu_new", "gelu"), "gelu") | {
    name: name for name in ("relu", "relu2", "xielu")
}
"""The feed-forward of two layers of an activation."""

_LACKING: Mapping[str, str] = {
    "sparse attention with an indexer": "index_topk index_n_heads index_head_dim indexer_types",
    "gated linear attention": """linear_num_key_heads linear_num_value_heads linear_key_head_dim linear_value_head_dim
        linear_conv_kernel_dim linear_num_heads linear_head_dim linear_attn_config""",
    "experts in a narrow space": "moe_latent_size",
    "compressed attention": "compress_rates compress_ratios compress_rope_theta",
    "hyper-connections": "hc_mult hc_eps hc_sinkhorn_iters",
    "an output projection of low rank": "o_groups o_lora_rank",
    "hash-routed experts": "num_hash_layers",
    "zero experts": "zero_expert_num zero_expert_type",
    "ALiBi": "alibi",
    "attention beside the feed-forward": "parallel_attn use_parallel_residual",
    "dropout": """attention_dropout hidden_dropout resid_pdrop residual_dropout embd_pdrop mlp_dropout attn_pdrop dropout
        embedding_dropout layerdrop activation_dropout""",
    "clipped projections": "clip_qkv",
    "noise in routing": "router_jitter_noise input_jitter_noise",
    "attention to later tokens": "use_bidirectional_attention",
    "encoder beside the decoder": "is_encoder_decoder tie_encoder_decoder",
    "attention to another sequence": "add_cross_attention cross_attention_hidden_size",
    "pruned heads": "pruned_heads",
    "scaled residual sums, scores or logits": "residual_multiplier attention_multiplier logits_scaling",
}
LACKING: Mapping[str, str] = {key: part for part, keys in _LACKING.items() for key in keys.split()}
"""The parts that keys bring and the zoo has not, for the message that refuses them; 0, false and nothing bring nothing."""

LEFT_OUT: Mapping[str, str] = {
    "vision_config": "what is planned is the text network", "audio_config": "what is planned is the text network",
    "mtp_num_hidden_layers": "no head predicts further tokens, as in transformers' class",
    "num_mtp_modules": "no head predicts further tokens, as in the published weights",
    "quantization_config": "weights are trained in the types that the plan says",
}  # fmt: skip
"""Keys of parts that stand beside the network that is planned, and what a line says of them."""

TOWERLESS = frozenset({
    "thinker_config", "text_config", "llm_config", "language_config", "id2label", "label2id", *LEFT_OUT,
})  # fmt: skip
"""Records around a text network that are no part beside it, or have a line already; of every other one a line says so."""

NEAREST: Mapping[str, str] = {
    "sparse attention with an indexer": "full attention, without the indexer's weights",
    "routing by a sparse mixer": "softmax routing",
    "chunked attention": "a window as wide as a chunk",
    "queries scaled by position": "queries as they are",
}
"""What each may be planned as, which takes no less time, where one asks for it."""

HARMLESS = frozenset({
    "_attn_implementation", "_attn_implementation_autoset", "_attn_implementation_internal", "_flash_attn_2_enabled",
    "_name_or_path", "architectures", "attn_implementation", "attn_implementation_autoset", "auto_map", "aux_loss_alpha",
    "bad_words_ids", "begin_suppress_tokens", "bf16", "boi_token_index", "bos_token_id", "cache_implementation",
    "chunk_size_feed_forward", "decoder_start_token_id", "diversity_penalty", "do_sample", "dtype", "early_stopping",
    "embedding_initializer_range", "encoder_no_repeat_ngram_size", "eod_token_id", "eoi_token_index", "eos_token_id",
    "ep_size", "exponential_decay_length_penalty", "finetuning_task", "for_llm_compressor", "forced_bos_token_id",
    "forced_eos_token_id", "fp16", "fp32", "gradient_checkpointing", "id2label", "image_token_id", "image_token_index",
    "init_std", "initializer_range", "is_decoder", "label2id", "language_model_only", "length_penalty", "max_length",
    "min_length", "model_max_length", "model_type", "moe_norm_min", "mrope_section", "no_repeat_ngram_size",
    "norm_topk_eps", "num_beam_groups", "num_beams", "num_labels", "num_logits_to_keep", "num_return_sequences",
    "original_max_position_embeddings", "output_attentions", "output_hidden_states", "output_router_logits",
    "output_scores", "pad_token_id", "prefix", "pretraining_tp", "problem_type", "qk_head_dim", "remove_invalid_values",
    "repetition_penalty", "return_dict", "return_dict_in_generate", "rope_interleave", "rope_scaling", "rotary_type",
    "router_aux_loss_coef", "sep_token_id", "seq_aux", "spatial_merge_size", "suppress_tokens", "task_specific_params",
    "temperature", "tf_legacy_loss", "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript",
    "transformers_version", "typical_p", "unk_token_id", "unsloth_fixed", "unsloth_version", "use_bfloat16", "use_cache",
    "use_flash_attention", "use_flash_attn", "use_mrope", "use_mtp", "video_token_id", "vision_end_token_id",
    "vision_feature_select_strategy", "vision_start_token", "vision_start_token_id", "vision_token_id",
})  # fmt: skip
"""Keys that change no operator and no size of the training step: tokens, generation, initial values, balance losses, how a
framework runs it, and numbers in the tables of the rotation.
"""

_MLA = {"head_dim": "", "num_key_value_heads": ""}  # the rotated part, and no grouped heads
_INDEXED = _MLA | {
    "index_n_heads": "indexer.heads", "index_head_dim": "indexer.head_dim", "index_topk": "indexer.keys",
}  # fmt: skip
_HEAD_NORM: dict[str, Any] = {"qk_norm": "head"}
_QKV: dict[str, Any] = {"qkv_bias": True}
_GEMMA: dict[str, Any] = {"branch_norm": "both", "scales_embedding": True}
_TIED: dict[str, Any] = {"tied_embeddings": True}
_GELU: dict[str, Any] = {"activation": "gelu_pytorch_tanh"}
_GLM = {"attention_bias": "qkv_bias"}  # its output has none
_LAYER_NORM: dict[str, Any] = {"norm": "layer_norm"}
_BIASED: dict[str, Any] = _LAYER_NORM | {"bias": True, "gated": False}
_CHATGLM: dict[str, Any] = {
    "groups_heads": True, "has_biases": False, "norms_by_root": True, "norms_last": True, "adds_normed": False,
}  # fmt: skip
_LEARNED: dict[str, Any] = _BIASED | {"position": "learned"}
_GPT2 = {
    "n_embd": "hidden_size", "n_layer": "num_layers", "n_head": "num_heads", "n_positions": "max_position_embeddings",
    "n_ctx": "", "n_inner": "intermediate_size", "activation_function": "activation", "reorder_and_upcast_attn": "",
    "scale_attn_weights": "scales_scores", "scale_attn_by_inverse_layer_idx": "scales_by_layer", "summary_type": "",
    "summary_use_proj": "", "summary_activation": "", "summary_proj_to_labels": "", "summary_first_dropout": "",
}  # fmt: skip
_GRANITE = {
    "embedding_multiplier": "embedding_scale", "residual_multiplier": "branch_scale", "attention_multiplier": "score_scale",
    "logits_scaling": "logit_divisor",
}  # fmt: skip
_GRANITE_SWA = _GRANITE | {"layer_rope_theta": "layer_bases"}
_ROTATED_HEAD: dict[str, Any] = {"norm_of_heads": "rotated_head", "uses_qk_norm": True, "shares_keys": False}
_BESIDE = """add_classification_head class_num cla_share_factor dense_list im_start_id im_end_id im_newline_id mask_init_id
    moe_drop_tokens moe_layer_num_skipped moe_random_routing_dropped_token norm_type num_shared_expert moe_intermediate_size
    text_start_id text_end_id org_vocab_size pad_id pool_type use_mixed_mlp_moe use_rotary_pos_emb"""
_HUNYUAN = {"attention_head_dim": "head_dim", "use_cla": "shares_keys", **dict.fromkeys(_BESIDE.split(), "")}
_COHERE: dict[str, Any] = {"norm": "layer_norm_no_bias", "branch_norm": "shared"}
_UNREAD = """layer_switch order_of_interleaved_layers position_embedding_type use_embedding_sharing use_gated_activation
    use_parallel_block use_parallel_embedding"""
_LOGIT_SCALE = {"logit_scale": "logit_scale"}
_FULL_UNROTATED: dict[str, Any] = {"rotates_windows": True}  # beside blocks with a window those without are not rotated
_PARALLEL = {"use_parallel_residual": "parallel"}
_SIGMOID = {"experts.scoring": "sigmoid"}
_DELTA: dict[str, Any] = _HEAD_NORM | {"attention_gate": True}
_QWEN3_NEXT = DELTA_KEYS | {
    "full_attention_interval": "full_step", "attn_output_gate": "attention_gate", "mamba_ssm_dtype": "delta.state_dtype",
    "mtp_use_dedicated_embeddings": "",
}  # fmt: skip
_BEGINS = dict.fromkeys(
    ["linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor"], ""
)
_UNREAD_BY_NEMOTRON_H = """expand chunk_size mamba_proj_bias time_step_max time_step_floor time_step_limit use_mamba_kernels
    rescale_prenorm_residual residual_in_fp32 mamba_ssm_cache_dtype moe_shared_expert_overlap mtp_layers_block_type
    mtp_hybrid_override_pattern n_shared_experts sliding_window attention_bias rope_theta partial_rotary_factor"""
_UNREAD_BY_MAMBA2 = """chunk_size time_step_min time_step_max time_step_floor time_step_rank rescale_prenorm_residual
    residual_in_fp32 rms_norm norm_before_gate"""
_NEMOTRON_H = dict.fromkeys(_UNREAD_BY_NEMOTRON_H.split(), "") | {
    "layers_block_type": "layer_types", "hybrid_override_pattern": "layer_pattern", "attention_head_dim": "head_dim",
    "mamba_num_heads": "state_space.heads", "mamba_head_dim": "state_space.head_size", "n_groups": "state_space.groups",
    "ssm_state_size": "state_space.state_size", "conv_kernel": "state_space.kernel", "use_conv_bias": "state_space.conv_bias",
    "use_bias": "state_space.bias", "time_step_min": "state_space.least_step", "mamba_hidden_act": "state_space.activation",
    "mlp_hidden_act": "activation", "moe_shared_expert_intermediate_size": "experts.shared_size",
}  # fmt: skip
_EXPERTS_ONLY = {"intermediate_size": "experts.intermediate_size"}  # no block is dense

_REFUSED: Mapping[str, str] = {
    "gated linear attention and experts in a narrow space": "kimi_k3",
    "linear attention": "minimax bailing_hybrid",
    "compressed attention and hyper-connections": "deepseek_v4",
    "experts beside attention and zero experts": "longcat_flash",
    "state-space layers of Mamba 1": "mamba falcon_mamba jamba zamba",
    "attention beside state-space layers": "falcon_h1",
    "blocks that share weights": "zamba2",
    "convolutions between blocks of attention": "lfm2 lfm2_moe",
    "ALiBi": "mpt",
    "gates of a head's whole output": "laguna",
    "embeddings in every block": "gemma3n gemma4",
    "numbers of heads that differ from block to block": "mimo_v2_flash step3p5",
    "experts of images beside those of text": "ernie4_5_vl_moe",
}  # fmt: skip
"""What each of these model types has that the zoo has not."""

FAMILIES: Mapping[str, Family] = {  # the text network of a multimodal one has its name, with or without _text
    "llama": Family(),
    "mistral": Family(),
    "ministral": Family(),
    "ministral3": Family(),
    "mistral4": Family(keys=_MLA, fixed={"experts.groups": 1, "experts.groups_per_token": 1}),
    "cwm": Family(silent={"window_period": 4, "window_shift": 1}),
    "iquestcoder": Family(),
    "exaone": Family(keys={"activation_function": "activation"}),
    "exaone4": Family(
        fixed=_HEAD_NORM | _FULL_UNROTATED | {"branch_norm": "after"}, silent={"window_period": 4}
    ),
    "exaone_moe": Family(
        fixed=_SIGMOID | _HEAD_NORM | _FULL_UNROTATED, silent={"window_period": 4, "dense_first": 1}
    ),
    "helium": Family(keys=_GLM, silent={"head_dim": 128}),
    "youtu": Family(keys=_MLA, silent=_TIED | {"latent.query_rank": 1536}),
    "hunyuan_v1_dense": Family(fixed=_ROTATED_HEAD, keys=_HUNYUAN | {"num_experts": ""}),
    "hunyuan_v1_moe": Family(
        fixed=_ROTATED_HEAD | {"shared_num": 1}, keys=_EXPERTS_ONLY | _HUNYUAN
    ),
    "hunyuan_vl": Family(fixed=_ROTATED_HEAD, keys=_HUNYUAN, silent=_TIED),
    "hy_v3": Family(
        fixed=_SIGMOID | _HEAD_NORM | {"experts.normalised": True},
        keys={"router_scaling_factor": "experts.scale", "enable_moe_fp32_combine": ""},
        silent={"head_dim": 128, "dense_first": 1, "shared_num": 1},
    ),
    "mimo": Family(fixed=_QKV, silent={"uses_window": False}),
    "smollm3": Family(silent=_TIED | {"unrotated_step": 4, "uses_window": False}),
    "seed_oss": Family(
        keys={"attention_bias": "qkv_bias", "attention_out_bias": "output_bias"},
        silent={"qkv_bias": True, "head_dim": 128},
    ),
    "internlm2": Family(),
    "internlm3": Family(),
    "telechat3": Family(),
    "ernie4_5": Family(silent=_TIED),
    "paddleocr_vl": Family(silent=_TIED),
    "qwen2": Family(fixed=_QKV, silent={"uses_window": False}),
    "qwen2_vl": Family(fixed=_QKV, silent={"uses_window": False}),
    "qwen2_5_vl": Family(fixed=_QKV, silent={"uses_window": False}),
    "qwen2_5_omni": Family(fixed=_QKV, silent=_TIED | {"uses_window": False}),
    "qwen3_omni_moe": Family(fixed=_HEAD_NORM, keys={"sliding_window": ""}),
    "qwen3_vl": Family(fixed=_HEAD_NORM, silent={"head_dim": 128}),
    "qwen3_vl_moe": Family(fixed=_HEAD_NORM),
    "qwen3": Family(fixed=_HEAD_NORM, silent={"head_dim": 128, "uses_window": False}),
    "phi3": Family(keys={"attention_bias": ""}),
    "glm": Family(keys=_GLM, silent={"rotated_share": 0.5, "qkv_bias": True, "head_dim": 128}),
    "chatglm": Family(
        fixed=_CHATGLM, silent={"rotated_share": 0.5, "qkv_bias": True},
        keys={
            "padded_vocab_size": "vocab_size", "vocab_size": "", "kv_channels": "head_dim", "layernorm_epsilon": "norm_epsilon",
            "multi_query_group_num": "n_kv_heads", "multi_query_attention": "groups_heads", "add_qkv_bias": "qkv_bias",
            "add_bias_linear": "has_biases", "rmsnorm": "norms_by_root", "post_layer_norm": "norms_last",
            "apply_residual_connection_post_layernorm": "adds_normed", "seq_length": "max_position_embeddings",
            "interleaved_qkv": "", "rope_ratio": "", "original_rope": "", "apply_query_key_layer_scaling": "",
            "attention_softmax_in_fp32": "", "bias_dropout_fusion": "", "fp32_residual_connection": "", "classifier_dropout": "",
            "pre_seq_len": "", "prefix_projection": "", "quantization_bit": "",
        },
    ),
    "glm4": Family(
        fixed={"branch_norm": "both"}, keys=_GLM, silent={"rotated_share": 0.5, "qkv_bias": True, "head_dim": 128}
    ),
    "glm4v": Family(fixed=_QKV | {"branch_norm": "both"}, keys={"attention_bias": ""}),
    "glm_ocr": Family(fixed={"branch_norm": "both"}, keys={"attention_bias": ""}),
    "gemma": Family(fixed={"scales_embedding": True}, silent=_TIED | _GELU | {"head_dim": 256}),
    "gemma2": Family(
        fixed=_GEMMA,
        silent=_TIED | _GELU | {
            "window_period": 2, "score_size": 256, "score_cap": 50.0, "logit_cap": 30.0, "head_dim": 256,
        },
    ),
    "vaultgemma": Family(
        fixed={"scales_embedding": True},
        silent=_TIED | _GELU | {
            "window_period": 2, "score_size": 256, "score_cap": 50.0, "logit_cap": 30.0, "head_dim": 256,
        },
    ),
    "gemma3": Family(
        fixed=_GEMMA | {"qk_norm": "head"},
        silent=_TIED | _GELU | {
            "window_period": 6, "window": 4096, "score_size": 256, "head_dim": 256, "rotary_base": 1e6,
            "local_base": 1e4, "vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_layers": 26,
            "num_heads": 8, "n_kv_heads": 4, "max_position_embeddings": 131072,
        },
    ),
    "olmo2": Family(fixed={"branch_norm": "after", "qk_norm": "projection"}),
    "olmo3": Family(fixed={"branch_norm": "after", "qk_norm": "projection"}, silent={"window_period": 4}),
    "olmo_hybrid": Family(
        fixed={"branch_norm": "after", "qk_norm": "projection", "delta.norm_epsilon": 1e-5, "rotates_by_base": True},
        keys=DELTA_KEYS | _BEGINS | {"linear_allow_neg_eigval": "delta.changes_sign"},
        silent={"delta.changes_sign": True, "full_step": 4},
    ),
    "olmo": Family(fixed={"norm": "layer_norm_no_weight", "norm_epsilon": 1e-5}),
    "granite": Family(keys=_GRANITE, silent={"score_scale": 1.0}),
    "granitemoe": Family(keys=_GRANITE | _EXPERTS_ONLY, silent={"score_scale": 1.0}),
    "granitemoeshared": Family(
        keys=_GRANITE | _EXPERTS_ONLY | {"shared_intermediate_size": "experts.shared_size"}, silent={"score_scale": 1.0}
    ),
    "granitemoehybrid": Family(
        fixed={"rotates_if_said": True}, silent={"score_scale": 1.0, "attention_layers": []},
        keys=_GRANITE | _EXPERTS_ONLY | STATE_SPACE_KEYS | {
            "shared_intermediate_size": "experts.shared_size", "position_embedding_type": "position_type",
        },
    ),
    "bamba": Family(
        fixed={"z_loss": 0}, silent={"rotated_share": 0.5, "attention_layers": []},
        keys=STATE_SPACE_KEYS | {
            "attn_layer_indices": "attention_layers", "z_loss_coefficient": "z_loss", "attn_rotary_emb": "rotated_size",
        },
    ),
    "nemotron_h": Family(
        fixed=_SIGMOID | {"gated": False, "one_branch": True, "second_tokens": 0, "state_space.activation": "silu"},
        keys=_NEMOTRON_H,
    ),
    "mamba2": Family(
        fixed={"one_branch": True, "has_no_attention": True}, silent={"attention_layers": []},
        keys=dict.fromkeys(_UNREAD_BY_MAMBA2.split(), "") | {
            "num_heads": "state_space.heads", "head_dim": "state_space.head_size", "n_groups": "state_space.groups",
            "state_size": "state_space.state_size", "conv_kernel": "state_space.kernel", "expand": "state_space.expand",
            "use_conv_bias": "state_space.conv_bias", "use_bias": "state_space.bias", "time_step_limit": "state_space.limits",
        },
    ),
    "granite_swa": Family(
        fixed={"sinks": True}, keys=_GRANITE_SWA, silent=_TIED | {"score_scale": 1.0, "window_period": 4, "window_shift": 1}
    ),
    "granitemoe_swa": Family(
        fixed={"sinks": True}, silent={"score_scale": 1.0, "window_period": 4, "window_shift": 1},
        keys=_GRANITE_SWA | _EXPERTS_ONLY | {"shared_intermediate_size": "experts.shared_size"},
    ),
    "hyperclovax": Family(
        fixed={"branch_norm": "both", "norms_after": True},
        keys=_GRANITE | {"logits_scaling": "logit_scale", "use_post_norm": "norms_after"},
    ),
    "minicpm3": Family(
        keys=_MLA | {"scale_emb": "embedding_scale", "scale_depth": "depth_scale", "dim_model_base": "logit_base"},
        silent=_TIED | {"embedding_scale": 12, "depth_scale": 1.4, "logit_base": 256, "values_fill_hidden": True},
    ),
    "cohere": Family(
        fixed=_COHERE | {"uses_qk_norm": False}, keys=_LOGIT_SCALE, silent=_TIED | {"logit_scale": 0.0625}
    ),
    "cohere2": Family(
        fixed=_COHERE | _FULL_UNROTATED, keys=_LOGIT_SCALE | dict.fromkeys(_UNREAD.split(), ""),
        silent=_TIED | {"logit_scale": 0.0625, "window_period": 4},
    ),
    "stablelm": Family(
        fixed=_LAYER_NORM | {"parallel_norm": "shared", "uses_qk_norm": False},
        keys=_PARALLEL | {"use_qkv_bias": "qkv_bias", "qk_layernorm": "uses_qk_norm"}, silent={"rotated_share": 0.25},
    ),
    "bloom": Family(
        fixed=_BIASED | {"position": "distance", "embedding_norm": True, "adds_normed": False, "wide": True},
        keys={
            "n_embed": "hidden_size", "n_layer": "num_layers", "n_head": "num_heads", "seq_length": "max_position_embeddings",
            "apply_residual_connection_post_layernorm": "adds_normed", "n_inner": "intermediate_size", "slow_but_exact": "",
            "attention_softmax_in_fp32": "", "bias_dropout_fusion": "", "masked_softmax_fusion": "", "offset_alibi": "",
            "skip_bias_add": "", "skip_bias_add_qkv": "",
        },
        silent=_TIED | {"activation": "gelu_pytorch_tanh"},
    ),
    "baichuan": Family(
        fixed={"biased_without": "max_position_embeddings", "normed_vocabulary": 125696, "z_loss": 0},
        keys={"model_max_length": "longest", "z_loss_weight": "z_loss"},
    ),
    "starcoder2": Family(
        fixed=_LAYER_NORM | {"gated": False}, keys={"mlp_type": "", "norm_type": ""},
        silent=_TIED | {"bias": True, "activation": "gelu_pytorch_tanh"},
    ),
    "phi": Family(
        fixed=_BIASED | {"branch_norm": "shared", "head_bias": True}, keys={"qk_layernorm": "uses_qk_norm"},
        silent={"rotated_share": 0.5, "activation": "gelu_new"},
    ),
    "persimmon": Family(
        fixed=_BIASED, keys={"qk_layernorm": "uses_qk_norm"},
        silent={"rotated_share": 0.5, "activation": "relu2", "uses_qk_norm": True},
    ),
    "gpt_neox": Family(
        fixed=_BIASED | {"parallel_norm": "beside", "attention_bias": True}, keys=_PARALLEL | {"classifier_dropout": ""},
        silent={"rotated_share": 0.25, "activation": "gelu", "parallel": True},
    ),
    "falcon": Family(
        fixed=_LAYER_NORM | {"gated": False, "parallel_norm": "shared", "wide": True},
        keys={
            "parallel_attn": "parallel", "new_decoder_architecture": "new_form", "num_ln_in_parallel_attn": "norms_num",
            "multi_query": "one_kv_head", "num_kv_heads": "n_kv_heads", "activation": "activation",
            "apply_residual_connection_post_layernorm": "",
        },
        silent=_TIED | {"parallel": True, "one_kv_head": True, "activation": "gelu"},
    ),
    "nemotron": Family(
        fixed=_LAYER_NORM | {"gated": False}, silent={"rotated_share": 0.5, "activation": "relu2"},
    ),
    "arcee": Family(fixed={"gated": False}, silent={"activation": "relu2"}),
    "apertus": Family(
        fixed=_HEAD_NORM | {"gated": False}, silent={"activation": "xielu", "rotary_base": 1.2e7}
    ),
    "jais2": Family(
        fixed=_LAYER_NORM | {"gated": False}, silent={"activation": "relu2", "attention_bias": True, "mlp_bias": True}
    ),
    "gpt2": Family(
        fixed=_LEARNED | {"scales_scores": True, "scales_by_layer": False, "wide": True}, keys=_GPT2,
        silent=_TIED | {"activation": "gelu_new"},
    ),
    "gpt_bigcode": Family(
        fixed=_LEARNED | {"scales_scores": True, "wide": True},
        keys=_GPT2 | {
            "multi_query": "one_kv_head", "attention_softmax_in_fp32": "", "scale_attention_softmax_in_fp32": "",
        },
        silent=_TIED | {"activation": "gelu_pytorch_tanh", "one_kv_head": True},
    ),
    "opt": Family(
        fixed=_LEARNED | {"norms_before": True, "drops_norm": False, "more_positions": 2, "norm_epsilon": 1e-5},
        keys={
            "ffn_dim": "intermediate_size", "activation_function": "activation", "enable_bias": "bias",
            "do_layer_norm_before": "norms_before", "_remove_final_layer_norm": "drops_norm",
            "layer_norm_elementwise_affine": "norms_before", "word_embed_proj_dim": "embedding_size",
            "output_projection": "",
        },
        silent=_TIED | {"activation": "relu"},
    ),
    "flex_olmo": Family(
        fixed={"branch_norm": "after", "qk_norm": "projection"}, keys=_EXPERTS_ONLY, silent={"experts.normalised": False}
    ),
    "mellum": Family(
        fixed=_HEAD_NORM, keys={"mtp_layer_types": "", "mtp_mlp_layer_types": ""},
        silent={"head_dim": 128, "uses_window": False},
    ),
    "solar_open": Family(fixed=_SIGMOID, keys=_GLM, silent={"head_dim": 128}),
    "sarvam_moe": Family(
        fixed=_SIGMOID, keys=_GLM | {"use_qkv_bias": "qkv_bias"}, silent={"uses_qk_norm": True, "dense_first": 1}
    ),
    "sarvam_mla": Family(keys=_MLA, fixed=_SIGMOID),
    "afmoe": Family(
        fixed=_SIGMOID | _HEAD_NORM | _FULL_UNROTATED | {
            "branch_norm": "both", "attention_gate": True, "experts.normalised": True,
        },
        keys={
            "num_dense_layers": "dense_first", "global_attn_every_n_layers": "window_period", "mup_enabled": "scales_embedding",
            "route_scale": "experts.scale", "route_norm": "experts.normalised", "score_func": "experts.scoring",
            "num_expert_groups": "experts.groups", "num_limited_groups": "experts.groups_per_token", "load_balance_coeff": "",
            "use_grouped_mm": "",
        },
        silent={"head_dim": 128, "window_period": 4, "dense_first": 1},
    ),
    "mixtral": Family(keys=_EXPERTS_ONLY),
    "qwen2_moe": Family(
        fixed={"experts.shared_gate": True}, silent={"qkv_bias": True, "uses_window": False, "experts.normalised": False}
    ),
    "olmoe": Family(
        fixed={"qk_norm": "projection"}, keys=_EXPERTS_ONLY, silent={"experts.normalised": False}
    ),
    "dots1": Family(fixed=_SIGMOID | _HEAD_NORM, silent={"uses_window": False, "experts.normalised": False}),
    "qwen3_moe": Family(
        fixed=_HEAD_NORM, silent={"experts.normalised": False, "uses_window": False}, keys={"max_window_layers": ""}
    ),
    "qwen3_next": Family(fixed=_DELTA | {"experts.shared_gate": True}, keys=_QWEN3_NEXT, silent={"uses_window": False}),
    "qwen3_5": Family(fixed=_DELTA, keys=_QWEN3_NEXT),
    "qwen3_5_moe": Family(
        fixed=_DELTA | {"experts.shared_gate": True, "experts.normalised": True},
        keys=_QWEN3_NEXT | {"intermediate_size": "experts.intermediate_size"} ,
    ),
    "deepseek_v2": Family(
        keys=_MLA, silent={"experts.normalised": False, "latent.query_rank": 1536, "topk_method": "greedy"}
    ),
    "deepseek_v3": Family(keys=_MLA, fixed=_SIGMOID, silent={"latent.query_rank": 1536}),
    "kimi_k2": Family(keys=_MLA, fixed=_SIGMOID, silent={"latent.query_rank": 1536}),
    "kimi_linear": Family(
        fixed=_SIGMOID | {"unrotated_step": 1, "delta.by_channel": True, "delta.state_dtype": "float32"},
        keys=_MLA | {
            "linear_num_heads": "delta.key_heads", "linear_head_dim": "delta.key_size", "linear_conv_kernel_dim": "delta.kernel",
            "linear_attn_config": "delta.record", "model_max_length": "max_position_embeddings", "mla_use_nope": "",
            "use_grouped_topk": "", "rope_theta": "",
        },
        silent={"delta.period": 4, "dense_first": 1},
    ),
    "telechat3_moe": Family(keys=_MLA, fixed=_SIGMOID),
    "deepseek_v32": Family(keys=_INDEXED, fixed=_SIGMOID, silent={"latent.query_rank": 1536}),
    "glm_moe_dsa": Family(
        fixed=_SIGMOID, silent={"latent.query_rank": 2048},
        keys=_INDEXED | {
            "indexer_types": "indexer_types", "index_topk_pattern": "indexer_pattern", "index_topk_freq": "indexer_step",
            "index_skip_topk_offset": "indexer_offset", "indexer_rope_interleave": "",
        },
    ),
    "glm4_moe": Family(
        fixed=_SIGMOID, keys=_GLM, silent={"rotated_share": 0.5, "uses_qk_norm": False, "dense_first": 1}
    ),
    "glm4_moe_lite": Family(keys=_MLA, fixed=_SIGMOID, silent={"latent.query_rank": 768, "dense_first": 1}),
    "glm4v_moe": Family(
        fixed=_SIGMOID, keys=_GLM, silent={"rotated_share": 0.5, "dense_first": 1, "qkv_bias": True}
    ),
    "minimax_m2": Family(
        fixed=_SIGMOID | {"qk_norm": "projection", "residual_scale": 1.0},
        keys=_EXPERTS_ONLY | {
            "use_qk_norm": "", "qk_norm_type": "", "attn_type_list": "", "shared_moe_mode": "", "max_model_len": "",
            "mtp_transformer_layers": "", "mlp_intermediate_size": "", "shared_intermediate_size": "experts.shared_size",
            "layernorm_full_attention_beta": "residual_scale", "layernorm_linear_attention_beta": "residual_scale",
            "layernorm_mlp_beta": "residual_scale",
        },
    ),
    "ernie4_5_moe": Family(
        fixed={"experts.corrected": True}, silent=_TIED,
        keys={"moe_capacity": "", "moe_gate": "", "moe_use_aux_free": "uses_correction"},
    ),
    **{kind: Family(parts={"model_type": part}) for part, kinds in _REFUSED.items() for kind in kinds.split()},
    "phimoe": Family(
        fixed={"norm": "layer_norm"}, keys=_EXPERTS_ONLY | {"router_jitter_noise": "", "input_jitter_noise": ""},
        parts={"model_type": "routing by a sparse mixer"},
    ),
    "gpt_oss": Family(
        fixed={"sinks": True, "experts.bias": True}, keys=_EXPERTS_ONLY | {"initial_context_length": ""},
        silent={"window_period": 2, "experts.clamp": 7.0, "head_dim": 64, "attention_bias": True},
    ),
    "llama4": Family(
        fixed=_SIGMOID | {"experts.scales_input": True, "experts.normalised": False, "shared_num": 1},
        keys={"intermediate_size": "experts.intermediate_size", "intermediate_size_mlp": "intermediate_size"},
        silent={"uses_qk_norm": True, "norm_of_heads": "rotated", "unrotated_step": 4},
    ),
}  # fmt: skip
