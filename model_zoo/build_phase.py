"""The networks of `phase_network.py` as graphs; every function is the cell of the same name."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from model_zoo.build_operators import float32
from model_zoo.build_phase_latent import Pair, cached_latent_attention, rotation
from model_zoo.config import BlockKind
from model_zoo.emitter import Argument, Value
from model_zoo.phase import Phase
from ms_symtensor.tensor.graph import Constant, Graph, TensorType

if TYPE_CHECKING:
    from model_zoo.builder import _Network

_NONE = Constant(None)


def phase_graph(network: "_Network", phase: Phase, parameter_order: tuple[str, ...]) -> Graph:
    """`PhaseDecoder`: no parameter trains."""
    c, emit = network.config, network.emit
    batch, seq = c.batch_size, c.seq_length
    tokens = batch * seq
    states = (tokens, c.hidden_size)
    x = emit.input("x", (batch, seq) if phase.first else states, "int32" if phase.first else c.compute_dtype)
    positions = emit.input("positions", (batch, seq), "int32")
    paging = [emit.input("slots", (tokens,), "int32")]
    if phase.is_decode:
        paging += [
            emit.input("block_tables", (batch, phase.request_blocks), "int32"),
            emit.input("lengths", (batch,), "int32"),
        ]
    word_table = None
    if phase.first:
        x, word_table = network.embedding("word_embedding", x, c.vocab_size)
        x = network.reshape("flatten_embedding", network.cast("cast_embedding", x, c.compute_dtype), states)
        if c.embedding_scale != 1.0:
            x = network.binary("Mul", "mul_scale", x, network.table((), c.compute_dtype))
    tables = _position_tables(network, phase, positions)
    for layer in range(c.num_layers):
        with emit.cell("layers", "CellList"), emit.cell(str(layer), "PhaseBlock"):
            x = _phase_block(network, phase, x, tables, paging, c.has_experts(layer))
    if phase.last:
        x = _head(network, x, word_table)
    graph = emit.graph("Decode" if phase.is_decode else "Prefill", x, parameter_order)
    frozen = tuple(replace(parameter, requires_grad=False) for parameter in graph.parameters)
    return replace(graph, parameters=frozen)


def _head(network: "_Network", x: Value, word_table: Value | None) -> Value:
    c = network.config
    batch, seq = c.batch_size, c.seq_length
    if seq > 1:
        x = network.reshape("split_samples", x, (batch, seq, c.hidden_size))
        ends = (0, seq - 1, 0), (batch, seq, c.hidden_size), (1, 1, 1)
        masks = (0,) * 5  # begin, end, ellipsis, new_axis, shrink_axis
        kind = TensorType((batch, 1, c.hidden_size), x.dtype)
        x = network.emit.op("StridedSlice", "take_last", (x, *(Constant(each) for each in (*ends, *masks))), kind)[0]
        x = network.reshape("merge_samples", x, (batch, c.hidden_size))
    normed = network.norm("norm", x)
    table = word_table if c.tied_embeddings else None
    return network.vocabulary_head(
        normed, network.weight("output_table", (c.vocab_size, c.hidden_size)) if table is None else table
    )


def _position_tables(network: "_Network", phase: Phase, positions: Value) -> Pair:
    c = network.config
    table = network.table((phase.request_tokens, c.rotary_size), c.compute_dtype)
    found = []
    with network.emit.cell("positions", "PositionTables"):
        for name in ("cos", "sin"):
            rows = TensorType((*positions.shape, c.rotary_size), c.compute_dtype)
            y = network.emit.op("Gather", f"gather_{name}", (table, positions, Constant(0), Constant(0)), rows)[0]
            found.append(network.reshape(f"widen_{name}", y, (*positions.shape, 1, c.rotary_size)))
    return found[0], found[1]


def _phase_block(
    network: "_Network", phase: Phase, x: Value, tables: Pair, paging: list[Value], has_experts: bool
) -> Value:
    c = network.config
    before, after = c.norms_branches(BlockKind())
    attention = _cached_attention if c.latent_attention is None else cached_latent_attention
    attended = attention(network, phase, network.norm("attention_norm", x) if before else x, tables, paging)
    attended = network.norm("attended_norm", attended) if after else attended
    x = network.binary("Add", "add_attention", x, attended)
    feed_forward = network.mixture_of_experts if has_experts else network.dense_feed_forward
    fed = feed_forward(network.norm("feed_forward_norm", x) if before else x)
    return network.binary("Add", "add_feed_forward", x, network.norm("fed_forward_norm", fed) if after else fed)


def _cached_attention(network: "_Network", phase: Phase, x: Value, tables: Pair, paging: list[Value]) -> Value:
    c, emit = network.config, network.emit
    tokens, batch, seq = x.shape[0], c.batch_size, c.seq_length
    with emit.cell("attention", "CachedAttention"):
        query, key = (
            _heads(network, name, x, heads, tables) for name, heads in (("query", c.num_heads), ("key", c.n_kv_heads))
        )
        value = network.linear("value", x, c.kv_size, c.qkv_bias)
        shape = (phase.cache_blocks, phase.block_tokens, c.n_kv_heads, c.head_dim)
        caches = [emit.parameter(name, shape, c.compute_dtype, False) for name in ("key_cache", "value_cache")]
        new = [
            network.reshape(f"merge_{name}", y, (batch, seq, c.kv_size)) for name, y in (("key", key), ("value", value))
        ]
        cached = emit.op(
            "ReshapeAndCache", "reshape_and_cache", (*new, *caches, paging[0], _NONE), new[0].type, side_effect_mem=True
        )[0]
        if phase.is_decode:
            query = network.reshape("merge_query", query, (batch, seq, c.query_size))
            scale = float32(1.0 / math.sqrt(c.score_size or c.head_dim))
            options = [Constant(each) for each in (c.num_heads, scale, c.n_kv_heads, 0, 0, 0)]
            arguments: tuple[Argument, ...] = (query, *caches, *paging[1:], *[_NONE] * 5, *options)
            out = emit.op("PagedAttention", "paged_attention", arguments, query.type)[0]
        else:
            value = network.reshape("split_value", value, (batch, seq, c.n_kv_heads, c.head_dim))
            out = network.flash_attention(query, key, value, 0)
        emit.depend(out, cached)
        out = network.reshape("merge_heads", out, (tokens, c.query_size))
        return network.linear("output", out, c.hidden_size, c.linear_bias or c.output_bias)


def _heads(network: "_Network", attribute: str, x: Value, heads: int, tables: Pair) -> Value:
    c = network.config
    y = network.linear(attribute, x, heads * c.head_dim, c.qkv_bias)
    if c.qk_norm == "projection":
        y = network.norm(f"{attribute}_norm", y)
    y = network.reshape(f"split_{attribute}", y, (c.batch_size, c.seq_length, heads, c.head_dim))
    if c.qk_norm == "head":
        y = network.norm(f"{attribute}_norm", y)
    return rotation(network, f"rotary_{attribute}", y, tables)
