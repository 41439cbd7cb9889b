"""The cell of `latent_attention.py` as a graph."""

from model_zoo.build_indexer import indexer
from model_zoo.build_layers import Layers
from model_zoo.emitter import Value
from ms_symtensor.tensor.graph import Constant, TensorType


def latent_attention(
    b: Layers, x: Value, hidden: Value | None = None, rotates: bool = True
) -> tuple[Value, Value | None]:
    """`hidden`: what a block before has chosen, or nothing; the second result is what the next may share."""
    c, latent = b.config, b.config.latent_attention
    assert latent is not None
    tokens, plain, bias = x.shape[0], c.head_dim - latent.rotary_head_dim, c.linear_bias

    def heads_of(name: str, source: Value, heads: int, size: int) -> Value:
        """[batch, seq, heads, size] of the projection `name` of `source`."""
        y = b.linear(name, source, heads * size, bias)
        return b.reshape(f"split_{name}", y, (tokens // c.seq_length, c.seq_length, heads, size))

    with b.emit.cell("attention", "LatentAttention"):
        narrow = x
        if latent.query_rank:
            narrow = b.norm("query_norm", b.linear("query_down", x, latent.query_rank, bias))
        if c.indexer is not None and hidden is None:
            hidden = indexer(b, x, narrow)
        rotary = heads_of("query_rotary", narrow, c.num_heads, latent.rotary_head_dim)
        rotary = b.rotary_embedding("rotate_query", rotary) if rotates else rotary
        query = b.concat("join_query", [heads_of("query", narrow, c.num_heads, plain), rotary], -1)
        narrow = b.norm("key_value_norm", b.linear("key_value_down", x, latent.key_value_rank, bias))
        rotary = heads_of("key_rotary", x, 1, latent.rotary_head_dim)
        rotary = b.rotary_embedding("rotate_key", rotary) if rotates else rotary
        repeated = TensorType((*rotary.shape[:2], c.num_heads, rotary.shape[3]), rotary.dtype)
        rotary = b.emit.op("Tile", "repeat_key", (rotary, Constant((1, 1, c.num_heads, 1))), repeated)[0]
        key = b.concat("join_key", [heads_of("key", narrow, c.num_heads, plain), rotary], -1)
        value = heads_of("value", narrow, c.num_heads, latent.value_head_dim)
        rows = value.shape[:3]
        if latent.pads_values:
            value = b.concat("pad_value", [value, b.table((*rows, c.head_dim - value.shape[3]), value.dtype)], -1)
        out = b.core(query, key, value, hidden=hidden)
        if latent.pads_values:
            shape = (*rows, latent.value_head_dim)
            arguments = (out, Constant((0, 0, 0, 0)), Constant(shape))
            out = b.emit.op("Slice", "cut_value", arguments, TensorType(shape, out.dtype))[0]
        out = b.reshape("merge_heads", out, (tokens, c.num_heads * latent.value_head_dim))
        return b.linear("output", out, c.hidden_size, bias), hidden
