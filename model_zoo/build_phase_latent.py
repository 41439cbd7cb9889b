"""The cells of `phase_latent.py` as graphs."""

import math
from typing import TYPE_CHECKING

from model_zoo.build_operators import float32
from model_zoo.emitter import Argument, Value
from model_zoo.phase import Phase
from ms_symtensor.tensor.graph import Constant, TensorType

if TYPE_CHECKING:
    from model_zoo.builder import _Network

Pair = tuple[Value, Value]
_NONE = Constant(None)


def rotation(network: "_Network", attribute: str, x: Value, tables: Pair) -> Value:
    """`layers.Rotation`."""
    cos, sin = tables
    swap = network.table((x.shape[-1], x.shape[-1]), x.dtype)
    with network.emit.cell(attribute, "Rotation"):
        swapped = network.emit.op("BatchMatMul", "swap_halves", (x, swap, Constant(False), Constant(False)), x.type)[0]
        along = network.binary("Mul", "mul_cos", x, cos)
        return network.binary("Add", "add", along, network.binary("Mul", "mul_sin", swapped, sin))


def cached_latent_attention(network: "_Network", phase: Phase, x: Value, tables: Pair, paging: list[Value]) -> Value:
    """`CachedLatentAttention`."""
    c, emit, latent = network.config, network.emit, network.config.latent_attention
    assert latent is not None
    tokens, rank, rotary_size = x.shape[0], latent.key_value_rank, latent.rotary_head_dim
    rows = (c.batch_size, c.seq_length)
    with emit.cell("attention", "CachedLatentAttention"):
        narrow = x
        if latent.query_rank:
            narrow = network.norm("query_norm", network.linear("query_down", x, latent.query_rank, False))
        rotary = network.linear("query_rotary", narrow, c.num_heads * rotary_size, False)
        rotary = network.reshape("split_query_rotary", rotary, (*rows, c.num_heads, rotary_size))
        rotary = rotation(network, "rotate_query", rotary, tables)
        query = network.linear("query", narrow, c.num_heads * (c.head_dim - rotary_size), False)
        compressed = network.norm("key_value_norm", network.linear("key_value_down", x, rank, False))
        key_rotary = network.linear("key_rotary", x, rotary_size, False)
        key_rotary = network.reshape("split_key_rotary", key_rotary, (*rows, 1, rotary_size))
        key_rotary = rotation(network, "rotate_key", key_rotary, tables)
        parts = [
            network.reshape("split_latent", compressed, (*rows, rank)),
            network.reshape("merge_key_rotary", key_rotary, (*rows, rotary_size)),
        ]
        joined = network.concat("join_latent", parts, -1)
        shape = (phase.cache_blocks, phase.block_tokens, 1, rank + rotary_size)
        cache = emit.parameter("latent_cache", shape, c.compute_dtype, False)
        arguments = (joined, joined, cache, cache, paging[0], _NONE)
        cached = emit.op("ReshapeAndCache", "reshape_and_cache", arguments, joined.type, side_effect_mem=True)[0]
        if phase.is_decode:
            out = _decoded(network, query, rotary, (cached, cache), paging)
        else:
            out = _attended(network, query, rotary, cached, (compressed, key_rotary))
        out = network.reshape("merge_heads", out, (tokens, c.num_heads * latent.value_head_dim))
        return network.linear("output", out, c.hidden_size, False)


def _decoded(network: "_Network", query: Value, rotary: Value, written: Pair, paging: list[Value]) -> Value:
    c, latent, (cached, cache) = network.config, network.config.latent_attention, written
    assert latent is not None
    heads, rank, tokens = c.num_heads, latent.key_value_rank, query.shape[0]
    query = network.reshape("split_query", query, (tokens, heads, c.head_dim - latent.rotary_head_dim))
    query = _head_product(network, "key", query, rank, is_back=False)
    query = network.reshape("split_absorbed", query, (tokens, 1, heads, rank))
    query = network.concat("join_query", [query, rotary], -1)
    query = network.reshape("merge_query", query, (tokens, 1, heads * (rank + latent.rotary_head_dim)))
    scale = float32(1.0 / math.sqrt(c.score_size or c.head_dim))
    options = [Constant(each) for each in (heads, scale, 1, 0, 0, rank)]
    arguments: tuple[Argument, ...] = (query, cache, cache, *paging[1:], *[_NONE] * 5, *options)
    kind = TensorType((tokens, 1, heads * rank), query.dtype)
    out = network.emit.op("PagedAttention", "paged_attention", arguments, kind)[0]
    network.emit.depend(out, cached)
    out = network.reshape("split_heads", out, (tokens, heads, rank))
    return _head_product(network, "value", out, latent.value_head_dim, is_back=True)


def _head_product(network: "_Network", attribute: str, x: Value, width: int, is_back: bool) -> Value:
    """`HeadProduct`; `width`: the last dim of the result."""
    c, emit = network.config, network.emit
    tokens, heads, size = x.shape
    shape = (heads, width, size) if is_back else (heads, size, width)
    with emit.cell(attribute, "HeadProduct"):
        own = network.cast("cast_weight", network.weight("weight", shape), c.compute_dtype)
        turned = _transposed(network, "transpose_in", x, (heads, tokens, size))
        arguments = (turned, own, Constant(False), Constant(is_back))
        out = emit.op("BatchMatMul", "matmul", arguments, TensorType((heads, tokens, width), x.dtype))[0]
        return _transposed(network, "transpose_out", out, (tokens, heads, width))


def _transposed(network: "_Network", name: str, x: Value, shape: tuple[int, ...]) -> Value:
    return network.emit.op("Transpose", name, (x, Constant((1, 0, 2))), TensorType(shape, x.dtype))[0]


def _attended(network: "_Network", query: Value, rotary: Value, cached: Value, narrow: Pair) -> Value:
    c, latent, (compressed, key_rotary) = network.config, network.config.latent_attention, narrow
    assert latent is not None
    plain, rows = c.head_dim - latent.rotary_head_dim, (*rotary.shape[:2], c.num_heads)
    query = network.concat("join_query", [network.reshape("split_query", query, (*rows, plain)), rotary], -1)
    key = network.reshape(
        "split_key", network.linear("key", compressed, c.num_heads * plain, False, True), (*rows, plain)
    )
    repeated = TensorType((*rows, latent.rotary_head_dim), key_rotary.dtype)
    turned = network.emit.op("Tile", "repeat_key", (key_rotary, Constant((1, 1, c.num_heads, 1))), repeated)[0]
    key = network.concat("join_key", [key, turned], -1)
    width = latent.value_head_dim
    value = network.linear("value", compressed, c.num_heads * width, False, True)
    value = network.reshape("split_value", value, (*rows, width))
    if latent.pads_values:
        value = network.concat("pad_value", [value, network.table((*rows, c.head_dim - width), value.dtype)], -1)
    out = network.flash_attention(query, key, value, 0)
    network.emit.depend(out, cached)
    if not latent.pads_values:
        return out
    shape = (*rows, width)
    arguments = (out, Constant((0, 0, 0, 0)), Constant(shape))
    return network.emit.op("Slice", "cut_value", arguments, TensorType(shape, out.dtype))[0]
