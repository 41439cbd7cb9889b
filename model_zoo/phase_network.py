"""The networks of the two phases of serving, as MindSpore Cells, with the names of the training networks' cells.

Every layer has a cache of keys and values as parameters of [blocks, tokens, kv_heads, head_dim]. ReshapeAndCache writes new
ones to their slots (block times tokens, plus the token's place; -1: nowhere); decode reads them by PagedAttention.
"""

import math
from typing import Any

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Zero, initializer
from mindspore.nn.utils import no_init_parameters
from mindspore.ops.auto_generate import PagedAttention, ReshapeAndCache

from model_zoo.config import BlockKind, TransformerConfig
from model_zoo.experts import MixtureOfExperts, empty_places
from model_zoo.head import VocabularyHead
from model_zoo.layers import (
    FeedForward,
    FlashAttention,
    GatedFeedForward,
    Linear,
    Norm,
    Rotation,
    attention_mask,
    dtype_of,
    position_tables,
    weight,
)
from model_zoo.network import Embedding
from model_zoo.phase import Phase
from model_zoo.phase_latent import CachedLatentAttention

Empty = tuple[Tensor, Tensor] | None


class PositionTables(nn.Cell):
    """cos and sin of the angles of positions [batch, seq] -> [batch, seq, 1, head_dim] each."""

    def __init__(self, config: TransformerConfig, phase: Phase) -> None:
        super().__init__()
        self.cos, self.sin = position_tables(config, phase.request_tokens)
        self.size = config.rotary_size
        self.gather_cos, self.gather_sin = ops.Gather(), ops.Gather()
        self.widen_cos, self.widen_sin = ops.Reshape(), ops.Reshape()

    def construct(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        batch, seq = positions.shape
        cos, sin = self.gather_cos(self.cos, positions, 0), self.gather_sin(self.sin, positions, 0)
        shape = (batch, seq, 1, self.size)
        return self.widen_cos(cos, shape), self.widen_sin(sin, shape)


class CachedAttention(nn.Cell):
    """Grouped-query attention of [tokens, hidden] that writes keys and values to its cache, and in decode reads them there."""

    def __init__(self, config: TransformerConfig, phase: Phase, mask: Tensor | None) -> None:
        super().__init__()
        self.seq_length, self.head_dim = config.seq_length, config.head_dim
        self.num_heads, self.n_kv_heads = config.num_heads, config.n_kv_heads
        self.query_size, self.kv_size, self.is_decode = config.query_size, config.kv_size, phase.is_decode
        self.query = Linear(config, config.hidden_size, config.query_size, config.qkv_bias)
        self.key = Linear(config, config.hidden_size, config.kv_size, config.qkv_bias)
        self.value = Linear(config, config.hidden_size, config.kv_size, config.qkv_bias)
        self.split_query, self.split_key, self.split_value = ops.Reshape(), ops.Reshape(), ops.Reshape()
        self.norms_heads, self.norms_projection = config.qk_norm == "head", config.qk_norm == "projection"
        if self.norms_heads:
            self.query_norm, self.key_norm = Norm(config, config.head_dim), Norm(config, config.head_dim)
        if self.norms_projection:
            self.query_norm, self.key_norm = Norm(config, config.query_size), Norm(config, config.kv_size)
        self.rotary_query, self.rotary_key = Rotation(config), Rotation(config)
        self.merge_key, self.merge_value, self.merge_query = ops.Reshape(), ops.Reshape(), ops.Reshape()
        shape = (phase.cache_blocks, phase.block_tokens, config.n_kv_heads, config.head_dim)
        dtype = dtype_of(config.compute_dtype)
        self.key_cache = Parameter(initializer("zeros", shape, dtype), requires_grad=False)
        self.value_cache = Parameter(initializer("zeros", shape, dtype), requires_grad=False)
        self.reshape_and_cache = ReshapeAndCache()
        scale = 1.0 / math.sqrt(config.score_size or config.head_dim)
        if self.is_decode:
            self.paged_attention = PagedAttention(config.num_heads, scale, config.n_kv_heads)
        else:
            self.core = FlashAttention(config, mask)
        self.merge_heads = ops.Reshape()
        self.output = Linear(config, config.query_size, config.hidden_size, config.linear_bias or config.output_bias)

    def construct(self, x: Tensor, tables: tuple[Tensor, Tensor], paging: tuple[Tensor, ...]) -> Tensor:
        tokens = x.shape[0]
        batch = tokens // self.seq_length
        query, key, value = self.query(x), self.key(x), self.value(x)
        if self.norms_projection:
            query, key = self.query_norm(query), self.key_norm(key)
        query = self.split_query(query, (batch, self.seq_length, self.num_heads, self.head_dim))
        key = self.split_key(key, (batch, self.seq_length, self.n_kv_heads, self.head_dim))
        if self.norms_heads:
            query, key = self.query_norm(query), self.key_norm(key)
        query, key = self.rotary_query(query, *tables), self.rotary_key(key, *tables)
        merged_key = self.merge_key(key, (batch, self.seq_length, self.kv_size))
        merged_value = self.merge_value(value, (batch, self.seq_length, self.kv_size))
        cached = self.reshape_and_cache(merged_key, merged_value, self.key_cache, self.value_cache, paging[0])
        if self.is_decode:
            query = ops.depend(self.merge_query(query, (batch, self.seq_length, self.query_size)), cached)
            out = self.paged_attention(
                query, self.key_cache, self.value_cache, paging[1], paging[2], None, None, None, None
            )
        else:
            value = self.split_value(value, (batch, self.seq_length, self.n_kv_heads, self.head_dim))
            out = self.core(ops.depend(query, cached), key, value)
        return self.output(self.merge_heads(out, (tokens, self.query_size)))


class PhaseBlock(nn.Cell):
    """One layer: `block.TransformerBlock` of a decoder, with a cache. `empty`: places of experts, where it has some."""

    def __init__(
        self, config: TransformerConfig, phase: Phase, mask: Tensor | None, empty: Empty, has_experts: bool
    ) -> None:
        super().__init__()
        self.norms_before, self.norms_after = config.norms_branches(BlockKind())
        if self.norms_before:
            self.attention_norm, self.feed_forward_norm = (Norm(config, config.hidden_size) for _ in range(2))
        if self.norms_after:
            self.attended_norm, self.fed_forward_norm = (Norm(config, config.hidden_size) for _ in range(2))
        attention = CachedAttention if config.latent_attention is None else CachedLatentAttention
        self.attention = attention(config, phase, mask)
        if has_experts:
            assert empty is not None
            self.feed_forward = MixtureOfExperts(config, empty)
        else:
            dense = GatedFeedForward if config.is_gated else FeedForward
            self.feed_forward = dense(config, config.intermediate_size)
        self.add_attention, self.add_feed_forward = ops.Add(), ops.Add()

    def construct(self, x: Tensor, tables: tuple[Tensor, Tensor], paging: tuple[Tensor, ...]) -> Tensor:
        attended = self.attention(self.attention_norm(x) if self.norms_before else x, tables, paging)
        x = self.add_attention(x, self.attended_norm(attended) if self.norms_after else attended)
        fed = self.feed_forward(self.feed_forward_norm(x) if self.norms_before else x)
        return self.add_feed_forward(x, self.fed_forward_norm(fed) if self.norms_after else fed)


class PhaseDecoder(nn.Cell):
    """A pass of one phase: ids, or hidden states of the stage before -> logits of the last token, or hidden states."""

    def __init__(self, config: TransformerConfig, phase: Phase) -> None:
        super().__init__()
        self.hidden_size, self.compute_dtype = config.hidden_size, dtype_of(config.compute_dtype)
        self.seq_length = config.seq_length
        self.is_first, self.is_last, self.takes_last = phase.first, phase.last, phase.last and config.seq_length > 1
        self.tied_embeddings, self.is_scaled = config.tied_embeddings and phase.first, config.embedding_scale != 1.0
        if phase.first:
            self.word_embedding = Embedding(config, config.vocab_size)
            self.cast_embedding, self.flatten_embedding = ops.Cast(), ops.Reshape()
            if self.is_scaled:
                self.scale, self.mul_scale = Tensor(config.embedding_scale, self.compute_dtype), ops.Mul()
        self.positions = PositionTables(config, phase)
        mask = None if phase.is_decode else attention_mask(config)
        empty, kinds = empty_places(config), map(config.kind, range(config.num_layers))
        self.layers = nn.CellList([PhaseBlock(config, phase, mask, empty, kind.experts) for kind in kinds])
        if phase.last:
            self.norm = Norm(config, config.hidden_size)
            self.head = VocabularyHead(config, has_bias=config.head_bias)
            if not self.tied_embeddings:
                self.output_table = weight((config.vocab_size, config.hidden_size), config)
        if self.takes_last:
            self.split_samples, self.take_last, self.merge_samples = ops.Reshape(), ops.StridedSlice(), ops.Reshape()

    def run(self, x: Tensor, positions: Tensor, paging: tuple[Tensor, ...]) -> Tensor:
        batch, seq = positions.shape
        if self.is_first:
            x = self.cast_embedding(self.word_embedding(x), self.compute_dtype)
            x = self.flatten_embedding(x, (batch * seq, self.hidden_size))
            x = self.mul_scale(x, self.scale) if self.is_scaled else x
        tables = self.positions(positions)
        for layer in self.layers:
            x = layer(x, tables, paging)
        if not self.is_last:
            return x
        if self.takes_last:
            x = self.split_samples(x, (batch, seq, self.hidden_size))
            x = self.take_last(x, (0, seq - 1, 0), (batch, seq, self.hidden_size), (1, 1, 1))
            x = self.merge_samples(x, (batch, self.hidden_size))
        return self.head(self.norm(x), self.word_embedding.table if self.tied_embeddings else self.output_table)


class Prefill(PhaseDecoder):
    """All tokens of prompts at once."""

    def construct(self, x: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
        return self.run(x, positions, (slots,))


class Decode(PhaseDecoder):
    """A token of every request; the cache holds `lengths` tokens of each, the new one among them."""

    def construct(self, x: Tensor, positions: Tensor, slots: Tensor, block_tables: Tensor, lengths: Tensor) -> Tensor:
        return self.run(x, positions, (slots, block_tables, lengths))


def build_phase(config: TransformerConfig) -> tuple[nn.Cell, tuple[Tensor, ...]]:
    """The network of `config.phase`, and its inputs, without values: int32 ids [batch, seq] (or hidden states), positions
    [batch, seq], slots [tokens]; in decode block tables [batch, blocks of a request] and lengths [batch].
    """
    phase = config.phase
    assert phase is not None
    with no_init_parameters():
        cell = (Decode if phase.is_decode else Prefill)(config, phase)
    for parameter in cell.get_parameters():
        parameter.requires_grad = False
    cell.set_train(False)
    batch, seq = config.batch_size, config.seq_length

    def tensor(*shape: int, dtype: Any = ms.int32) -> Tensor:
        return Tensor(shape=shape, dtype=dtype, init=Zero())

    states = tensor(batch * seq, config.hidden_size, dtype=dtype_of(config.compute_dtype))
    inputs = (tensor(batch, seq) if phase.first else states, tensor(batch, seq), tensor(batch * seq))
    return cell, (*inputs, tensor(batch, phase.request_blocks), tensor(batch)) if phase.is_decode else inputs
