"""Latent attention in the two phases of serving: the cache has the narrow vector of a token and its rotated key, for all heads.

In decode the projections that widen keys and values go to the query and to the result instead: PagedAttention reads the narrow
vectors as they are cached, as keys whole, as values without the rotated part (`mla_v_dim`; arXiv:2405.04434, section 2.1.2).
"""

import math

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import initializer
from mindspore.ops.auto_generate import PagedAttention, ReshapeAndCache

from model_zoo.config import TransformerConfig
from model_zoo.layers import FlashAttention, Linear, Norm, Rotation, dtype_of, weight
from model_zoo.phase import Phase


class HeadProduct(nn.Cell):
    """x [tokens, heads, out] times each head's own weight [heads, out, in] -> [tokens, heads, in].

    `is_back`: times its transpose instead, [tokens, heads, in] -> [tokens, heads, out]. The weight is that of the linear layer of
    training, [heads * out, in]: MindSpore would gather what it has to reshape.
    """

    def __init__(self, config: TransformerConfig, in_size: int, out_size: int, is_back: bool) -> None:
        super().__init__()
        self.weight = weight((config.num_heads, out_size, in_size), config)
        self.compute_dtype, self.cast_weight = dtype_of(config.compute_dtype), ops.Cast()
        self.transpose_in, self.transpose_out = ops.Transpose(), ops.Transpose()
        self.matmul = ops.BatchMatMul(transpose_b=is_back)

    def construct(self, x: Tensor) -> Tensor:
        own = self.cast_weight(self.weight, self.compute_dtype)
        return self.transpose_out(self.matmul(self.transpose_in(x, (1, 0, 2)), own), (1, 0, 2))


class CachedLatentAttention(nn.Cell):
    """`latent_attention.LatentAttention` of [tokens, hidden] with a cache [blocks, tokens, 1, rank + rotary]."""

    def __init__(self, config: TransformerConfig, phase: Phase, mask: Tensor | None) -> None:
        super().__init__()
        latent = config.latent_attention
        assert latent is not None
        self.seq_length, self.heads, self.is_decode = config.seq_length, config.num_heads, phase.is_decode
        self.rank, self.rotary_size = latent.key_value_rank, latent.rotary_head_dim
        self.value_size, self.plain_size = latent.value_head_dim, config.head_dim - latent.rotary_head_dim
        hidden, rank, self.is_narrow = config.hidden_size, latent.key_value_rank, latent.query_rank > 0
        if self.is_narrow:
            self.query_down = Linear(config, hidden, latent.query_rank, False)
        self.key_value_down = Linear(config, hidden, rank, False)
        self.query = Linear(config, latent.query_rank or hidden, self.heads * self.plain_size, False)
        self.query_rotary = Linear(config, latent.query_rank or hidden, self.heads * self.rotary_size, False)
        if self.is_decode:
            self.key = HeadProduct(config, rank, self.plain_size, is_back=False)
            self.value = HeadProduct(config, rank, self.value_size, is_back=True)
        else:
            self.key = Linear(config, rank, self.heads * self.plain_size, False, is_whole=True)
            self.value = Linear(config, rank, self.heads * self.value_size, False, is_whole=True)
        self.key_rotary = Linear(config, hidden, self.rotary_size, False)
        if self.is_narrow:
            self.query_norm = Norm(config, latent.query_rank)
        self.key_value_norm = Norm(config, rank)
        self.split_query, self.split_query_rotary, self.split_key_rotary = ops.Reshape(), ops.Reshape(), ops.Reshape()
        self.rotate_query, self.rotate_key = Rotation(config), Rotation(config)
        self.split_latent, self.merge_key_rotary = ops.Reshape(), ops.Reshape()
        self.join_latent, self.join_query = ops.Concat(axis=-1), ops.Concat(axis=-1)
        shape = (phase.cache_blocks, phase.block_tokens, 1, rank + self.rotary_size)
        self.latent_cache = Parameter(initializer("zeros", shape, dtype_of(config.compute_dtype)), requires_grad=False)
        self.reshape_and_cache = ReshapeAndCache()
        if self.is_decode:
            self.split_absorbed, self.merge_query, self.split_heads = ops.Reshape(), ops.Reshape(), ops.Reshape()
            scale = 1.0 / math.sqrt(config.score_size or config.head_dim)
            self.paged_attention = PagedAttention(self.heads, scale, 1, mla_v_dim=rank)
        else:
            self.split_key, self.split_value = ops.Reshape(), ops.Reshape()
            self.repeat_key, self.join_key = ops.Tile(), ops.Concat(axis=-1)
            self.core = FlashAttention(config, mask)
            self.pads_values = latent.pads_values
            if self.pads_values:
                pad = (config.batch_size, self.seq_length, self.heads, config.head_dim - self.value_size)
                self.no_value = Tensor(np.zeros(pad, np.float16), dtype_of(config.compute_dtype))
                self.pad_value, self.cut_value = ops.Concat(axis=-1), ops.Slice()
        self.merge_heads = ops.Reshape()
        self.output = Linear(config, self.heads * self.value_size, hidden, False)

    def construct(self, x: Tensor, tables: tuple[Tensor, Tensor], paging: tuple[Tensor, ...]) -> Tensor:
        tokens, seq = x.shape[0], self.seq_length
        batch = tokens // seq
        narrow = self.query_norm(self.query_down(x)) if self.is_narrow else x
        rotary = self.split_query_rotary(self.query_rotary(narrow), (batch, seq, self.heads, self.rotary_size))
        rotary, query = self.rotate_query(rotary, *tables), self.query(narrow)
        latent = self.key_value_norm(self.key_value_down(x))
        key_rotary = self.split_key_rotary(self.key_rotary(x), (batch, seq, 1, self.rotary_size))
        key_rotary = self.rotate_key(key_rotary, *tables)
        joined = self.join_latent(
            (
                self.split_latent(latent, (batch, seq, self.rank)),
                self.merge_key_rotary(key_rotary, (batch, seq, self.rotary_size)),
            )
        )
        # MindSpore's compiler wants values and their cache: they are the keys and theirs.
        cached = self.reshape_and_cache(joined, joined, self.latent_cache, self.latent_cache, paging[0])
        if self.is_decode:
            out = self.decoded(query, rotary, cached, paging)
        else:
            out = self.attended(query, rotary, cached, latent, key_rotary)
        return self.output(self.merge_heads(out, (tokens, self.heads * self.value_size)))

    def decoded(self, query: Tensor, rotary: Tensor, cached: Tensor, paging: tuple[Tensor, ...]) -> Tensor:
        """[tokens, heads, value_size] of queries [tokens, heads * plain_size], read from the cache."""
        tokens = query.shape[0]
        query = self.key(self.split_query(query, (tokens, self.heads, self.plain_size)))
        query = self.join_query((self.split_absorbed(query, (tokens, 1, self.heads, self.rank)), rotary))
        query = self.merge_query(query, (tokens, 1, self.heads * (self.rank + self.rotary_size)))
        query, cache = ops.depend(query, cached), self.latent_cache
        out = self.paged_attention(query, cache, cache, paging[1], paging[2], None, None, None, None)
        return self.value(self.split_heads(out, (tokens, self.heads, self.rank)))

    def attended(self, query: Tensor, rotary: Tensor, cached: Tensor, latent: Tensor, key_rotary: Tensor) -> Tensor:
        """[batch, seq, heads, value_size] of whole prompts: keys and values of every head are made."""
        batch, seq, heads = rotary.shape[:3]
        query = self.join_query((self.split_query(query, (batch, seq, heads, self.plain_size)), rotary))
        query = ops.depend(query, cached)
        key = self.split_key(self.key(latent), (batch, seq, heads, self.plain_size))
        key = self.join_key((key, self.repeat_key(key_rotary, (1, 1, heads, 1))))
        value = self.split_value(self.value(latent), (batch, seq, heads, self.value_size))
        if self.pads_values:
            out = self.core(query, key, self.pad_value((value, self.no_value)))
            return self.cut_value(out, (0, 0, 0, 0), (batch, seq, heads, self.value_size))
        return self.core(query, key, value)
