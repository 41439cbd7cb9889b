"""The cells of `state_space.py` as graphs."""

from model_zoo.build_delta import between, causal_convolution, chunked_keys, decays, fading, product, summed
from model_zoo.build_layers import Layers
from model_zoo.build_operators import float32
from model_zoo.config import StateSpaceSizes
from model_zoo.emitter import Value
from ms_symtensor.tensor.graph import Constant, TensorType


def state_space(b: Layers, x: Value) -> Value:
    c, sizes = b.config, b.config.state_space
    assert sizes is not None
    tokens = x.shape[0]
    batch, seq = tokens // c.seq_length, c.seq_length

    def of_heads(name: str, heads: int, size: int) -> Value:
        y = b.linear(name, x, heads * size, sizes.bias)
        return b.swap_heads_and_sequence(f"transpose_{name}", b.reshape(f"split_{name}", y, (batch, seq, heads, size)))

    with b.emit.cell("attention", "StateSpace"):
        key = of_heads("key", sizes.groups, 2 * sizes.state_size)
        value, step = of_heads("value", sizes.heads, sizes.head_size), of_heads("step", sizes.heads, 1)
        out = b.swap_heads_and_sequence("transpose_out", _core(b, value, key, step, sizes))
        out = b.reshape("merge_heads", out, (tokens, sizes.width))
        out = _grouped_norm(b, out, b.linear("gate", x, sizes.width, sizes.bias), sizes)
        return b.linear("output", out, c.hidden_size, sizes.bias)


def _core(b: Layers, value: Value, key: Value, step: Value, sizes: StateSpaceSizes) -> Value:
    c, dtype = b.config, b.config.compute_dtype
    batch, heads, seq, size = value.shape
    chunks, chunk = seq // c.chunk_tokens, c.chunk_tokens
    with b.emit.cell("core", "StateSpaceCore"):
        skip = b.weight("skip", (heads,), c.trains_base)
        key = causal_convolution(b, "key_convolution", key, sizes.kernel, sizes.conv_bias)
        query, key = chunked_keys(b, key, sizes.key_times, normed=False)
        value = causal_convolution(b, "convolution", value, sizes.kernel, sizes.conv_bias)
        value = b.reshape("chunk_value", value, (batch, heads, chunks, chunk, size))
        step, decay = decays(b, step, sizes.least_step)
        pairs, since, until, last = fading(b, decay)
        step = b.reshape("chunk_step", b.cast("cast_step", step, dtype), (batch, heads, chunks, chunk, 1))
        written = b.binary("Mul", "mul_step", value, step)
        seen = product(b, "attend", query, key, turns_y=True)
        seen = b.binary("Mul", "mul_seen", b.cast("cast_between", pairs, dtype), seen)
        out = product(b, "read_chunk", seen, written)
        if chunks > 1:
            new = product(b, "write", key, b.binary("Mul", "mul_until", written, until), turns_x=True)
            read = product(b, "read_state", query, _chunk_states(b, new, last))
            out = b.binary("Add", "add_state", out, b.binary("Mul", "mul_since", read, since))
        skip = b.reshape("widen_skip", b.cast("cast_skip", skip, dtype), (1, heads, 1, 1, 1))
        out = b.binary("Add", "add_skip", out, b.binary("Mul", "mul_skip", value, skip))
        return b.reshape("join_chunks", out, (batch, heads, seq, size))


def _chunk_states(b: Layers, written: Value, decay: Value) -> Value:
    batch, heads, chunks, size, width = written.shape
    with b.emit.cell("states", "ChunkStates"):
        decay = b.reshape("flatten", decay, (batch, heads, chunks))
        before = b.reshape("column", summed(b, "sum_before", decay, excludes_own=True), (batch, heads, chunks, 1))
        pairs = b.cast("cast_between", between(b, before, summed(b, "sum", decay)), b.config.compute_dtype)
        states = product(b, "matmul", pairs, b.reshape("join", written, (batch, heads, chunks, size * width)))
        return b.reshape("split", states, (batch, heads, chunks, size, width))


def _grouped_norm(b: Layers, x: Value, gate: Value, sizes: StateSpaceSizes) -> Value:
    c, tokens = b.config, x.shape[0]
    with b.emit.cell("norm", "GroupedNorm"):
        gamma = b.emit.parameter("gamma", (sizes.width,), "float32", c.trains_base)
        gate = b.unary("SiLU", "silu", b.cast("cast_gate", gate, "float32"))
        x = b.binary("Mul", "mul_gate", b.cast("cast_in", x, "float32"), gate)
        scale = gamma
        if sizes.groups > 1:
            x = b.reshape("split", x, (tokens, sizes.groups, sizes.width // sizes.groups))
            scale = b.table(x.shape[-1:], "float32")
        statistic = TensorType((*x.shape[:-1], 1), "float32")
        x = b.emit.op("RmsNorm", "norm", (x, scale, Constant(float32(c.norm_epsilon))), x.type, statistic)[0]
        if sizes.groups > 1:
            x = b.binary("Mul", "mul_gamma", b.reshape("join", x, (tokens, sizes.width)), gamma)
        return b.cast("cast_out", x, c.compute_dtype)
