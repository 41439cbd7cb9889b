"""DeepSeek's multi-head latent attention: keys and values from one narrow vector per token (arXiv:2405.04434)."""

import numpy as np
from mindspore import Tensor, nn, ops

from model_zoo.config import TransformerConfig
from model_zoo.indexer import Indexer
from model_zoo.layers import Linear, Norm, RotaryEmbedding, core_attention, dtype_of


class LatentAttention(nn.Cell):
    """[tokens, hidden] -> [tokens, hidden]. Each head's query and key are a part without and a part with rotation, the latter
    of the key the same for all heads. Projections that DeepSeek stores together are separate here, as MindFormers has them.
    `index_tables`: those of an indexer, which then hides keys from queries; `mask` is what it adds to scores. Where blocks share
    its choice, that is the second result, and of those that do the second argument.
    """

    def __init__(
        self,
        config: TransformerConfig,
        tables: tuple[Tensor, Tensor] | None,
        mask: Tensor | None,
        index_tables: tuple[Tensor, Tensor] | None = None,
        shares_choice: bool = False,
    ) -> None:
        super().__init__()
        latent = config.latent_attention
        assert latent is not None
        self.seq_length, self.heads = config.seq_length, config.num_heads
        self.rotary_size, self.value_size = latent.rotary_head_dim, latent.value_head_dim
        self.plain_size = config.head_dim - latent.rotary_head_dim
        hidden, bias = config.hidden_size, config.linear_bias
        self.is_narrow = latent.query_rank > 0
        if self.is_narrow:
            self.query_down = Linear(config, hidden, latent.query_rank, bias)
        self.key_value_down = Linear(config, hidden, latent.key_value_rank, bias)
        self.query = Linear(config, latent.query_rank or hidden, self.heads * self.plain_size, bias)
        self.query_rotary = Linear(config, latent.query_rank or hidden, self.heads * self.rotary_size, bias)
        self.key = Linear(config, latent.key_value_rank, self.heads * self.plain_size, bias)
        self.value = Linear(config, latent.key_value_rank, self.heads * self.value_size, bias)
        self.key_rotary = Linear(config, hidden, self.rotary_size, bias)
        if self.is_narrow:
            self.query_norm = Norm(config, latent.query_rank)
        self.key_value_norm = Norm(config, latent.key_value_rank)
        self.split_query, self.split_query_rotary, self.split_key = ops.Reshape(), ops.Reshape(), ops.Reshape()
        self.split_value, self.split_key_rotary = ops.Reshape(), ops.Reshape()
        self.is_rotated = tables is not None
        if tables is not None:
            self.rotate_query, self.rotate_key = RotaryEmbedding(config, tables), RotaryEmbedding(config, tables)
        self.repeat_key = ops.Tile()
        self.join_query, self.join_key = ops.Concat(axis=-1), ops.Concat(axis=-1)
        self.core = core_attention(config, mask)
        self.pads_values = latent.pads_values
        if self.pads_values:
            pad = np.zeros(
                (config.batch_size, self.seq_length, self.heads, config.head_dim - self.value_size), np.float16
            )
            self.no_value = Tensor(pad, dtype_of(config.compute_dtype))
            self.pad_value, self.cut_value = ops.Concat(axis=-1), ops.Slice()
        self.merge_heads = ops.Reshape()
        self.output = Linear(config, self.heads * self.value_size, hidden, bias)
        self.has_indexer, self.passes_choice = index_tables is not None and not shares_choice, config.passes_choice
        if index_tables is not None and not shares_choice:
            assert mask is not None
            self.indexer = Indexer(config, index_tables, mask)

    def construct(self, x: Tensor, hidden: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        tokens = x.shape[0]
        batch, seq, heads = tokens // self.seq_length, self.seq_length, self.heads
        latent = self.query_norm(self.query_down(x)) if self.is_narrow else x
        if self.has_indexer:
            hidden = self.indexer(x, latent)
        query = self.split_query(self.query(latent), (batch, seq, heads, self.plain_size))
        rotary = self.split_query_rotary(self.query_rotary(latent), (batch, seq, heads, self.rotary_size))
        rotary = self.rotate_query(rotary) if self.is_rotated else rotary
        query = self.join_query((query, rotary))
        latent = self.key_value_norm(self.key_value_down(x))
        key = self.split_key(self.key(latent), (batch, seq, heads, self.plain_size))
        value = self.split_value(self.value(latent), (batch, seq, heads, self.value_size))
        rotary = self.split_key_rotary(self.key_rotary(x), (batch, seq, 1, self.rotary_size))
        rotary = self.rotate_key(rotary) if self.is_rotated else rotary
        rotary = self.repeat_key(rotary, (1, 1, heads, 1))
        key = self.join_key((key, rotary))
        if self.pads_values:
            out = self.core(query, key, self.pad_value((value, self.no_value)), hidden)
            out = self.cut_value(out, (0, 0, 0, 0), (batch, seq, heads, self.value_size))
        else:
            out = self.core(query, key, value, hidden)
        out = self.merge_heads(out, (tokens, heads * self.value_size))
        return (self.output(out), hidden) if self.passes_choice else self.output(out)
