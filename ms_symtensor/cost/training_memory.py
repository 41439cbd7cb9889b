"""The peak memory of every pipeline stage: what rests on a device, what micro-batches in flight keep, and the rest.

    M_i = parameters + gradients + optimizer states + Σ_places kept · in flight_i + moments + reserve

Under 1F1B a stage keeps as many micro-batches as `program.passes` says are in flight.
"""

from dataclasses import dataclass

import numpy as np

from ms_symtensor.cost.configuration import Part
from ms_symtensor.cost.network import Network
from ms_symtensor.cost.shapes import Array
from ms_symtensor.cost.sharing import optimizer_shards, part_share, recomputed_in_flight
from ms_symtensor.program.passes import flights

FRAGMENTS = 0.2
"""empirical: PyTorch's caching allocator loses so much of what micro-batches keep between their tensors of many sizes;
MindSpore plans the memory of a whole graph and loses nothing.
"""

GATHERED = 5
"""empirical: tensors of all tokens and the whole hidden width that live at once while a block is computed backward."""


@dataclass(frozen=True)
class StageBytes:
    """Bytes on a device of every stage: arrays [configurations, stages], 0 where a stage does not exist."""

    parameters_B: Array
    gradients_B: Array
    master_weights_B: Array
    optimizer_states_B: Array
    activations_B: Array
    moments_B: Array
    fragments_B: Array

    @property
    def reserved_B(self) -> Array:
        """The peak of what the allocator takes from the device."""
        return self.total_B + self.fragments_B

    @property
    def total_B(self) -> Array:
        """The peak of what a step uses."""
        return self.resting_B + self.activations_B + self.moments_B

    @property
    def resting_B(self) -> Array:
        """What stays from step to step."""
        return self.parameters_B + self.gradients_B + self.master_weights_B + self.optimizer_states_B

    @property
    def first_step_B(self) -> Array:
        """The peak of the first step under PyTorch, whose optimizer makes its states when it first runs, behind the
        backward pass; what Megatron reports after its first iteration.
        """
        computing = self.total_B - self.optimizer_states_B
        return np.where(self.total_B > 0, np.maximum(computing, self.resting_B), 0.0)


def stage_bytes(network: Network) -> StageBytes:
    """The memory of every configuration."""
    s = network.shapes
    shared = network.on_stages(tuple(e.shared for e in network.elements))
    experts = network.on_stages(tuple(e.of_experts for e in network.elements))
    shards, expert_shards = optimizer_shards(network)
    rest = shared / shards[:, None] + experts / expert_shards[:, None]
    whole = shared + experts
    level = s.column(lambda c: c.optimizer_level)[:, None]
    mindspore = s.where(lambda c: c.framework == "mindspore")[:, None]
    weight_B, master_B, gradient_B, states_B = (
        s.column(lambda c, name=name: getattr(c.bytes_per_parameter, name))[:, None]  # type: ignore[misc]
        for name in ("weight", "master", "gradient", "states")
    )
    weights_cut = (level >= 3) | ((mindspore > 0) & (level >= 1))
    adds_up = s.micro_batches[:, None] > 1
    gradients_cut = (level >= 2) | ((mindspore > 0) & (level >= 1) & ~adds_up)
    # MindSpore keeps weights gathered in the activations' element type until the backward pass, and adds the gradients of
    # several micro-batches up unsharded (gradient_accumulation_shard False); level 3 gathers again, level 2 shards all.
    gathered_B = np.where((mindspore > 0) & (level < 3), s.element_B[:, None] * whole, 0.0)
    parameters = np.where(weights_cut, rest, whole) * weight_B + gathered_B
    # nanotron adds the gradients of a micro-batch, in the weights' element type, to those of the step.
    beside_B = s.where(lambda c: c.framework == "nanotron")[:, None] * weight_B
    gradients = np.where(gradients_cut, rest, whole) * (gradient_B + beside_B)
    of_blocks, of_loss = _activations_B(network)
    return StageBytes(
        parameters,
        gradients,
        rest * master_B,
        rest * states_B,
        of_blocks + of_loss,
        _moments_B(network),
        np.where(mindspore > 0, 0.0, FRAGMENTS * of_blocks),
    )


def in_flight(network: Network) -> Array:
    """Micro-batches of which a stage keeps all activations of its blocks: [configurations, stages]."""
    found = np.zeros((len(network.shapes.of), network.stages))
    for row, c in enumerate(network.shapes.of):
        stages = c.pipeline_stages
        found[row, :stages] = [flights(i, stages, c.micro_batch_num, c.interleave).mean for i in range(stages)]
    return found


def _activations_B(network: Network) -> tuple[Array, Array]:
    """What micro-batches in flight keep, and what only one of them does."""
    s = network.shapes
    flight = in_flight(network)
    whole = recomputed_in_flight(network)
    nothing = np.zeros(len(s.of))
    first, *blocks, last = network.places
    kept = network.on_stages((nothing, *(b.kept_B for b in blocks), nothing))
    dropped = np.zeros(kept.shape)
    again = {part for c in s.of for part, _ in c.recomputation.parts}
    for part in (part for part in Part if part in again):
        of_part = network.on_stages((nothing, *(b.part_kept_B(part) + nothing for b in blocks), nothing))
        dropped += part_share(network, part) * of_part
    slices = np.where(s.where(lambda c: c.recomputation.shard_kept) > 0, s.tp, 1.0)
    inputs = network.on_stages((nothing, *(s.norm_tokens * s.hidden * s.element_B / slices for _ in blocks), nothing))
    of_blocks: Array = whole * inputs + (1 - whole) * kept - dropped
    ends = network.on_stages((first.kept_B + nothing, *(nothing for _ in blocks), nothing))
    # Pipelines of DeepSpeed's kind, in which logits are gathered for a loss outside, hold the last stage's output until its
    # buffer is used again, and there are two (deepspeed/runtime/pipe/schedule.py, num_pipe_buffers).
    held_B = s.where(lambda c: c.gathered_logits and c.pipeline_stages > 1) * s.tokens * s.loss_vocabulary * s.element_B
    loss = network.on_stages((nothing, *(nothing for _ in blocks), last.kept_B + held_B))
    # The head runs its backward pass at once, so that one micro-batch of its logits lives; of a block that is computed
    # again, one micro-batch of one block.
    again = (whole > 0) * np.max([b.kept_B + nothing for b in blocks[: 1 + bool(network.counts[2].any())]], axis=0)[
        :, None
    ]
    return flight * (of_blocks + ends), loss + again * network.exists


def _moments_B(network: Network) -> Array:
    """The largest tensors that live only while an operator runs: the gradient of the logits, with tensor parallelism the
    tokens in full: gathered, their gradient, and partial sums before they are scattered; without fused attention the gradients of
    the scores.
    """
    s = network.shapes
    # PyTorch's own loss makes its gradient in float32 before it is cast. Megatron's is the float32 logits, written over, and
    # its cast takes the place of the logits before theirs (megatron/core/tensor_parallel/cross_entropy.py).
    gathers = s.where(lambda c: c.gathered_logits)
    in_place = s.where(lambda c: c.framework in ("megatron", "mindspeed")) * (1 - gathers)
    gradient_B = s.element_B * (1 - in_place) + 4 * gathers
    logits = s.tokens * s.loss_vocabulary * gradient_B
    whole = np.where(s.tp > 1, GATHERED * s.tokens * s.hidden * s.element_B, 0.0)
    # Of the softmax and of its result; Megatron's kernel writes the one over the other (scaled_upper_triang_masked_softmax.h).
    scores = (1 - s.flash) * (2 - s.fused_softmax) * s.heads * s.tokens * s.sequence * s.element_B
    found: Array = network.counts[3] * logits[:, None] + network.exists * (whole + scores)[:, None]
    return found
