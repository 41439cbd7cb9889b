"""From a row's configuration to what `estimate` takes: a network of the zoo, a uniform layout and a run-time."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from model_zoo import config as zoo
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.bill import Part
from ms_symtensor.cost.flops import mfu
from ms_symtensor.cost.parameter import update_peak_B
from ms_symtensor.cost.plan_price import PlanBill, priced
from ms_symtensor.cost.runtime import Runtime, load
from ms_symtensor.cost.step import HCCL_BUFFER_B
from ms_symtensor.errors import InputError, SymTensorError
from ms_symtensor.program.fusion import ACCUMULATION, BIAS, LABEL_INDICES, LOSS_IN_PLACE, LOSS_IN_STEPS
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.uniform.folded import folded_bill, folded_flops
from ms_symtensor.uniform.layout import Degrees, Recomputation, Selection, Stages, UniformLayout
from ms_symtensor.uniform.request import as_run
from ms_symtensor.validation.configuration import ALL, AttentionKernel, Configuration, Transformer
from ms_symtensor.validation.dataset import UnusableRowError

TORCH_NPU_CANNOT_B = 3.4 * 2**30
"""What PyTorch cannot hand out of an Ascend device's memory: it sees 60.96 GiB of 64 GiB and is full at 60.60 GiB
(github.com/vllm-project/vllm-ascend/issues/1127); MindSpore's limit is lower, as it is set to leave room.
"""

RUNTIMES = {
    "megatron": "megatron", "mindspeed": "mindspeed", "mindspore": "mindformers_graph", "nanotron": "nanotron", "fsdp": "fsdp",
}  # fmt: skip

PADDING = 128
"""Megatron-LM pads the vocabulary to a multiple of so many rows of a tensor-parallel rank (make-vocab-size-divisible-by)."""


@dataclass(frozen=True)
class Predicted:
    """What is predicted of a row: seconds, bytes of every stage and of the first step of PyTorch, a fraction of the peak."""

    step_time_s: float
    stage_memory_B: tuple[float, ...]
    first_step_memory_B: tuple[float, ...]
    fits: bool
    mfu: float


def predict(c: Configuration, cluster: Cluster) -> Predicted:
    """The price of `c` on `cluster`.

    Raises:
        UnusableRowError: for what the network, the layouts or the run-time cannot express, by name.
    """
    bill, flops = _bill(c)
    runtime = runtime_of(c)
    found = priced(bill, cluster, runtime)
    device = cluster.device
    usable_B = device.hbm_capacity_B - TORCH_NPU_CANNOT_B if c.framework == "mindspeed" else device.hbm_usable_B
    usable_B = c.memory_limit_B or usable_B
    memory = found.memory_B
    states = [one["optimizer_states"] for one in memory]
    stores = runtime.stores
    updates = [
        0 if stores is None else update_peak_B(parameters, stores, c.optimizer_level) for parameters in bill.parameters
    ]
    at_rest = ("parameters", "gradients", "optimizer_states")
    resting = [sum(one[name] for name in at_rest) + more for one, more in zip(memory, updates, strict=True)]
    totals = [sum(one.values()) - one["buffers"] for one in memory]
    lost = [
        runtime.fragments * one["activations"] + device.communicator_B * max(0, one["buffers"] // HCCL_BUFFER_B - 1)
        for one in memory
    ]
    return Predicted(
        found.step_time_s,
        tuple(totals),
        tuple(max(total - own, rest) for total, own, rest in zip(totals, states, resting, strict=True)),
        max(total + more for total, more in zip(totals, lost, strict=True)) <= usable_B,
        mfu(flops, found.step_time_s, c.device_num, device.cube_peak_FLOPs),
    )


@lru_cache(maxsize=2048)
def _bill(c: Configuration) -> tuple[PlanBill, float]:
    """The bill of a step, and its model FLOPs."""
    try:
        network = network_of(c)
        runtime = runtime_of(c)
        bill = folded_bill(network, as_run(layout_of(c), runtime), runtime.fuses, is_lenient=True)
    except InputError as error:
        raise UnusableRowError(str(error)) from error
    except SymTensorError as error:
        raise UnusableRowError(f"MindSpore rejects the layouts: {error}") from error
    return bill, c.micro_batch_num * folded_flops(network)


def network_of(c: Configuration) -> zoo.TransformerConfig:
    """The network of one micro-batch on all devices.

    Raises:
        InputError: for dimensions that do not go together.
    """
    m = c.model
    vocabulary = PADDING * c.model_parallel
    if not c.padded_vocabulary:
        vocabulary = c.model_parallel
    latent = m.latent_attention
    routed = c.model_parallel if c.framework == "mindspore" and c.sequence_parallel else 1
    experts = m.experts and zoo.Experts(
        m.experts.num_experts,
        m.experts.top_k,
        m.experts.intermediate_size,
        shared_size=m.experts.shared_experts * m.experts.intermediate_size,
        load_imbalance=m.experts.imbalance,
        token_groups=routed * c.context_parallel,
    )
    return zoo.TransformerConfig(
        "of a row",
        hidden_size=m.hidden_size,
        num_layers=m.num_layers,
        num_heads=m.num_heads,
        n_kv_heads=m.n_kv_heads,
        intermediate_size=m.intermediate_size,
        vocab_size=-(-m.vocab_size // vocabulary) * vocabulary,
        max_position_embeddings=c.seq_length,
        norm=m.norm,
        norm_epsilon=1e-5,
        activation="geglu" if m.geglu else "swiglu" if m.gated else "gelu",
        position="rotary" if m.position == "rotary" else "learned",
        linear_bias=m.linear_bias,
        qkv_bias=m.qkv_bias,
        tied_embeddings=m.tied_embeddings,
        branch_norm="both" if m.post_norms else "before",
        logit_cap=m.logit_cap,
        kinds=_kinds(m),
        head_dim=latent.nope_head_dim + latent.rope_head_dim if latent else m.head_dim,
        experts=experts or None,
        latent_attention=_latent_sizes(c),
        second_token_weight=1.0 if m.mtp_blocks else 0.0,
        dense_layers=m.experts.dense_blocks if m.experts else 0,
        seq_length=c.seq_length,
        batch_size=c.data_parallel * c.micro_batch_size,
        attention="flash" if c.attention in (AttentionKernel.FLASH, AttentionKernel.FLASH1) else "self",
        compute_dtype=c.precision,
        param_dtype=c.stored,
    )


def _latent_sizes(c: Configuration) -> zoo.LatentSizes | None:
    latent, pads = c.model.latent_attention, c.framework == "mindspore"  # deepseek2_model.py: v_zeros, dim_slice_4d
    if latent is None:
        return None
    return zoo.LatentSizes(
        latent.query_rank, latent.kv_rank, latent.rope_head_dim, latent.value_head_dim, pads_values=pads
    )


def _kinds(m: Transformer) -> tuple[zoo.BlockKind, ...]:
    """Windows of attention: the first block of every period has one."""
    if not m.window:
        return ()
    return tuple(zoo.BlockKind(window=0 if n % m.window_period else m.window) for n in range(m.num_layers))


def layout_of(c: Configuration) -> UniformLayout:
    """How the devices share the network."""
    parts = tuple((part.value, blocks) for part, blocks in c.recomputation.parts)
    if c.framework == "mindspore" and c.model.norm == "rms_norm":
        parts += ((Selection.NORM_INPUT, (ALL,)),)  # mindformers 1.9.0, llama_layer.py: self.cast.recompute()
    # MindSpore's programs in micro-batches know no more: at level 3 the run-time does in each of them what the program does once
    # (`stage_time`).
    in_micro_batches = c.pipeline_stages * c.micro_batch_num > 1
    level = min(c.optimizer_level, OptimizerLevel.LEVEL1) if in_micro_batches else c.optimizer_level
    return UniformLayout(
        Degrees(
            c.data_parallel,
            c.model_parallel,
            c.sequence_parallel,
            c.context_parallel,
            c.expert_parallel if c.model.experts else 0,
            c.ranks_of_an_expert if c.model.experts else 0,
            exchanges_heads=c.exchanged_heads,
            cuts_embedding=not c.whole_embedding,
            gathers_logits=c.gathered_logits,
        ),
        Stages(c.pipeline_stages, c.micro_batch_num, c.interleave, c.layers_on_stage, c.head_stage),
        Recomputation(c.recomputation.blocks, parts),
        OptimizerLevel(level),
        c.optimizer_weight_shard_size,
    )


def runtime_of(c: Configuration) -> Runtime:
    """The run-time, with what the row says that it hides and fuses."""
    found = load(RUNTIMES[c.framework])
    if c.framework == "mindspore":
        return found
    hidden: Mapping[Part, bool] = {
        Part.GRADIENTS: c.overlap_gradients and c.data_parallel * c.context_parallel > 1,
        Part.WEIGHTS: c.overlap_weights,
        Part.TENSOR: c.overlap_tensors,
    }
    fuses = set(found.fuses)
    fuses = fuses | {"Norm"} if c.fused_norm else fuses - {"Norm"}
    fuses = fuses | {ACCUMULATION} if c.fused_gradient_sums else fuses - {ACCUMULATION}
    if c.loss != "in_place":
        fuses -= {LOSS_IN_PLACE, *((LABEL_INDICES, LOSS_IN_STEPS) if c.loss == "torch" else ())}
    if not c.fused_layers:
        fuses -= {"RotaryEmbedding", "GatedFeedForward", "FeedForward", BIAS}
    if c.attention is AttentionKernel.PLAIN:
        fuses.discard("CoreAttention")
    if c.model.geglu:
        fuses.discard("GatedFeedForward")
    if c.compiled:
        fuses |= {"Norm", "RotaryEmbedding", "GatedFeedForward", "FeedForward", "CrossEntropy", "bias"}
    update = found.stores.update if found.stores is not None else 0
    stores = replace(c.bytes_per_parameter, level=c.optimizer_level, update=update)
    return replace(found.hiding(hidden), fuses=frozenset(fuses), stores=stores, is_blocking=c.blocking_launches)
