"""Step time and peak memory of configurations on a cluster, all of them at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.configuration import Configuration
from ms_symtensor.cost.groups import Groups
from ms_symtensor.cost.network import Network
from ms_symtensor.cost.place_time import PlaceKernels, kernels_of, place_seconds
from ms_symtensor.cost.shapes import Array, Shapes, shapes_of
from ms_symtensor.cost.timeline import StepSeconds, step_seconds, with_retries
from ms_symtensor.cost.training_memory import StageBytes, stage_bytes
from ms_symtensor.cost.work import Place

TORCH_NPU_CANNOT_B = 3.4 * 2**30
"""What PyTorch cannot hand out of an Ascend device's memory: it sees 60.96 GiB of 64 GiB and is full at 60.60 GiB
(github.com/vllm-project/vllm-ascend/issues/1127); MindSpore's limit is lower, as it is set to leave room.
"""


@dataclass(frozen=True)
class Predictions:
    """One entry per configuration, in the order given.

    `peak_memory_B`: of the fullest stage; `stage_memory_B`: of every stage; `first_step_memory_B`: as that, in the first step
    under PyTorch. `fits`: whether what the allocator reserves is within what the framework can use. `mfu`: of the peak, the
    share that the floating-point operations of a step take, recomputation and dropped work not counted (6 per parameter and
    token, 12 per layer, hidden width and token of the sequence; arXiv 2204.02311, appendix B).
    """

    step_time_s: Array
    peak_memory_B: Array
    stage_memory_B: Array
    first_step_memory_B: Array
    fits: NDArray[np.bool_]
    mfu: Array
    seconds: StepSeconds
    bytes: StageBytes


def predict(configurations: Sequence[Configuration], cluster: Cluster) -> Predictions:
    """Predictions for `configurations` on `cluster`."""
    configurations = tuple(configurations)
    network, groups, kernels = _prepared(configurations)
    places = tuple(place_seconds(place, network.shapes, groups, cluster) for place in kernels)
    seconds = step_seconds(network, places, groups, cluster)
    memory = _memory(configurations)
    total = memory.total_B
    peak = total.max(axis=1)
    reserved = memory.reserved_B.max(axis=1)
    usable = usable_B(network.shapes, cluster)
    seconds = with_retries(seconds, network.shapes.eager * network.shapes.micro_batches, memory, usable, cluster)
    flops = np.array([model_flops(c) for c in configurations])
    devices = network.shapes.column(lambda c: c.device_num)
    mfu = flops / (seconds.step_time_s * devices * cluster.device.cube_peak_FLOPs)
    return Predictions(
        seconds.step_time_s,
        peak,
        total,
        memory.first_step_B,
        reserved <= usable,
        mfu,
        seconds,
        memory,
    )


def usable_B(shapes: Shapes, cluster: Cluster) -> Array:
    """What is left for tensors: every kind of parallelism has a communicator, of which the first is in `hbm_usable_B`."""
    communicators = sum((degree > 1).astype(float) for degree in (shapes.tp, shapes.cp, shapes.dp, shapes.pp))
    device = cluster.device
    whole = np.where(shapes.mindspeed > 0, device.hbm_capacity_B - TORCH_NPU_CANNOT_B, device.hbm_usable_B)
    left: Array = whole - device.communicator_B * np.maximum(communicators - 1, 0)
    return left


@lru_cache(maxsize=16)
def _prepared(configurations: tuple[Configuration, ...]) -> tuple[Network, Groups, tuple[PlaceKernels, ...]]:
    """What does not depend on the cluster's numbers, kept for the next call with other ones."""
    network, groups = Network(shapes_of(configurations)), Groups(configurations)
    places = (
        place if count.any() else Place(place.name, ())
        for place, count in zip(network.places, network.counts, strict=True)
    )
    return network, groups, tuple(kernels_of(place, groups) for place in places)


@lru_cache(maxsize=16)
def _memory(configurations: tuple[Configuration, ...]) -> StageBytes:
    return stage_bytes(_prepared(configurations)[0])


def model_flops(c: Configuration) -> float:
    """FLOPs of one step that the model needs, whatever is computed twice or left out."""
    m = c.model
    latent = m.latent_attention
    key = latent.nope_head_dim + latent.rope_head_dim if latent else m.head_dim
    value = latent.value_head_dim if latent else m.head_dim
    if latent:
        query = m.hidden_size * latent.query_rank + latent.query_rank * m.num_heads * key
        query = query if latent.query_rank else m.hidden_size * m.num_heads * key
        keys = m.hidden_size * (latent.kv_rank + latent.rope_head_dim)
        keys += latent.kv_rank * m.num_heads * (latent.nope_head_dim + value)
    else:
        query, keys = m.hidden_size * m.num_heads * key, 2 * m.hidden_size * m.n_kv_heads * key
    attention = query + keys + m.num_heads * value * m.hidden_size
    matrices = 3 if m.gated else 2
    dense = matrices * m.hidden_size * m.intermediate_size
    blocks = m.num_layers + m.mtp_blocks
    dense_blocks, routed = blocks, 0.0
    if m.experts is not None:
        e = m.experts
        dense_blocks = e.dense_blocks
        routed = m.hidden_size * e.num_experts
        routed += matrices * m.hidden_size * e.intermediate_size * (e.top_k + e.shared_experts)
    weights = blocks * attention + dense_blocks * dense + (blocks - dense_blocks) * routed
    weights += (1 + m.mtp_blocks) * m.hidden_size * m.vocab_size
    scores = 6 * blocks * c.seq_length * m.num_heads * (key + value)
    return float(c.tokens) * (6.0 * weights + scores)
