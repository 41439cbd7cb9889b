"""A network of the zoo in the options of MindSpeed-LLM: names of Megatron's core 0.12, and its own of blocks with experts."""

from collections.abc import Iterator

from model_zoo.config import Experts, TransformerConfig

Options = dict[str, str]
"""Values by the names of options, without dashes; "" for one without a value."""

_LOAD_BALANCING = "none"
"""What balances the load changes no time; with a capacity it is none or an auxiliary loss (transformer_config.py)."""


def unsayable(config: TransformerConfig) -> str:
    """What of `config` has no option; empty: all has."""
    experts = config.experts
    checks = (
        (not config.causal, "it trains decoders"),
        (config.lora, "adapters are told by options of their own"),
        (config.activation not in ("swiglu", "gelu"), "a gate through GELU, ReLU and xIELU have no option"),
        (config.is_parallel, "attention beside the feed-forward has no option"),
        (config.branch_norm != "before", "norms behind attention and feed-forward have no option"),
        (config.norm.startswith("layer_norm_"), "a LayerNorm without a bias or a weight has no option"),
        (config.qk_norm not in (None, "head"), "norms of whole projections, or once rotated, have no option"),
        (config.sinks or config.score_cap or config.logit_cap, "sinks and soft caps have no option"),
        (config.delta or config.attention_gate, "gated linear attention and gates of attention are not written"),
        (config.is_hybrid, "state-space layers are not written"),
        (config.kinds, "blocks of several kinds have no option"),
        (config.output_bias or config.head_bias, "biases of attention's output or the head alone have no option"),
        (config.embedding_scale != 1.0 or config.score_size, "scales of embeddings and scores are not written"),
        (config.branch_scale != 1.0 or config.logit_scale != 1.0, "scales of branches and logits have no option"),
        (config.compute_dtype == "float32", "it trains in bf16 or fp16"),
        (config.attention != "flash", "attention is flash attention (use-flash-attn)"),
        (config.position == "distance", "biases by distance are not written"),
        (config.embedding_norm or config.normed_head, "norms of embeddings and of the head's table have no option"),
        (config.indexer, "an indexer of sparse attention is not written"),
        (config.position == "learned" and config.latent_attention, "latent attention has rotary positions"),
    )
    return next((words for is_it, words in checks if is_it), _unsayable_experts(experts) if experts else "")


def _unsayable_experts(experts: Experts) -> str:
    checks = (
        (experts.bias or experts.clamp or experts.scales_input, "experts with biases, clamps or weighted inputs have no option"),
        (experts.corrected and experts.scoring != "sigmoid", "moe-router-enable-expert-bias needs scores of a sigmoid"),
        (experts.shared_size % experts.intermediate_size, "a shared expert is a whole number of experts wide"),
        (experts.token_groups > 1, "tokens are routed rank by rank"),
        (experts.dropless, "experts with room for all tokens are no dispatcher of it: leave --experts dropless out"),
    )  # fmt: skip
    return next((words for is_it, words in checks if is_it), "")


def dimensions(config: TransformerConfig) -> Options:
    """The options that say `config`, its lengths included."""
    found = {
        "num-layers": str(config.num_layers),
        "hidden-size": str(config.hidden_size),
        "ffn-hidden-size": str(config.intermediate_size),
        "num-attention-heads": str(config.num_heads),
        "seq-length": str(config.seq_length),
        "max-position-embeddings": str(max(config.max_position_embeddings, config.seq_length)),
        "padded-vocab-size": str(config.vocab_size),
        "make-vocab-size-divisible-by": "1",
        "normalization": "RMSNorm" if config.norm == "rms_norm" else "LayerNorm",
        "norm-epsilon": f"{config.norm_epsilon:g}",
        "position-embedding-type": "rope" if config.position == "rotary" else "learned_absolute",
    }
    found |= dict(_switches(config))
    if config.n_kv_heads != config.num_heads and config.latent_attention is None:
        found |= {"group-query-attention": "", "num-query-groups": str(config.n_kv_heads)}
    if config.latent_attention is None and config.head_dim * config.num_heads != config.hidden_size:
        found["kv-channels"] = str(config.head_dim)
    if config.position == "rotary":
        found["rotary-base"] = f"{config.rotary_base:.0f}"
    if config.rotated_size:
        found["rotary-percent"] = f"{config.rotated_size / config.head_dim:g}"
    if config.second_token_weight:
        found |= {"mtp-num-layers": "1", "mtp-loss-scaling-factor": f"{config.second_token_weight:g}"}
    return found | _latent(config) | _experts(config)


def _switches(config: TransformerConfig) -> Iterator[tuple[str, str]]:
    switches = {
        "bf16": config.compute_dtype == "bfloat16",
        "fp16": config.compute_dtype == "float16",
        "swiglu": config.activation == "swiglu",
        "disable-bias-linear": not config.linear_bias,
        "add-qkv-bias": config.qkv_bias and not config.linear_bias,
        "untie-embeddings-and-output-weights": not config.tied_embeddings,
        "qk-layernorm": config.qk_norm is not None or config.latent_attention is not None,
    }
    return ((name, "") for name, is_on in switches.items() if is_on)


def _latent(config: TransformerConfig) -> Options:
    latent = config.latent_attention
    if latent is None:
        return {}
    return {
        "multi-latent-attention": "",
        **({"q-lora-rank": str(latent.query_rank)} if latent.query_rank else {}),
        "kv-lora-rank": str(latent.key_value_rank),
        "qk-head-dim": str(config.head_dim - latent.rotary_head_dim),
        "qk-pos-emb-head-dim": str(latent.rotary_head_dim),
        "v-head-dim": str(latent.value_head_dim),
    }


def _experts(config: TransformerConfig) -> Options:
    experts = config.experts
    if experts is None:
        return {}
    found = {
        "num-experts": str(experts.number),
        "moe-router-topk": str(experts.per_token),
        "moe-ffn-hidden-size": str(experts.intermediate_size),
        "moe-grouped-gemm": "",
        "moe-token-dispatcher-type": "alltoall",
        "moe-router-load-balancing-type": _LOAD_BALANCING,
        "moe-router-score-function": experts.scoring,
        "moe-expert-capacity-factor": f"{experts.load_imbalance:g}",
        "moe-pad-expert-input-to-capacity": "",
        "moe-token-drop-policy": "probs",
    }
    if experts.is_corrected:
        found["moe-router-enable-expert-bias"] = ""
    if experts.scoring == "softmax" and experts.per_token == 1:
        found["moe-router-pre-softmax"] = ""
    if experts.groups > 1:
        found |= {"moe-router-num-groups": str(experts.groups), "moe-router-group-topk": str(experts.groups_per_token)}
    if experts.scale != 1.0:
        found["moe-router-topk-scaling-factor"] = f"{experts.scale:g}"
    if experts.normalised:
        found["norm-topk-prob"] = ""
    if experts.shared_size:
        found["n-shared-experts"] = str(experts.shared_size // experts.intermediate_size)
    if experts.shared_gate:
        found["shared-expert-gate"] = ""
    if config.dense_layers:
        found |= {"first-k-dense-replace": str(config.dense_layers), "moe-layer-freq": "1"}
    return found
