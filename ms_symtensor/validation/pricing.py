"""From a row's configuration to what `estimate` takes: a network of the zoo, a uniform layout and a run-time."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from model_zoo.config import TransformerConfig
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
from ms_symtensor.uniform.layout import Degrees, Selection, Stages, UniformLayout
from ms_symtensor.uniform.request import as_run
from ms_symtensor.validation.configuration import AttentionKernel, Configuration, PlannedRun, Step, in_parts
from ms_symtensor.validation.dataset import UnusableRowError

TORCH_NPU_CANNOT_B = 3.4 * 2**30
"""What PyTorch cannot hand out of an Ascend device's memory: it sees 60.96 GiB of 64 GiB and is full at 60.60 GiB
(github.com/vllm-project/vllm-ascend/issues/1127); MindSpore's limit is lower, as it is set to leave room.
"""

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


def predict(c: Step, cluster: Cluster) -> Predicted:
    """The price of `c` on `cluster`.

    Raises:
        UnusableRowError: for what the network, the layouts or the run-time cannot express, by name.
    """
    bill, runtime, flops = (c.bill, c.runtime, c.flops) if isinstance(c, PlannedRun) else _bill(c)
    found, device = priced(bill, cluster, runtime), cluster.device
    usable_B: float = device.hbm_usable_B
    if isinstance(c, Configuration):
        usable_B = c.memory_limit_B or (
            device.hbm_capacity_B - TORCH_NPU_CANNOT_B if c.framework == "mindspeed" else usable_B
        )
    peaks, first_peaks, taken = [], [], []
    for memory, stage in zip(found.memory_B, bill.stages, strict=True):
        peaks.append(sum(memory.values()) - memory["buffers"])
        resting = memory["parameters"] + memory["gradients"] + memory["optimizer_states"]
        if runtime.stores is not None:
            level = stage.settings.optimizer_level if runtime.stores.level is None else runtime.stores.level
            resting += update_peak_B(stage.parameters, runtime.stores, level)
        first_peaks.append(max(peaks[-1] - memory["optimizer_states"], resting))
        more_communicators = max(0, memory["buffers"] // HCCL_BUFFER_B - 1)
        lost = runtime.fragments * memory["activations"] + device.communicator_B * more_communicators
        taken.append(peaks[-1] + lost)
    return Predicted(
        found.step_time_s,
        tuple(peaks),
        tuple(first_peaks),
        max(taken) <= usable_B,
        mfu(flops, found.step_time_s, c.device_num, device.cube_peak_FLOPs),
    )


@lru_cache(maxsize=2048)
def _bill(c: Configuration) -> tuple[PlanBill, Runtime, float]:
    """The bill of a step, the run-time that it is priced under, and its model FLOPs."""
    try:
        network, runtime = network_of(c), runtime_of(c)
        bill = folded_bill(network, as_run(layout_of(c), runtime), runtime.fuses, is_lenient=True)
    except InputError as error:
        raise UnusableRowError(str(error)) from error
    except SymTensorError as error:
        raise UnusableRowError(f"MindSpore rejects the layouts: {error}") from error
    return bill, runtime, c.micro_batch_num * folded_flops(network)


def network_of(c: Configuration) -> TransformerConfig:
    """The network of one micro-batch on all devices.

    Raises:
        InputError: for dimensions that do not go together.
    """
    m, is_mindspore = c.model, c.framework == "mindspore"
    rows = c.model_parallel * (PADDING if c.padded_vocabulary else 1)
    routed = c.model_parallel if is_mindspore and c.sequence_parallel else 1
    return replace(
        m,
        vocab_size=-(-m.vocab_size // rows) * rows,
        max_position_embeddings=c.seq_length,
        seq_length=c.seq_length,
        batch_size=c.data_parallel * c.micro_batch_size,
        attention="flash" if c.attention in (AttentionKernel.FLASH, AttentionKernel.FLASH1) else "self",
        compute_dtype=c.precision,
        param_dtype=c.stored,
        experts=m.experts and replace(m.experts, token_groups=routed * c.context_parallel, by_sample=True),
        # deepseek2_model.py: v_zeros, dim_slice_4d
        latent_attention=m.latent_attention and replace(m.latent_attention, pads_values=is_mindspore),
    )


def layout_of(c: Configuration) -> UniformLayout:
    """How the devices share the network."""
    parts = c.recomputation.parts
    if c.framework == "mindspore" and c.model.norm == "rms_norm":
        parts += in_parts(Selection.NORM_INPUT)  # mindformers 1.9.0, llama_layer.py: self.cast.recompute()
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
        replace(c.recomputation, parts=parts),
        OptimizerLevel(level),
        c.optimizer_weight_shard_size,
    )


def runtime_of(c: Configuration) -> Runtime:
    """The run-time, with what the row says that it hides and fuses."""
    if c.framework == "mindspore":
        return load("mindformers_graph")
    found = load(c.framework)
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
    if c.model.activation == "geglu":
        fuses.discard("GatedFeedForward")
    if c.compiled:
        fuses |= {"Norm", "RotaryEmbedding", "GatedFeedForward", "FeedForward", "CrossEntropy", "bias"}
    update = found.stores.update if found.stores is not None else 0
    stores = replace(c.bytes_per_parameter, level=c.optimizer_level, update=update)
    return replace(found.hiding(hidden), fuses=frozenset(fuses), stores=stores, is_blocking=c.blocking_launches)
