"""The time of a training step from the places' seconds: pipeline, gradient sums, optimizer.

A stage takes t_i for one micro-batch, forward and backward, with M micro-batches and v chunks of blocks per stage:

    T_pipeline = M · max_i t_i + (Σ_i t_i - max_i t_i) / v                    (1F1B, interleaved if v > 1; arXiv 2104.04473)

Stage i is done with its last backward pass Σ_{j<i} t_j,backward / v before the pipeline is, and then waits for what is left of
its gradients' sums, updates its parameters and gathers those that are sharded:

    T = max_i (T_pipeline - Σ_{j<i} t_j,backward / v + exposed sums_i + optimizer_i + exposed gathers_i)

Sums that run under the backward pass of the last micro-batch are hidden up to its length, but slow it down.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ms_symtensor.cluster.hccl import Collective
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.groups import Groups
from ms_symtensor.cost.network import Network
from ms_symtensor.cost.place_time import PlaceSeconds, exposed
from ms_symtensor.cost.shapes import Array
from ms_symtensor.cost.sharing import optimizer_shards, part_share, recomputed_share
from ms_symtensor.cost.training_memory import StageBytes
from ms_symtensor.program.settings import OptimizerLevel

TRANSFER_LAUNCHES = 4
"""empirical: shape and buffer of what comes, a send and a receive; that much of the host's time is not hidden."""

RETRY_S = 0.5
RETRY_EXCESS = 0.1
"""empirical: to free and to allocate the cache of a whole device again takes a fraction of a second; if so much more is wanted
than there is, every micro-batch does it.
"""

BUCKET_B = 25 * 2**20
"""torch.nn.parallel.DistributedDataParallel, bucket_cap_mb."""

MEGATRON_BUCKET_B = 40e6 * 4
"""Megatron-LM, distributed_data_parallel_config.py: bucket_size of at least 40e6 parameters, in float32."""

TENSORS_OF_A_BLOCK = 6
"""Fused query, key and value, output, gate and up, down, two norms."""

AT_ONCE = 4
"""empirical: of the collectives of one coalesced call, NCCL's channels work on so many at the same time."""


@dataclass(frozen=True)
class StepSeconds:
    """Seconds of a step, and what they are spent on: arrays with one entry per configuration.

    `compute_s`, `communication_s` (collectives inside blocks), `recompute_s` and `transfer_s` (between stages) are those of the
    slowest stage in all its micro-batches; `bubble_s` the rest of the pipeline; `gradient_s` what of gradients' sums and
    weights' gathers is not hidden.
    """

    step_time_s: Array
    compute_s: Array
    communication_s: Array
    recompute_s: Array
    transfer_s: Array
    bubble_s: Array
    gradient_s: Array
    optimizer_s: Array


def step_seconds(network: Network, places: Sequence[PlaceSeconds], groups: Groups, cluster: Cluster) -> StepSeconds:
    """The step of every configuration."""
    s = network.shapes
    forward = network.on_stages(tuple(p.forward.time_s for p in places))
    backward = network.on_stages(tuple(p.backward.time_s for p in places))
    sent = network.on_stages(tuple(p.forward.communication_s + p.backward.communication_s for p in places))
    again = _again_s(network, places)
    transfer = _transfer_s(network, groups, cluster)
    each = forward + backward + again + transfer
    slowest = each.argmax(axis=1)
    rows = np.arange(len(s.of))
    pace, total = each[rows, slowest], each.sum(axis=1)
    m = s.micro_batches
    pipeline = m * pace + (total - pace) / s.chunks
    behind = (backward + again + transfer / 2) / s.chunks[:, None]
    done = pipeline[:, None] - (np.cumsum(behind, axis=1) - behind)
    gradients = _gradients_s(network, groups, cluster, (backward + again) / s.chunks[:, None])
    optimizer = _optimizer_s(network, cluster)
    ends = np.where(network.exists > 0, done + gradients + optimizer, 0.0)
    last = ends.argmax(axis=1)
    step = ends[rows, last]
    communication, recompute, between = m * sent[rows, slowest], m * again[rows, slowest], m * transfer[rows, slowest]
    return StepSeconds(
        step,
        m * pace - communication - recompute - between,
        communication,
        recompute,
        between,
        done[rows, last] - m * pace,
        gradients[rows, last],
        optimizer[rows, last],
    )


def with_retries(
    seconds: StepSeconds, micro_batches: Array, bytes_: StageBytes, usable_B: Array, cluster: Cluster
) -> StepSeconds:
    """`seconds` where PyTorch's allocator finds no room for its fragments alone in `usable_B`: it then gives its cache back and
    asks again in every micro-batch.
    """
    wanted_B = (bytes_.total_B + bytes_.fragments_B / 2).max(axis=1)  # fragments as they are on average
    excess = np.clip(wanted_B / usable_B - 1, 0.0, RETRY_EXCESS) / RETRY_EXCESS
    runs = bytes_.total_B.max(axis=1) <= cluster.device.hbm_capacity_B  # otherwise it is out of memory
    retries = np.where(runs, micro_batches * excess * RETRY_S, 0.0)
    return replace(seconds, step_time_s=seconds.step_time_s + retries, compute_s=seconds.compute_s + retries)


def _again_s(network: Network, places: Sequence[PlaceSeconds]) -> Array:
    nothing = np.zeros(len(network.shapes.of))
    _, *blocks, _ = places

    def on_stages(each: Iterable[Array]) -> Array:
        return network.on_stages((nothing, *each, nothing))

    again = recomputed_share(network) * on_stages(p.again_s for p in blocks)
    for part in blocks[0].parts:
        again += part_share(network, part) * on_stages(p.parts[part] for p in blocks)
    return again


def _transfer_s(network: Network, groups: Groups, cluster: Cluster) -> Array:
    """Activations to the next stage and gradients to the one before, once per chunk and micro-batch, each sent and received
    by an eager host that waits for them.
    """
    s = network.shapes
    one = groups.seconds(cluster, Collective.SEND, "pp", s.norm_tokens * s.hidden * s.element_B)
    launches_s = s.eager * TRANSFER_LAUNCHES * cluster.device.host_overhead_s
    both = np.where(s.pp > 1, 2 * s.chunks * (one + launches_s), 0.0)
    return both[:, None] * network.exists


def _gradients_s(network: Network, groups: Groups, cluster: Cluster, window: Array) -> Array:
    """What is left of the sums of gradients and the gathers of weights when nothing can hide them any more."""
    s = network.shapes
    sharded = s.where(lambda c: c.optimizer_level is not OptimizerLevel.NONE)
    gradient_B, weight_B = (
        s.column(lambda c, name=name: getattr(c.bytes_per_parameter, name))[:, None]  # type: ignore[misc]
        for name in ("gradient", "weight")
    )
    # MindSpore casts weights before it gathers them (frontend/parallel/step_parallel_utils.cc, InsertAllGatherAfterCast).
    weight_B = np.where(s.mindspore[:, None] > 0, s.element_B[:, None], weight_B)
    shared = network.on_stages(tuple(e.shared for e in network.elements))
    experts = network.on_stages(tuple(e.of_experts for e in network.elements))
    summed, gathered = np.zeros((2, *shared.shape))
    for elements, group, parts in (
        (shared, "dp", _messages(network, shared * gradient_B)),
        (experts, "expert_dp", np.ones(shared.shape)),
    ):
        if not elements.any():
            continue

        def seconds(kind: Collective, size_B: Array, group: str = group, parts: Array = parts) -> Array:
            return parts * groups.seconds(cluster, kind, group, size_B / parts)

        whole = seconds(Collective.ALL_REDUCE, elements * gradient_B)
        scattered = seconds(Collective.REDUCE_SCATTER, elements * gradient_B)
        gather = seconds(Collective.ALL_GATHER, elements * weight_B)
        cut = sharded[:, None] > 0
        summed += np.where(elements > 0, np.where(cut, scattered, whole), 0.0)
        gathered += np.where((elements > 0) & cut, gather, 0.0)
    hides_sums = s.where(lambda c: c.overlap_gradients)[:, None]
    hides_gathers = s.where(lambda c: c.overlap_weights)[:, None]
    tied = s.where(lambda c: c.model.tied_embeddings and c.pipeline_stages > 1)
    table = tied * groups.seconds(cluster, Collective.ALL_REDUCE, "pp", s.vocabulary * s.hidden * gradient_B[:, 0])
    left = exposed(summed, hides_sums * window) + exposed(gathered, hides_gathers * window / 2)
    # At level 3 every micro-batch gathers weights forward and again backward, and scatters gradients beside that
    # (torch.distributed.fsdp; MindSpore's level3 has one micro-batch).
    forward = exposed(gathered, hides_gathers * window / 2)
    backward = exposed(gathered + summed, np.minimum(hides_gathers, hides_sums) * window)
    each = s.micro_batches[:, None] * (forward + backward)
    left = np.where(s.column(lambda c: c.optimizer_level)[:, None] == OptimizerLevel.LEVEL3, each, left)
    left[:, 0] += table
    return left


def _messages(network: Network, size_B: Array) -> Array:
    """In how many collectives the gradients of a stage are summed: [configurations, stages].

    nanotron's ZeRO hands over all tensors in one coalesced call (src/nanotron/optim/zero.py), others take buckets: PyTorch's of
    25 MB, Megatron's of 40e6 parameters if they overlap with the backward pass, otherwise all in one.
    """
    s = network.shapes
    tensors = (TENSORS_OF_A_BLOCK * network.counts[1:3].sum(axis=0) + 1) / AT_ONCE
    pytorch = s.where(lambda c: c.framework in ("nanotron", "fsdp"))[:, None] > 0
    sharded = s.where(lambda c: c.optimizer_level is not OptimizerLevel.NONE)[:, None] > 0
    overlaps = s.where(lambda c: c.overlap_gradients and c.framework in ("megatron", "mindspeed"))[:, None] > 0
    buckets = np.where(pytorch, size_B / BUCKET_B, np.where(overlaps, size_B / MEGATRON_BUCKET_B, 1.0))
    found: Array = np.maximum(1.0, np.where(pytorch & sharded, tensors, np.ceil(buckets)))
    return found


def _optimizer_s(network: Network, cluster: Cluster) -> Array:
    """One pass over gradients, master weights and moments, one more over the gradients for their norm."""
    s = network.shapes
    kept = s.column(
        lambda c: 2 * (c.bytes_per_parameter.master + c.bytes_per_parameter.states) + c.bytes_per_parameter.weight
    )
    gradient = s.column(lambda c: 2 * c.bytes_per_parameter.gradient)
    traffic = kept + gradient
    shards, expert_shards = optimizer_shards(network)
    shared = network.on_stages(tuple(e.shared for e in network.elements))
    experts = network.on_stages(tuple(e.of_experts for e in network.elements))
    elements = shared / shards[:, None] + experts / expert_shards[:, None]
    device = cluster.device
    seconds: Array = traffic[:, None] * elements / (device.hbm_bandwidth_Bps * device.hbm_efficiency)
    return seconds
