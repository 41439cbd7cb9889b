"""What one device holds of a transformer under a configuration, for many configurations at once.

All entries of `Shapes` are arrays with one entry per configuration; formulas that take one read like those of a single one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cost.configuration import AttentionKernel, Configuration

Array = NDArray[Any]


@dataclass(frozen=True)
class Shapes:
    """The sizes of one micro-batch on one device, by the configurations they belong to."""

    of: tuple[Configuration, ...]

    def column(self, read: Callable[[Configuration], float]) -> Array:
        """The value that `read` finds, for every configuration."""
        return np.array([read(c) for c in self.of], dtype=float)

    def where(self, holds: Callable[[Configuration], bool]) -> Array:
        """1 where `holds`, else 0."""
        return self.column(lambda c: float(holds(c)))

    # How the devices are used

    @cached_property
    def tp(self) -> Array:
        return self.column(lambda c: c.model_parallel)

    @cached_property
    def cp(self) -> Array:
        return self.column(lambda c: c.context_parallel)

    @cached_property
    def dp(self) -> Array:
        return self.column(lambda c: c.data_parallel)

    @cached_property
    def ep(self) -> Array:
        return self.column(lambda c: c.expert_parallel)

    @cached_property
    def etp(self) -> Array:
        """Tensor ranks that cut an expert."""
        return self.column(lambda c: c.ranks_of_an_expert)

    @cached_property
    def pp(self) -> Array:
        return self.column(lambda c: c.pipeline_stages)

    @cached_property
    def chunks(self) -> Array:
        return self.column(lambda c: c.interleave)

    @cached_property
    def micro_batches(self) -> Array:
        return self.column(lambda c: c.micro_batch_num)

    # Tokens and widths of one micro-batch

    @cached_property
    def batch(self) -> Array:
        return self.column(lambda c: c.micro_batch_size)

    @cached_property
    def sequence(self) -> Array:
        """Of the whole sample, which attention reads."""
        return self.column(lambda c: c.seq_length)

    @cached_property
    def tokens(self) -> Array:
        tokens: Array = self.batch * self.sequence / self.cp
        return tokens

    @cached_property
    def norm_tokens(self) -> Array:
        """Tokens of norms and residual sums, which sequence parallelism cuts."""
        tokens: Array = self.tokens / np.where(self.where(lambda c: c.sequence_parallel) > 0, self.tp, 1)
        return tokens

    @cached_property
    def hidden(self) -> Array:
        return self.column(lambda c: c.model.hidden_size)

    @cached_property
    def vocabulary(self) -> Array:
        """Rows of the embedding on one device, filled up to a multiple of 128 where the framework does, as Megatron."""
        return self.column(
            lambda c: (
                -(-c.model.vocab_size // (128 * c.model_parallel)) * 128
                if c.padded_vocabulary
                else c.model.vocab_size // c.model_parallel
            )
        )

    @cached_property
    def table_copies(self) -> Array:
        """How many tensor ranks have every row of the table in which tokens are looked up."""
        return np.where(self.where(lambda c: c.whole_embedding) > 0, self.tp, 1.0)

    @cached_property
    def loss_vocabulary(self) -> Array:
        """Entries of a token's logits that the loss reads on one device."""
        return np.where(self.where(lambda c: c.gathered_logits) > 0, self.vocabulary * self.tp, self.vocabulary)

    @cached_property
    def heads(self) -> Array:
        return self.column(lambda c: c.model.num_heads / c.model_parallel)

    @cached_property
    def key_width(self) -> Array:
        """Width of a head in the product of queries and keys."""
        return self.column(lambda c: _key_width(c))

    @cached_property
    def value_width(self) -> Array:
        return self.column(
            lambda c: c.model.latent_attention.value_head_dim if c.model.latent_attention else c.model.head_dim
        )

    @cached_property
    def queries(self) -> Array:
        return self.heads * self.key_width

    @cached_property
    def keys(self) -> Array:
        """Width of the keys on one device; latent attention has keys for every head, others repeat what cannot be cut."""
        latent = self.where(lambda c: c.model.latent_attention is not None)
        grouped = self.column(lambda c: max(c.model.n_kv_heads / c.model_parallel, 1.0) * c.model.head_dim)
        return np.where(latent > 0, self.queries, grouped)

    @cached_property
    def values(self) -> Array:
        latent = self.where(lambda c: c.model.latent_attention is not None)
        return np.where(latent > 0, self.heads * self.value_width, self.keys)

    @cached_property
    def attended(self) -> Array:
        """Width of attention's result."""
        return self.heads * self.value_width

    @cached_property
    def width(self) -> Array:
        """Of the dense feed-forward."""
        return self.column(lambda c: c.model.intermediate_size / c.model_parallel)

    @cached_property
    def expert_width(self) -> Array:
        """Of one expert."""
        width: Array = self.column(lambda c: c.model.experts.intermediate_size if c.model.experts else 1) / self.etp
        return width

    @cached_property
    def routed(self) -> Array:
        """Rows that the experts of a device compute: of the tokens of all ranks that cut an expert."""
        tokens = self.norm_tokens * np.where(self.sequence_parallel > 0, self.etp, 1.0)
        rows: Array = tokens * self.column(
            lambda c: c.model.experts.top_k * c.model.experts.imbalance if c.model.experts else 1
        )
        return rows

    @cached_property
    def mindspore(self) -> Array:
        return self.where(lambda c: c.framework == "mindspore")

    @cached_property
    def exchanges_heads(self) -> Array:
        return self.where(lambda c: c.exchanged_heads and c.context_parallel > 1)

    @cached_property
    def mindspeed(self) -> Array:
        return self.where(lambda c: c.framework == "mindspeed")

    @cached_property
    def branches(self) -> Array:
        """Products into the feed-forward: gate and up, or one."""
        return self.column(lambda c: 2 if c.model.gated else 1)

    @cached_property
    def element_B(self) -> Array:
        """Bytes of an activation."""
        return self.column(lambda c: 4 if c.precision == "float32" else 2)

    # Kinds

    @cached_property
    def sequence_parallel(self) -> Array:
        return self.where(lambda c: c.sequence_parallel and c.model_parallel > 1)

    @cached_property
    def flash(self) -> Array:
        return self.where(lambda c: c.attention in (AttentionKernel.FLASH, AttentionKernel.FLASH1))

    @cached_property
    def fused_softmax(self) -> Array:
        """Megatron's kernel takes four rows of heads at a time (megatron/model/fused_softmax.py, is_kernel_available)."""
        divides = (self.heads * self.batch) % 4 == 0
        wanted = self.where(lambda c: c.attention is AttentionKernel.FUSED_SOFTMAX)
        return np.where(divides, wanted, self.where(lambda c: c.compiled))

    @cached_property
    def dropout(self) -> Array:
        return self.where(lambda c: c.model.dropout)

    @cached_property
    def fused_norm(self) -> Array:
        return self.where(lambda c: c.fused_norm or c.compiled or c.framework == "mindspore")

    @cached_property
    def fused_activation(self) -> Array:
        """nanotron and MindFormers write the activation function and its product in separate operators."""
        return self.where(
            lambda c: c.compiled or (c.framework in ("megatron", "mindspeed") and c.fused_norm and not c.model.geglu)
        )

    @cached_property
    def rotary(self) -> Array:
        return self.where(lambda c: c.model.position == "rotary")

    @cached_property
    def eager(self) -> Array:
        """Where a host launches every operator."""
        return self.where(lambda c: c.framework != "mindspore")


def shapes_of(configurations: Sequence[Configuration]) -> Shapes:
    return Shapes(tuple(configurations))


def _key_width(c: Configuration) -> float:
    latent = c.model.latent_attention
    return latent.nope_head_dim + latent.rope_head_dim if latent else c.model.head_dim
