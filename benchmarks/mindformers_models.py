"""MindFormers' own networks with small dims, as its files say for training: `NETWORKS[name](layers, data, tensor)`.

Each is its cell with the loss, and inputs without values, on data x tensor parallelism with sequence parallelism. Experts lie on
the data axis. `build_mf_context` tells MindFormers to build the networks of its newer core (Morphs with collectives inside).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

TOKENS, BATCH, HIDDEN, HEADS, INNER, VOCABULARY, EXPERTS = 1024, 4, 1024, 8, 2816, 32000, 8
Network = tuple[Any, tuple[Any, ...]]


def llama(layers: int, data: int, tensor: int, experts: int = 1) -> Network:
    """Llama of ordinary primitives; with several experts capacity and dropping (TopkRouterV2)."""
    from mindformers.models.llama import LlamaConfig, LlamaForCausalLM
    from mindformers.modules.transformer.moe import MoEConfig

    routed: dict[str, Any] = {}
    if experts > 1:
        routed["moe_config"] = MoEConfig(
            expert_num=experts, capacity_factor=1.1, aux_loss_factor=0.05, routing_policy="TopkRouterV2", num_experts_chosen=2,
            enable_sdrop=True,
        )  # fmt: skip
    config = LlamaConfig(
        batch_size=BATCH, seq_length=TOKENS, hidden_size=HIDDEN, num_layers=layers, num_heads=HEADS,
        vocab_size=VOCABULARY, intermediate_size=INNER, compute_dtype="bfloat16", param_init_type="float32",
        use_flash_attention=True, input_sliced_sig=False,
        parallel_config=_parallel(data, tensor, data if experts > 1 else 1), **routed,
    )  # fmt: skip
    return LlamaForCausalLM(config), _tokens(1, 1)


def glm(layers: int, data: int, tensor: int, use_flash_attention: bool = True) -> Network:
    """ChatGLM of ordinary primitives: grouped heads, half of each rotated."""
    from mindformers.models.glm2 import ChatGLM2Config, ChatGLM2ForConditionalGeneration

    config = ChatGLM2Config(
        batch_size=BATCH, num_layers=layers, padded_vocab_size=VOCABULARY, hidden_size=HIDDEN, ffn_hidden_size=INNER,
        kv_channels=HIDDEN // HEADS, num_attention_heads=HEADS, seq_length=TOKENS, multi_query_group_num=HEADS // 2,
        param_init_type="float32", compute_dtype="bfloat16", rotary_dtype="float32", mlp_concat=False, qkv_concat=False,
        use_flash_attention=use_flash_attention, parallel_config=_parallel(data, tensor),
    )  # fmt: skip
    return ChatGLM2ForConditionalGeneration(config), _tokens(2)


def qwen3(layers: int, data: int, tensor: int) -> Network:
    """Qwen3 of Morphs with collectives inside."""
    from mindformers.models.qwen3.configuration_qwen3 import Qwen3Config
    from mindformers.models.qwen3.modeling_qwen3_train import TrainingQwen3ForCausalLM

    return _of_core(TrainingQwen3ForCausalLM, Qwen3Config, layers, data, tensor, head_dim=HIDDEN // HEADS)


def telechat3(layers: int, data: int, tensor: int) -> Network:
    """TeleChat3 of Morphs with collectives inside."""
    from mindformers.models.telechat3.configuration_telechat3 import TeleChat3Config
    from mindformers.models.telechat3.modeling_telechat3_train import TrainingTeleChat3ForCausalLM

    return _of_core(TrainingTeleChat3ForCausalLM, TeleChat3Config, layers, data, tensor, head_dim=HIDDEN // HEADS)


def qwen3_moe(layers: int, data: int, tensor: int) -> Network:
    """Qwen3 with experts: tokens exchanged by AlltoAllV, products of groups (GroupedMatmul), nothing dropped."""
    from mindformers.models.qwen3_moe.configuration_qwen3_moe import Qwen3MoeConfig
    from mindformers.models.qwen3_moe.modeling_qwen3_moe_train import TrainingQwen3MoeForCausalLM

    return _of_core(
        TrainingQwen3MoeForCausalLM, Qwen3MoeConfig, layers, data, tensor, head_dim=HIDDEN // HEADS, num_experts=EXPERTS,
        num_experts_per_tok=2, moe_intermediate_size=256,
        others={**ROUTED, "first_k_dense_replace": 0, "moe_router_topk_scaling_factor": 1.0},
    )  # fmt: skip


def deepseek3(layers: int, data: int, tensor: int) -> Network:
    """DeepSeek-V3: latent attention, one dense layer, experts as above with biased routing, prediction of a second token."""
    from mindformers.models.deepseek3.configuration_deepseek_v3 import DeepseekV3Config
    from mindformers.models.deepseek3.modeling_deepseek_v3_train import TrainingDeepseekV3ForCausalLM

    others = {
        **ROUTED, "multi_latent_attention": True, "mla_qkv_concat": False, "qk_layernorm": True, "use_flash_attention": True,
        "mtp_loss_factor": 0.3, "apply_rope_fusion": False, "bias_swiglu_fusion": False, "use_fused_ops_topkrouter": False,
        "use_pad_tokens": False, "moe_router_load_balancing_type": "seq_aux_loss", "moe_aux_loss_coeff": 1e-4,
        "moe_router_enable_expert_bias": True, "moe_router_bias_update_rate": 1e-4, "add_bias_linear": False,
    }  # fmt: skip
    return _of_core(
        TrainingDeepseekV3ForCausalLM, DeepseekV3Config, layers, data, tensor, n_routed_experts=EXPERTS, num_experts_per_tok=2,
        moe_intermediate_size=256, n_group=1, topk_group=1, first_k_dense_replace=1, num_nextn_predict_layers=1, q_lora_rank=256,
        kv_lora_rank=128, qk_nope_head_dim=64, qk_rope_head_dim=64, v_head_dim=64, others=others,
    )  # fmt: skip


NETWORKS: dict[str, Callable[[int, int, int], Network]] = {
    "llama": llama,
    "llama_experts": partial(llama, experts=EXPERTS),
    "glm": glm,
    "glm_self_attention": partial(glm, use_flash_attention=False),
    "qwen3": qwen3,
    "telechat3": telechat3,
    "qwen3_moe": qwen3_moe,
    "deepseek3": deepseek3,
}

COMMON = {
    "params_dtype": "float32", "compute_dtype": "bfloat16", "layernorm_compute_dtype": "float32",
    "softmax_compute_dtype": "float32", "rotary_dtype": "float32", "fp32_residual_connection": True,
    "hidden_dropout": 0.0, "qkv_concat": True, "input_sliced_sig": True, "offset": 0,
    "untie_embeddings_and_output_weights": True, "position_embedding_type": "rope",
    "use_contiguous_weight_layout_attention": False,
}  # fmt: skip
ROUTED = {
    "moe_grouped_gemm": True, "router_dense_type": "float32", "moe_token_dispatcher_type": "alltoall",
    "moe_token_drop_policy": False, "gated_linear_unit": True,
}  # fmt: skip


def _of_core(
    model: Any,
    config_class: Any,
    layers: int,
    data: int,
    tensor: int,
    others: dict[str, Any] | None = None,
    **dims: Any,
) -> Network:
    """A network of MindFormers' newer core; its loss is divided as its training step does."""
    import mindspore
    from mindformers.core.context.build_context import build_mf_context

    build_mf_context({"use_legacy": False, "context": {}, "parallel": {}, "run_mode": "train"})
    config = config_class(
        batch_size=BATCH, seq_length=TOKENS, max_position_embeddings=TOKENS, hidden_size=HIDDEN,
        num_hidden_layers=layers, num_attention_heads=HEADS, num_key_value_heads=HEADS, vocab_size=VOCABULARY,
        intermediate_size=INNER, tie_word_embeddings=False, **dims,
    )  # fmt: skip
    parallel = _parallel(data, tensor, data if others else 1)
    for name, value in {**COMMON, **(others or {}), "parallel_config": parallel}.items():
        setattr(config, name, value)

    class Loss(mindspore.nn.Cell):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network, self.divide = model(config), mindspore.ops.RealDiv()

        def construct(self, ids: Any, labels: Any, mask: Any) -> Any:
            total, count = self.network(ids, None, None, None, labels, None, None, mask)
            return self.divide(total, count)

    return Loss(), _tokens(3)


def _parallel(data: int, tensor: int, expert: int = 1) -> Any:
    from mindformers.modules.transformer import TransformerOpParallelConfig

    return TransformerOpParallelConfig(
        data_parallel=data, model_parallel=tensor, expert_parallel=expert, use_seq_parallel=True
    )


def _tokens(number: int, more: int = 0) -> tuple[Any, ...]:
    import mindspore

    return (mindspore.Tensor(shape=(BATCH, TOKENS + more), dtype=mindspore.int32),) * number
