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


def _part(b: Layers, primitive: str, x: Value, start: int, size: int, axis: int) -> Value:
    """`size` places of a dim of `x` from `start` on."""
    begin = tuple(start if i == axis else 0 for i in range(len(x.shape)))
    return _slice(b, primitive, x, begin, tuple(size if i == axis else n for i, n in enumerate(x.shape)))


def _slice(b: Layers, primitive: str, x: Value, begin: tuple[int, ...], shape: tuple[int, ...]) -> Value:
    return b.emit.op("Slice", primitive, (x, Constant(begin), Constant(shape)), TensorType(shape, x.dtype))[0]


def _split(b: Layers, primitive: str, x: Value, axis: int, number: int) -> tuple[Value, ...]:
    """`x` in so many equal parts along a dim."""
    part = TensorType(tuple(n // number if i == axis else n for i, n in enumerate(x.shape)), x.dtype)
    return b.emit.op("Split", primitive, (x, Constant(axis), Constant(number)), *[part] * number)


def _product(b: Layers, primitive: str, x: Value, y: Value, turns_x: bool = False, turns_y: bool = False) -> Value:
    """The products of the matrices of `x` and `y`, one of them transposed if that is said."""
    rows, columns = x.shape[-1 if turns_x else -2], y.shape[-2 if turns_y else -1]
    result = TensorType((*x.shape[:-2], rows, columns), x.dtype)
    return b.emit.op("BatchMatMul", primitive, (x, y, Constant(turns_x), Constant(turns_y)), result)[0]


def _delta_core(
    b: Layers, mixed: Value, rates: Value, d: DeltaSizes, step: Value | None = None, gate: Value | None = None
) -> Value:
    c = b.config
    batch, _, seq, _ = mixed.shape
    with b.emit.cell("core", "DeltaCore"):
        if gate is None:
            gate = _of_values(b, "gate", _part(b, "cut_gate", mixed, d.group_size, d.group_values, 3), d)
            if d.value_heads > d.key_heads:
                gate = b.reshape("join_gate", gate, (batch, d.value_heads, seq, d.value_size))
            mixed = _part(b, "cut_mixed", mixed, 0, d.group_size, 3)
        mixed = _convolution(b, mixed, d)
        query, key = _chunked_keys(b, _part(b, "cut_keys", mixed, 0, 2 * d.key_size, 3), d)
        value = _of_values(b, "value", _part(b, "cut_value", mixed, 2 * d.key_size, d.group_values, 3), d)
        value = b.reshape(
            "chunk_value", value, (batch, d.value_heads, seq // c.delta_chunk, c.delta_chunk, d.value_size)
        )
        beta, step = _split(b, "split_rates", rates, 3, 2) if step is None else (rates, step)
        beta = b.unary("Sigmoid", "sigmoid_beta", beta)
        if d.largest_beta != 1.0:
            beta = b.binary("Mul", "scale_beta", beta, b.table((), beta.dtype))
        out = _delta_rule(b, query, key, value, beta, _decay(b, step, d))
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


def _decay(b: Layers, x: Value, d: DeltaSizes) -> Value:
    c, channels = b.config, d.key_size if d.channel_rank else 1
    with b.emit.cell("decay", "Decay"):
        bias = b.cast("cast_bias", b.weight("bias", (d.value_heads * channels,), c.trains_base), "float32")
        rate = b.cast("cast_rate", b.weight("log_decay", (d.value_heads,), c.trains_base), "float32")
        step = b.binary(
            "Add",
            "add_bias",
            b.cast("cast_step", x, "float32"),
            b.reshape("widen_bias", bias, (d.value_heads, channels, 1)),
        )
        rate = b.reshape("widen_rate", b.unary("Exp", "exp_rate", rate), (d.value_heads, 1, 1))
        step = b.binary("Mul", "mul_rate", b.unary("Softplus", "softplus", step), rate)
        return b.unary("Neg", "neg", step)


def _convolution(b: Layers, x: Value, d: DeltaSizes) -> Value:
    batch, heads, seq, size = x.shape
    with b.emit.cell("convolution", "CausalConvolution"):
        weight = b.weight("weight", (d.kernel, heads, 1, size), b.config.trains_base)
        weights = _split(b, "split_weight", b.cast("cast_weight", weight, b.config.compute_dtype), 0, d.kernel)
        padded = b.concat("pad", [b.table((batch, heads, d.kernel - 1, size), x.dtype), x], 2)
        total: Value | None = None
        for tap, weight in enumerate(weights):
            with b.emit.cell("taps", "CellList"), b.emit.cell(str(tap), "Tap"):
                seen = b.binary("Mul", "mul", _part(b, "shift", padded, tap, seq, 2), weight)
                total = seen if total is None else b.binary("Add", "add", total, seen)
        assert total is not None
        return b.unary("SiLU", "silu", total)


def _chunked_keys(b: Layers, x: Value, d: DeltaSizes) -> tuple[Value, ...]:
    c = b.config
    batch, heads, seq, _ = x.shape
    times, size = d.value_heads // d.key_heads, d.key_size
    with b.emit.cell("keys", "ChunkedKeys"):
        x = b.cast("cast_in", b.reshape("split_pair", x, (batch, heads, seq, 2, size)), "float32")
        gamma, epsilon = b.table((size,), "float32"), Constant(float32(KEY_EPSILON / size))
        statistic = TensorType((*x.shape[:-1], 1), "float32")
        x = b.emit.op("RmsNorm", "norm", (x, gamma, epsilon), x.type, statistic)[0]
        x = b.cast("cast_out", x, c.compute_dtype)
        if times > 1:
            x = b.reshape("flatten", x, (batch, heads, 1, seq * 2 * size))
            tiled = TensorType((batch, heads, times, seq * 2 * size), x.dtype)
            x = b.emit.op("Tile", "tile", (x, Constant((1, 1, times, 1))), tiled)[0]
        x = b.reshape("chunk", x, (batch, d.value_heads, seq // c.delta_chunk, c.delta_chunk, 2 * size))
        return _split(b, "split_keys", x, 4, 2)


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
                return _product(b, "read_chunk", seen, _product(b, "solve", inverse, solved))
            last = _part(b, "cut_last", ends[0], chunk - 1, 1, 3)
            return _across(b, (query, key), (inverse, solved, seen), written, (*ends, last))
        decay = b.reshape("chunk_decay", decay, (batch, heads, chunks, chunk))
        decay = b.emit.op("CumSum", "sum_decay", (decay, Constant(3), Constant(False), Constant(False)), decay.type)[0]
        row = b.reshape("decay_row", decay, (batch, heads, chunks, 1, chunk))
        column = b.reshape("decay_column", decay, (batch, heads, chunks, chunk, 1))
        square = TensorType((batch, heads, chunks, chunk, chunk), "float32")
        between = b.emit.op("Sub", "sub_decay", (column, row), square)[0]
        between = b.binary("Add", "hide_later", between, b.table((chunk, chunk), "float32"))
        between = b.unary("Exp", "exp_between", between)
        written = b.binary("Mul", "mul_beta_key", key, beta)
        system = b.cast("cast_gram", _product(b, "gram", written, key, turns_y=True), "float32")
        system = b.binary("Mul", "mul_between", system, between)
        system = b.binary("Mul", "hide_own", system, b.table((chunk, chunk), "float32"))
        inverse = b.cast("cast_inverse", _unit_inverse(b, "inverse", system), dtype)
        solved = b.binary("Mul", "mul_beta_value", value, beta)
        seen = _product(b, "attend", query, key, turns_y=True)
        seen = b.binary("Mul", "mul_seen", seen, b.cast("cast_between", between, dtype))
        if chunks == 1:
            return _product(b, "read_chunk", seen, _product(b, "solve", inverse, solved))
        faded = b.cast("cast_since", b.unary("Exp", "exp_since", column), dtype)
        last = _part(b, "cut_last", column, chunk - 1, 1, 3)
        until = b.emit.op("Sub", "sub_last", (last, column), column.type)[0]
        until = b.cast("cast_until", b.unary("Exp", "exp_until", until), dtype)
        return _across(b, (query, key), (inverse, solved, seen), written, (faded, until, last))


def _across(
    b: Layers, read: tuple[Value, ...], chunk: tuple[Value, ...], written: Value, decays: tuple[Value, ...]
) -> Value:
    dtype = b.config.compute_dtype
    (query, key), (inverse, solved, seen), (faded, until, last) = read, chunk, decays
    size = key.shape[-1]
    written = b.binary("Mul", "mul_since_key", written, b.unary("Neg", "neg_since", faded))
    erasing, solved = _product(b, "solve_key", inverse, written), _product(b, "solve", inverse, solved)
    key = b.binary("Mul", "mul_until_key", key, until)
    if last.shape[-1] == 1:  # of a head
        last = b.cast("cast_last", b.unary("Exp", "exp_last", last), dtype)
    fading = _product(b, "fade", key, erasing, turns_x=True)
    kept = b.emit.op("Mul", "mul_kept", (last, b.table((size, size), dtype)), fading.type)[0]
    fading = b.binary("Add", "add_kept", fading, kept)
    states = _states_before(b, fading, _product(b, "write", key, solved, turns_x=True))
    values = b.binary("Add", "add_erased", solved, _product(b, "erase", erasing, states))
    before = _product(b, "read_state", b.binary("Mul", "mul_since_query", query, faded), states)
    return b.binary("Add", "add_state", _product(b, "read_chunk", seen, values), before)


def _channel_pairs(b: Layers, query: Value, key: Value, written: Value, decay: Value) -> tuple[Value, ...]:
    dtype = b.config.compute_dtype
    batch, heads, chunks, chunk, size = key.shape
    levels, tokens = levels_of(chunk), (batch, heads, chunks, chunk, size)
    with b.emit.cell("pairs", "ChannelPairs"):
        decay = b.reshape("chunk_decay", decay, (batch, heads, size, chunks, chunk))
        decay = _product(b, "sum_decays", decay, b.table((chunk, (levels + 2) * chunk), "float32"))
        faded = b.cast("cast", b.unary("Exp", "exp", b.transpose("turn", decay, (0, 1, 3, 4, 2))), dtype)
        faded = b.reshape("split_levels", faded, (batch, heads, chunks, levels + 2, chunk, size))
        pairs = _part(b, "cut_pairs", faded, 0, levels, 3)

        def faded_to_the_middle(name: str, x: Value) -> Value:
            x = b.reshape(f"widen_{name}", x, (batch, heads, chunks, 1, chunk, size))
            return b.emit.op("Mul", f"mul_{name}", (x, pairs), pairs.type)[0]

        key, written, query = (
            faded_to_the_middle(name, x) for name, x in (("key", key), ("written", written), ("query", query))
        )
        found = []
        for product, name, x in (("gram", "gram", written), ("attend", "seen", query)):
            each = _product(b, product, x, key, turns_y=True)
            each = b.binary("Mul", f"mul_{name}", each, b.table((levels, chunk, chunk), dtype))
            found.append(b.sum(f"sum_{name}", each, (3,), False))
        if chunks > 1:
            for number, name in enumerate(("since", "until")):
                end = _part(b, f"cut_{name}", faded, levels + number, 1, 3)
                found.append(b.reshape(f"join_{name}", end, tokens))
        return tuple(found)


def _unit_inverse(b: Layers, attribute: str, x: Value) -> Value:
    with b.emit.cell(attribute, "UnitInverse"):
        inverse = b.emit.op("Sub", "sub_one", (b.table(x.shape[3:], x.dtype), x), x.type)[0]
        for number in range(doublings(x.shape[-1])):
            with b.emit.cell("doublings", "CellList"), b.emit.cell(str(number), "Doubling"):
                x = _product(b, "square", x, x)
                inverse = b.binary("Add", "add", inverse, _product(b, "matmul", x, inverse))
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
                written = b.binary("Add", "add", _product(b, "matmul_written", later, began), new)
                fading = _product(b, "matmul_fading", later, first)
        batch, heads, _, size, width = written.shape
        states = _part(b, "cut_first", written, 0, 1, 2)
        shape = TensorType((batch, heads, 2, size, width), states.dtype)
        states = b.emit.op("Mul", "begin_empty", (states, b.table((2, 1, 1), states.dtype)), shape)[0]
        for level in reversed(range(levels)):
            first, began = waiting[level]
            with b.emit.cell("spreads", "CellList"), b.emit.cell(str(level), "SpreadStates"):
                between = b.binary("Add", "add", _product(b, "matmul", first, states), began)
                states = b.concat("join", [states, between], 3)
                states = b.reshape("split", states, (batch, heads, 2 * first.shape[2], size, width))
        return states


def _halves(b: Layers, name: str, x: Value) -> tuple[Value, ...]:
    """Of neighbours along the chunks the first ones and the second ones."""
    batch, heads, chunks, size, width = x.shape
    return _split(b, f"split_{name}", b.reshape(f"pair_{name}", x, (batch, heads, chunks // 2, 2 * size, width)), 3, 2)


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
