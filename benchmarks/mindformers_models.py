"""MindFormers' own networks with small dims, as its files say for training: `NETWORKS[name](layers, degrees)`.

Each is its cell with the loss, and inputs of a step without values, under hand strategies of these degrees. `build_mf_context`
tells MindFormers to build the networks of its newer core (Morphs with collectives inside).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

TOKENS, BATCH, HIDDEN, HEADS, INNER, VOCABULARY, EXPERTS = 1024, 8, 1024, 8, 2816, 32000, 8
Network = tuple[Any, tuple[Any, ...]]


@dataclass(frozen=True)
class Degrees:
    """Degrees of parallelism as MindFormers has them. `sequence`: tokens are cut over the tensor axis, too. `recompute`: its
    `recompute_config`. `micro_batch_num`: more than 1 with stages. `dispatcher`: how tokens get to their experts.
    """

    data: int = 1
    tensor: int = 1
    context: int = 1
    context_method: str = "colossalai_cp"
    expert: int = 1
    stages: int = 1
    micro_batch_num: int = 1
    sequence: bool = True
    recompute: Mapping[str, Any] = field(default_factory=dict)
    dispatcher: str = "alltoall"

    @property
    def device_num(self) -> int:
        return self.data * self.tensor * self.context * self.stages


def llama(layers: int, degrees: Degrees, experts: int = 1) -> Network:
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
        parallel_config=_parallel(degrees), **routed,
    )  # fmt: skip
    return _in_micro_batches(LlamaForCausalLM(config), degrees), _tokens(degrees, 1, 1)


def glm(layers: int, degrees: Degrees, use_flash_attention: bool = True) -> Network:
    """ChatGLM of ordinary primitives: grouped heads, half of each rotated."""
    from mindformers.models.glm2 import ChatGLM2Config, ChatGLM2ForConditionalGeneration

    config = ChatGLM2Config(
        batch_size=BATCH, num_layers=layers, padded_vocab_size=VOCABULARY, hidden_size=HIDDEN, ffn_hidden_size=INNER,
        kv_channels=HIDDEN // HEADS, num_attention_heads=HEADS, seq_length=TOKENS, multi_query_group_num=HEADS // 2,
        param_init_type="float32", compute_dtype="bfloat16", rotary_dtype="float32", mlp_concat=False, qkv_concat=False,
        use_flash_attention=use_flash_attention, parallel_config=_parallel(degrees),
    )  # fmt: skip
    return _in_micro_batches(ChatGLM2ForConditionalGeneration(config), degrees), _tokens(degrees, 2)


def qwen3(layers: int, degrees: Degrees) -> Network:
    """Qwen3 of Morphs with collectives inside."""
    from mindformers.models.qwen3.configuration_qwen3 import Qwen3Config
    from mindformers.models.qwen3.modeling_qwen3_train import TrainingQwen3ForCausalLM

    return _of_core(TrainingQwen3ForCausalLM, Qwen3Config, layers, degrees, head_dim=HIDDEN // HEADS)


def telechat3(layers: int, degrees: Degrees) -> Network:
    """TeleChat3 of Morphs with collectives inside."""
    from mindformers.models.telechat3.configuration_telechat3 import TeleChat3Config
    from mindformers.models.telechat3.modeling_telechat3_train import TrainingTeleChat3ForCausalLM

    return _of_core(TrainingTeleChat3ForCausalLM, TeleChat3Config, layers, degrees, head_dim=HIDDEN // HEADS)


def qwen3_moe(layers: int, degrees: Degrees) -> Network:
    """Qwen3 with experts: tokens exchanged by AlltoAllV, products of groups (GroupedMatmul), nothing dropped."""
    from mindformers.models.qwen3_moe.configuration_qwen3_moe import Qwen3MoeConfig
    from mindformers.models.qwen3_moe.modeling_qwen3_moe_train import TrainingQwen3MoeForCausalLM

    return _of_core(
        TrainingQwen3MoeForCausalLM, Qwen3MoeConfig, layers, degrees, head_dim=HIDDEN // HEADS, num_experts=EXPERTS,
        num_experts_per_tok=2, moe_intermediate_size=256,
        others={**ROUTED, "first_k_dense_replace": 0, "moe_router_topk_scaling_factor": 1.0},
    )  # fmt: skip


def deepseek3(layers: int, degrees: Degrees) -> Network:
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
        TrainingDeepseekV3ForCausalLM, DeepseekV3Config, layers, degrees, n_routed_experts=EXPERTS, num_experts_per_tok=2,
        moe_intermediate_size=256, n_group=1, topk_group=1, first_k_dense_replace=1, num_nextn_predict_layers=1, q_lora_rank=256,
        kv_lora_rank=128, qk_nope_head_dim=64, qk_rope_head_dim=64, v_head_dim=64, others=others,
    )  # fmt: skip


NETWORKS: dict[str, Callable[[int, Degrees], Network]] = {
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
    degrees: Degrees,
    others: dict[str, Any] | None = None,
    **dims: Any,
) -> Network:
    """A network of MindFormers' newer core; its losses are added up as its training step does (`grads_for_mcore`)."""
    import mindspore
    from mindformers.core.context.build_context import build_mf_context

    build_mf_context({"use_legacy": False, "context": {}, "parallel": {}, "run_mode": "train"})
    config = config_class(
        batch_size=BATCH, seq_length=TOKENS, max_position_embeddings=TOKENS, hidden_size=HIDDEN,
        num_hidden_layers=layers, num_attention_heads=HEADS, num_key_value_heads=HEADS, vocab_size=VOCABULARY,
        intermediate_size=INNER, tie_word_embeddings=False, **dims,
    )  # fmt: skip
    routed = {**others, "moe_token_dispatcher_type": degrees.dispatcher, "npu_nums_per_device": 2} if others else {}
    for name, value in {**COMMON, **routed, "parallel_config": _parallel(degrees)}.items():
        setattr(config, name, value)

    class Loss(mindspore.nn.Cell):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = model(config)

        def construct(self, ids: Any, labels: Any, mask: Any) -> Any:
            loss, second, balancing, indexer = self.network(ids, None, None, None, labels, None, None, mask)
            return loss + balancing + indexer + second

    return _in_micro_batches(Loss(), degrees), _tokens(degrees, 3)


def _in_micro_batches(network: Any, degrees: Degrees) -> Any:
    """As MindFormers' trainer wraps a network."""
    from mindspore import nn

    return network if degrees.micro_batch_num == 1 else nn.PipelineCell(network, degrees.micro_batch_num)


def _parallel(degrees: Degrees) -> Any:
    from mindformers.modules.transformer import TransformerOpParallelConfig

    return TransformerOpParallelConfig(
        data_parallel=degrees.data, model_parallel=degrees.tensor, context_parallel=degrees.context,
        context_parallel_algo=degrees.context_method, expert_parallel=degrees.expert, pipeline_stage=degrees.stages,
        micro_batch_num=degrees.micro_batch_num, use_seq_parallel=degrees.sequence and degrees.tensor > 1,
        recompute=dict(degrees.recompute),
    )  # fmt: skip


def _tokens(degrees: Degrees, number: int, more: int = 0) -> tuple[Any, ...]:
    import mindspore

    return (mindspore.Tensor(shape=(BATCH * degrees.micro_batch_num, TOKENS + more), dtype=mindspore.int32),) * number
