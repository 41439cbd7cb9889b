"""The cells of `delta.py` as graphs."""

from model_zoo.build_layers import Layers
from model_zoo.build_operators import float32
from model_zoo.config import DeltaSizes
from model_zoo.delta_form import KEY_EPSILON, doublings, levels_of, log2_of
from model_zoo.emitter import Value
from ms_symtensor.tensor.graph import Constant, TensorType


def gated_delta(b: Layers, x: Value) -> Value:
    c, d = b.config, b.config.delta
    assert d is not None
    tokens = x.shape[0]
    batch, seq = tokens // c.seq_length, c.seq_length
    with b.emit.cell("attention", "GatedDelta"):
        channels, rate_num = d.group_size + (0 if d.channel_rank else d.group_values), 1 if d.channel_rank else 2
        mixed = b.linear("mixed", x, d.key_heads * channels, False)
        mixed = b.reshape("split_mixed", mixed, (batch, seq, d.key_heads, channels))
        rates = b.linear("rates", x, rate_num * d.value_heads, False)
        rates = b.reshape("split_rates", rates, (batch, seq, d.value_heads, rate_num))
        mixed = b.transpose("transpose_mixed", mixed, (0, 2, 1, 3))
        rates = b.transpose("transpose_rates", rates, (0, 2, 1, 3))
        more: list[Value] = []
        if d.channel_rank:
            for name, size, turned in (("step", d.key_size, (0, 2, 3, 1)), ("gate", d.value_size, (0, 2, 1, 3))):
                narrow = b.linear(f"{name}_down", x, d.channel_rank, False)
                wide = b.linear(name, narrow, d.value_heads * size, False)
                wide = b.reshape(f"split_{name}", wide, (batch, seq, d.value_heads, size))
                more.append(b.transpose(f"transpose_{name}", wide, turned))
        out = b.transpose("transpose_out", _delta_core(b, mixed, rates, d, *more), (0, 2, 1, 3))
        out = b.reshape("merge_heads", out, (tokens, d.value_heads * d.value_size))
        return b.linear("output", out, c.hidden_size, False)


def part(b: Layers, primitive: str, x: Value, start: int, size: int, axis: int) -> Value:
    """`size` places of a dim of `x` from `start` on."""
    begin = tuple(start if i == axis else 0 for i in range(len(x.shape)))
    return _slice(b, primitive, x, begin, tuple(size if i == axis else n for i, n in enumerate(x.shape)))


def _slice(b: Layers, primitive: str, x: Value, begin: tuple[int, ...], shape: tuple[int, ...]) -> Value:
    return b.emit.op("Slice", primitive, (x, Constant(begin), Constant(shape)), TensorType(shape, x.dtype))[0]


def split(b: Layers, primitive: str, x: Value, axis: int, number: int) -> tuple[Value, ...]:
    """`x` in so many equal parts along a dim."""
    part = TensorType(tuple(n // number if i == axis else n for i, n in enumerate(x.shape)), x.dtype)
    return b.emit.op("Split", primitive, (x, Constant(axis), Constant(number)), *[part] * number)


def product(b: Layers, primitive: str, x: Value, y: Value, turns_x: bool = False, turns_y: bool = False) -> Value:
    """The products of the matrices of `x` and `y`, one of them transposed if that is said, broadcast where they differ."""
    rows, columns = x.shape[-1 if turns_x else -2], y.shape[-2 if turns_y else -1]
    batch = tuple(map(max, x.shape[:-2], y.shape[:-2])) if len(y.shape) == len(x.shape) else x.shape[:-2]
    result = TensorType((*batch, rows, columns), x.dtype)
    return b.emit.op("BatchMatMul", primitive, (x, y, Constant(turns_x), Constant(turns_y)), result)[0]


def _delta_core(
    b: Layers, mixed: Value, rates: Value, d: DeltaSizes, step: Value | None = None, gate: Value | None = None
) -> Value:
    c = b.config
    batch, _, seq, _ = mixed.shape
    with b.emit.cell("core", "DeltaCore"):
        if gate is None:
            gate = _of_values(b, "gate", part(b, "cut_gate", mixed, d.group_size, d.group_values, 3), d)
            if d.value_heads > d.key_heads:
                gate = b.reshape("join_gate", gate, (batch, d.value_heads, seq, d.value_size))
            mixed = part(b, "cut_mixed", mixed, 0, d.group_size, 3)
        mixed = causal_convolution(b, "convolution", mixed, d.kernel)
        keys = part(b, "cut_keys", mixed, 0, 2 * d.key_size, 3)
        query, key = chunked_keys(b, keys, d.value_heads // d.key_heads)
        value = _of_values(b, "value", part(b, "cut_value", mixed, 2 * d.key_size, d.group_values, 3), d)
        value = b.reshape(
            "chunk_value", value, (batch, d.value_heads, seq // c.chunk_tokens, c.chunk_tokens, d.value_size)
        )
        beta, step = split(b, "split_rates", rates, 3, 2) if step is None else (rates, step)
        beta = b.unary("Sigmoid", "sigmoid_beta", beta)
        if d.largest_beta != 1.0:
            beta = b.binary("Mul", "scale_beta", beta, b.table((), beta.dtype))
        out = _delta_rule(b, query, key, value, beta, decays(b, step)[1])
        out = b.reshape("join_chunks", out, (batch, d.value_heads, seq, d.value_size))
        return _gated_norm(b, out, gate, d)


def _of_values(b: Layers, attribute: str, x: Value, d: DeltaSizes) -> Value:
    batch, heads, seq, _ = x.shape
    times = d.value_heads // d.key_heads
    if times == 1:
        return x
    with b.emit.cell(attribute, "ValueHeads"):
        return b.transpose(
            "transpose", b.reshape("split", x, (batch, heads, seq, times, d.value_size)), (0, 1, 3, 2, 4)
        )


def decays(b: Layers, x: Value, least: float = 0.0) -> tuple[Value, Value]:
    c, heads = b.config, x.shape[1]
    channels = x.shape[2] if c.delta is not None and c.delta.channel_rank else 1
    with b.emit.cell("decay", "Decay"):
        bias = b.cast("cast_bias", b.weight("bias", (heads * channels,), c.trains_base), "float32")
        rate = b.cast("cast_rate", b.weight("log_decay", (heads,), c.trains_base), "float32")
        bias = b.reshape("widen_bias", bias, (heads, channels, 1))
        step = b.unary("Softplus", "softplus", b.binary("Add", "add_bias", b.cast("cast_step", x, "float32"), bias))
        step = b.binary("Maximum", "limit", step, b.table((), "float32")) if least else step
        rate = b.reshape("widen_rate", b.unary("Exp", "exp_rate", rate), (heads, 1, 1))
        return step, b.unary("Neg", "neg", b.binary("Mul", "mul_rate", step, rate))


def causal_convolution(b: Layers, attribute: str, x: Value, kernel: int, has_bias: bool = False) -> Value:
    batch, heads, seq, size = x.shape
    c = b.config
    with b.emit.cell(attribute, "CausalConvolution"):
        weight = b.weight("weight", (kernel, heads, 1, size), c.trains_base)
        weights = split(b, "split_weight", b.cast("cast_weight", weight, c.compute_dtype), 0, kernel)
        padded = b.concat("pad", [b.table((batch, heads, kernel - 1, size), x.dtype), x], 2)
        total: Value | None = None
        for tap, weight in enumerate(weights):
            with b.emit.cell("taps", "CellList"), b.emit.cell(str(tap), "Tap"):
                seen = b.binary("Mul", "mul", part(b, "shift", padded, tap, seq, 2), weight)
                total = seen if total is None else b.binary("Add", "add", total, seen)
        assert total is not None
        if has_bias:
            bias = b.cast("cast_bias", b.weight("bias", (heads * size,), c.trains_base), c.compute_dtype)
            total = b.binary("Add", "add_bias", total, b.reshape("widen_bias", bias, (1, heads, 1, size)))
        return b.unary("SiLU", "silu", total)


def chunked_keys(b: Layers, x: Value, times: int, normed: bool = True) -> tuple[Value, ...]:
    c = b.config
    batch, heads, seq, width = x.shape
    size = width // 2
    with b.emit.cell("keys", "ChunkedKeys"):
        if normed:
            x = b.cast("cast_in", b.reshape("split_pair", x, (batch, heads, seq, 2, size)), "float32")
            gamma, epsilon = b.table((size,), "float32"), Constant(float32(KEY_EPSILON / size))
            statistic = TensorType((*x.shape[:-1], 1), "float32")
            x = b.emit.op("RmsNorm", "norm", (x, gamma, epsilon), x.type, statistic)[0]
            x = b.cast("cast_out", x, c.compute_dtype)
        if times > 1:
            x = b.reshape("flatten", x, (batch, heads, 1, seq * width))
            tiled = TensorType((batch, heads, times, seq * width), x.dtype)
            x = b.emit.op("Tile", "tile", (x, Constant((1, 1, times, 1))), tiled)[0]
        x = b.reshape("chunk", x, (batch, heads * times, seq // c.chunk_tokens, c.chunk_tokens, width))
        return split(b, "split_keys", x, 4, 2)


def between(b: Layers, later: Value, earlier: Value) -> Value:
    size = earlier.shape[-1]
    with b.emit.cell("between", "Between"):
        row = b.reshape("row", earlier, (*earlier.shape[:-1], 1, size))
        pairs = TensorType((*earlier.shape, size), "float32")
        found = b.emit.op("Sub", "sub", (later, row), pairs)[0]
        return b.unary("Exp", "exp", b.binary("Add", "hide", found, b.table((size, size), "float32")))


def fading(b: Layers, decay: Value) -> tuple[Value, Value, Value, Value]:
    c = b.config
    batch, heads, seq, _ = decay.shape
    chunks, chunk = seq // c.chunk_tokens, c.chunk_tokens
    with b.emit.cell("fading", "Fading"):
        decay = summed(b, "sum", b.reshape("chunk", decay, (batch, heads, chunks, chunk)))
        column = b.reshape("column", decay, (batch, heads, chunks, chunk, 1))
        since = b.cast("cast_since", b.unary("Exp", "exp_since", column), c.compute_dtype)
        last = part(b, "cut_last", column, chunk - 1, 1, 3)
        until = b.emit.op("Sub", "sub_last", (last, column), column.type)[0]
        until = b.cast("cast_until", b.unary("Exp", "exp_until", until), c.compute_dtype)
        return between(b, column, decay), since, until, last


def summed(b: Layers, primitive: str, x: Value, excludes_own: bool = False) -> Value:
    """Sums along the last dim up to every place, or up to the one before it."""
    arguments = (x, Constant(len(x.shape) - 1), Constant(excludes_own), Constant(False))
    return b.emit.op("CumSum", primitive, arguments, x.type)[0]


def _delta_rule(b: Layers, query: Value, key: Value, value: Value, beta: Value, decay: Value) -> Value:
    dtype = b.config.compute_dtype
    batch, heads, chunks, chunk, _ = key.shape
    with b.emit.cell("rule", "DeltaRule"):
        beta = b.reshape("chunk_beta", beta, (batch, heads, chunks, chunk, 1))
        if b.config.delta is not None and b.config.delta.channel_rank:
            written = b.binary("Mul", "mul_beta_key", key, beta)
            gram, seen, *ends = _channel_pairs(b, query, key, written, decay)
            system = b.binary(
                "Mul", "hide_own", b.cast("cast_gram", gram, "float32"), b.table((chunk, chunk), "float32")
            )
            inverse = b.cast("cast_inverse", _unit_inverse(b, "inverse", system), dtype)
            solved = b.binary("Mul", "mul_beta_value", value, beta)
            if chunks == 1:
                return product(b, "read_chunk", seen, product(b, "solve", inverse, solved))
            last = part(b, "cut_last", ends[0], chunk - 1, 1, 3)
            return _across(b, (query, key), (inverse, solved, seen), written, (*ends, last))
        pairs, since, until, last = fading(b, decay)
        written = b.binary("Mul", "mul_beta_key", key, beta)
        system = b.cast("cast_gram", product(b, "gram", written, key, turns_y=True), "float32")
        system = b.binary("Mul", "mul_between", system, pairs)
        system = b.binary("Mul", "hide_own", system, b.table((chunk, chunk), "float32"))
        inverse = b.cast("cast_inverse", _unit_inverse(b, "inverse", system), dtype)
        solved = b.binary("Mul", "mul_beta_value", value, beta)
        seen = product(b, "attend", query, key, turns_y=True)
        seen = b.binary("Mul", "mul_seen", seen, b.cast("cast_between", pairs, dtype))
        if chunks == 1:
            return product(b, "read_chunk", seen, product(b, "solve", inverse, solved))
        return _across(b, (query, key), (inverse, solved, seen), written, (since, until, last))


def _across(
    b: Layers, read: tuple[Value, ...], chunk: tuple[Value, ...], written: Value, decays: tuple[Value, ...]
) -> Value:
    dtype = b.config.compute_dtype
    (query, key), (inverse, solved, seen), (faded, until, last) = read, chunk, decays
    size = key.shape[-1]
    written = b.binary("Mul", "mul_since_key", written, b.unary("Neg", "neg_since", faded))
    erasing, solved = product(b, "solve_key", inverse, written), product(b, "solve", inverse, solved)
    key = b.binary("Mul", "mul_until_key", key, until)
    if last.shape[-1] == 1:  # of a head
        last = b.cast("cast_last", b.unary("Exp", "exp_last", last), dtype)
    fading = product(b, "fade", key, erasing, turns_x=True)
    kept = b.emit.op("Mul", "mul_kept", (last, b.table((size, size), dtype)), fading.type)[0]
    fading = b.binary("Add", "add_kept", fading, kept)
    states = _states_before(b, fading, product(b, "write", key, solved, turns_x=True))
    values = b.binary("Add", "add_erased", solved, product(b, "erase", erasing, states))
    before = product(b, "read_state", b.binary("Mul", "mul_since_query", query, faded), states)
    return b.binary("Add", "add_state", product(b, "read_chunk", seen, values), before)


def _channel_pairs(b: Layers, query: Value, key: Value, written: Value, decay: Value) -> tuple[Value, ...]:
    dtype = b.config.compute_dtype
    batch, heads, chunks, chunk, size = key.shape
    levels, tokens = levels_of(chunk), (batch, heads, chunks, chunk, size)
    with b.emit.cell("pairs", "ChannelPairs"):
        decay = b.reshape("chunk_decay", decay, (batch, heads, size, chunks, chunk))
        decay = product(b, "sum_decays", decay, b.table((chunk, (levels + 2) * chunk), "float32"))
        faded = b.cast("cast", b.unary("Exp", "exp", b.transpose("turn", decay, (0, 1, 3, 4, 2))), dtype)
        faded = b.reshape("split_levels", faded, (batch, heads, chunks, levels + 2, chunk, size))
        pairs = part(b, "cut_pairs", faded, 0, levels, 3)

        def faded_to_the_middle(name: str, x: Value) -> Value:
            x = b.reshape(f"widen_{name}", x, (batch, heads, chunks, 1, chunk, size))
            return b.emit.op("Mul", f"mul_{name}", (x, pairs), pairs.type)[0]

        key, written, query = (
            faded_to_the_middle(name, x) for name, x in (("key", key), ("written", written), ("query", query))
        )
        found = []
        for primitive, name, x in (("gram", "gram", written), ("attend", "seen", query)):
            each = product(b, primitive, x, key, turns_y=True)
            each = b.binary("Mul", f"mul_{name}", each, b.table((levels, chunk, chunk), dtype))
            found.append(b.sum(f"sum_{name}", each, (3,), False))
        if chunks > 1:
            for number, name in enumerate(("since", "until")):
                end = part(b, f"cut_{name}", faded, levels + number, 1, 3)
                found.append(b.reshape(f"join_{name}", end, tokens))
        return tuple(found)


def _unit_inverse(b: Layers, attribute: str, x: Value) -> Value:
    with b.emit.cell(attribute, "UnitInverse"):
        inverse = b.emit.op("Sub", "sub_one", (b.table(x.shape[3:], x.dtype), x), x.type)[0]
        for number in range(doublings(x.shape[-1])):
            with b.emit.cell("doublings", "CellList"), b.emit.cell(str(number), "Doubling"):
                x = product(b, "square", x, x)
                inverse = b.binary("Add", "add", inverse, product(b, "matmul", x, inverse))
        return inverse


def _states_before(b: Layers, fading: Value, written: Value) -> Value:
    levels = log2_of(fading.shape[2]) - 1
    with b.emit.cell("states", "StatesBefore"):
        waiting = []
        for level in range(levels):
            with b.emit.cell("joins", "CellList"), b.emit.cell(str(level), "JoinedSteps"):
                first, later = _halves(b, "fading", fading)
                began, new = _halves(b, "written", written)
                waiting.append((first, began))
                written = b.binary("Add", "add", product(b, "matmul_written", later, began), new)
                fading = product(b, "matmul_fading", later, first)
        batch, heads, _, size, width = written.shape
        states = part(b, "cut_first", written, 0, 1, 2)
        shape = TensorType((batch, heads, 2, size, width), states.dtype)
        states = b.emit.op("Mul", "begin_empty", (states, b.table((2, 1, 1), states.dtype)), shape)[0]
        for level in reversed(range(levels)):
            first, began = waiting[level]
            with b.emit.cell("spreads", "CellList"), b.emit.cell(str(level), "SpreadStates"):
                between = b.binary("Add", "add", product(b, "matmul", first, states), began)
                states = b.concat("join", [states, between], 3)
                states = b.reshape("split", states, (batch, heads, 2 * first.shape[2], size, width))
        return states


def _halves(b: Layers, name: str, x: Value) -> tuple[Value, ...]:
    """Of neighbours along the chunks the first ones and the second ones."""
    batch, heads, chunks, size, width = x.shape
    return split(b, f"split_{name}", b.reshape(f"pair_{name}", x, (batch, heads, chunks // 2, 2 * size, width)), 3, 2)


def _gated_norm(b: Layers, x: Value, gate: Value, d: DeltaSizes) -> Value:
    c = b.config
    with b.emit.cell("norm", "GatedNorm"):
        gamma = b.emit.parameter("gamma", x.shape[-1:], "float32", c.trains_base)
        epsilon = Constant(float32((d.norm_epsilon or c.norm_epsilon) * d.key_size))
        x = b.cast("cast_in", x, "float32")
        statistic = TensorType((*x.shape[:-1], 1), "float32")
        x = b.cast("cast_out", b.emit.op("RmsNorm", "norm", (x, gamma, epsilon), x.type, statistic)[0], c.compute_dtype)
        gate = b.unary("Sigmoid", "sigmoid", gate) if d.channel_rank else b.unary("SiLU", "silu", gate)
        return b.binary("Mul", "mul", x, gate)
