"""Gated linear attention by the delta rule (arXiv:2412.06464), as Qwen3-Next has it, from operators that MindSpore can cut.

A head keeps a state S [key_size, value_size]. A token fades it by exp(decay), takes away what it has for the token's key, and
writes the token's value there: S <- exp(decay) S (I - beta k k^T)^T + beta k v^T. What it reads is q^T S. The tokens of a chunk
are done at once (arXiv:2406.06484): their steps make up a triangular system, and a chunk as a whole a step S <- M S + N. Of the
steps of neighbouring chunks one is made, until two are left; then the states before every chunk follow (Blelloch 1990).
Exponents are never above zero. Samples and heads can be cut; the search cuts such a cell alike.
"""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import initializer
from mindspore.ops.auto_generate import SiLU

from model_zoo.config import DeltaSizes, TransformerConfig
from model_zoo.delta_form import HIDDEN, KEY_EPSILON, doublings, log2_of
from model_zoo.layers import Linear, dtype_of, weight


class Decay(nn.Cell):
    """-exp(log_decay) * softplus(x + bias) of x [batch, heads, seq, 1], float32."""

    def __init__(self, config: TransformerConfig, heads: int) -> None:
        super().__init__()
        self.log_decay = weight((heads,), config, "zeros", trains=config.trains_base)
        self.bias = weight((heads,), config, "ones", trains=config.trains_base)
        self.cast_step, self.cast_bias, self.cast_rate = ops.Cast(), ops.Cast(), ops.Cast()
        self.add_bias, self.softplus, self.exp_rate = ops.Add(), ops.Softplus(), ops.Exp()
        self.widen_bias, self.widen_rate = ops.Reshape(), ops.Reshape()
        self.mul_rate, self.neg = ops.Mul(), ops.Neg()

    def construct(self, x: Tensor) -> Tensor:
        shape = (x.shape[1], 1, 1)
        bias = self.widen_bias(self.cast_bias(self.bias, ms.float32), shape)
        rate = self.widen_rate(self.exp_rate(self.cast_rate(self.log_decay, ms.float32)), shape)
        return self.neg(self.mul_rate(self.softplus(self.add_bias(self.cast_step(x, ms.float32), bias)), rate))


class Tap(nn.Cell):
    """One of the products of a convolution, added to the `total` of those before it."""

    def __init__(self, number: int, seq_length: int) -> None:
        super().__init__()
        self.number, self.seq_length = number, seq_length
        self.shift, self.mul = ops.Slice(), ops.Mul()
        if number:
            self.add = ops.Add()

    def construct(self, padded: Tensor, weight: Tensor, total: Tensor | None) -> Tensor:
        batch, heads, _, size = padded.shape
        seen = self.mul(self.shift(padded, (0, 0, self.number, 0), (batch, heads, self.seq_length, size)), weight)
        return self.add(total, seen) if self.number else seen


class CausalConvolution(nn.Cell):
    """silu of the sum of x [batch, heads, seq, size] and the tokens before, each channel with weights of its own."""

    def __init__(self, config: TransformerConfig, delta: DeltaSizes) -> None:
        super().__init__()
        self.compute_dtype = dtype_of(config.compute_dtype)
        heads, size, kernel = delta.key_heads, delta.group_size, delta.kernel
        self.weight = weight((kernel, heads, 1, size), config, trains=config.trains_base)
        self.before = Tensor(np.zeros((config.batch_size, heads, kernel - 1, size), np.float16), self.compute_dtype)
        self.cast_weight, self.split_weight, self.pad = ops.Cast(), ops.Split(0, kernel), ops.Concat(axis=2)
        self.taps, self.kernel = nn.CellList([Tap(number, config.seq_length) for number in range(kernel)]), kernel
        self.silu = SiLU()

    def construct(self, x: Tensor) -> Tensor:
        padded = self.pad((self.before, x))
        weights = self.split_weight(self.cast_weight(self.weight, self.compute_dtype))
        total = None
        for number in range(self.kernel):
            total = self.taps[number](padded, weights[number], total)
        return self.silu(total)


class ChunkedKeys(nn.Cell):
    """x [batch, key_heads, seq, 2 * key_size], queries and keys, as vectors of length one for every value head, in chunks: twice
    [batch, value_heads, chunks, tokens, key_size].
    """

    def __init__(self, config: TransformerConfig, delta: DeltaSizes) -> None:
        super().__init__()
        self.compute_dtype, self.chunk_size = dtype_of(config.compute_dtype), config.delta_chunk
        self.size, self.heads, self.times = delta.key_size, delta.value_heads, delta.value_heads // delta.key_heads
        self.split_pair, self.cast_in, self.cast_out = ops.Reshape(), ops.Cast(), ops.Cast()
        self.gamma = Tensor(np.full(self.size, self.size**-0.5, np.float32))
        self.norm = ops.RmsNorm(KEY_EPSILON / self.size)
        if self.times > 1:
            self.flatten, self.tile = ops.Reshape(), ops.Tile()
        self.chunk, self.split_keys = ops.Reshape(), ops.Split(4, 2)

    def construct(self, x: Tensor) -> tuple[Tensor, Tensor]:
        batch, heads, seq, _ = x.shape
        x = self.split_pair(x, (batch, heads, seq, 2, self.size))
        x = self.cast_out(self.norm(self.cast_in(x, ms.float32), self.gamma)[0], self.compute_dtype)
        if self.times > 1:
            x = self.tile(self.flatten(x, (batch, heads, 1, seq * 2 * self.size)), (1, 1, self.times, 1))
        x = self.chunk(x, (batch, self.heads, seq // self.chunk_size, self.chunk_size, 2 * self.size))
        queries, keys = self.split_keys(x)
        return queries, keys


class Doubling(nn.Cell):
    """x and the product (I - a) (I + a^2) … (I + a^n), with x = a^n, one step further."""

    def __init__(self) -> None:
        super().__init__()
        self.square, self.matmul, self.add = ops.BatchMatMul(), ops.BatchMatMul(), ops.Add()

    def construct(self, x: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
        x = self.square(x, x)
        return x, self.add(inverse, self.matmul(x, inverse))


class UnitInverse(nn.Cell):
    """The inverses of I + x for strictly lower triangular matrices x [.., size, size], exact since x^size is zero."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.one, self.sub_one = Tensor(np.eye(size, dtype=np.float32)), ops.Sub()
        self.doublings = nn.CellList([Doubling() for _ in range(doublings(size))])

    def construct(self, x: Tensor) -> Tensor:
        inverse = self.sub_one(self.one, x)
        for doubling in self.doublings:
            x, inverse = doubling(x, inverse)
        return inverse


class JoinedSteps(nn.Cell):
    """Of every two neighbouring steps S <- fading S + written one, and the first ones of them; fading [batch, heads, chunks,
    key_size, key_size], written [batch, heads, chunks, key_size, value_size].
    """

    def __init__(self) -> None:
        super().__init__()
        self.pair_fading, self.split_fading = ops.Reshape(), ops.Split(3, 2)
        self.pair_written, self.split_written = ops.Reshape(), ops.Split(3, 2)
        self.matmul_fading, self.matmul_written, self.add = ops.BatchMatMul(), ops.BatchMatMul(), ops.Add()

    def construct(self, fading: Tensor, written: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        batch, heads, chunks, size, width = written.shape
        first, later = self.split_fading(self.pair_fading(fading, (batch, heads, chunks // 2, 2 * size, size)))
        began, new = self.split_written(self.pair_written(written, (batch, heads, chunks // 2, 2 * size, width)))
        written = self.add(self.matmul_written(later, began), new)
        return self.matmul_fading(later, first), written, first, began


class SpreadStates(nn.Cell):
    """The states before every step, from those before every second one and what these second ones do."""

    def __init__(self) -> None:
        super().__init__()
        self.matmul, self.add, self.join, self.split = ops.BatchMatMul(), ops.Add(), ops.Concat(axis=3), ops.Reshape()

    def construct(self, states: Tensor, first: Tensor, began: Tensor) -> Tensor:
        batch, heads, chunks, size, width = states.shape
        states = self.join((states, self.add(self.matmul(first, states), began)))
        return self.split(states, (batch, heads, 2 * chunks, size, width))


class StatesBefore(nn.Cell):
    """The states before each of a row of steps (see `JoinedSteps`), of which the first is empty."""

    def __init__(self, config: TransformerConfig, chunks: int) -> None:
        super().__init__()
        self.levels = log2_of(chunks) - 1
        self.joins = nn.CellList([JoinedSteps() for _ in range(self.levels)])
        self.spreads = nn.CellList([SpreadStates() for _ in range(self.levels)])
        self.cut_first, self.begin_empty = ops.Slice(), ops.Mul()
        self.second = Tensor(np.array([0, 1], np.float32)[:, None, None], dtype_of(config.compute_dtype))

    def construct(self, fading: Tensor, written: Tensor) -> Tensor:
        waiting: tuple[tuple[Tensor, Tensor], ...] = ()
        for join in self.joins:
            fading, written, first, began = join(fading, written)
            waiting = (*waiting, (first, began))
        batch, heads, _, size, width = written.shape
        states = self.begin_empty(self.cut_first(written, (0, 0, 0, 0, 0), (batch, heads, 1, size, width)), self.second)
        for back in range(self.levels):
            level = self.levels - 1 - back
            states = self.spreads[level](states, waiting[level][0], waiting[level][1])
        return states


class DeltaRule(nn.Cell):
    """What the tokens read, [batch, heads, chunks, tokens, value_size]; query, key and value so, beta and decay [batch, heads,
    seq, 1].
    """

    def __init__(self, config: TransformerConfig, delta: DeltaSizes) -> None:
        super().__init__()
        chunk, self.chunks = config.delta_chunk, config.seq_length // config.delta_chunk
        self.compute_dtype = dtype_of(config.compute_dtype)
        self.chunk_beta, self.chunk_decay, self.sum_decay = ops.Reshape(), ops.Reshape(), ops.CumSum()
        self.decay_row, self.decay_column, self.sub_decay = ops.Reshape(), ops.Reshape(), ops.Sub()
        self.later = Tensor(np.triu(np.full((chunk, chunk), HIDDEN, np.float32), k=1))
        self.hide_later, self.exp_between, self.cast_between = ops.Add(), ops.Exp(), ops.Cast()
        self.mul_beta_key, self.gram, self.cast_gram = ops.Mul(), ops.BatchMatMul(transpose_b=True), ops.Cast()
        self.earlier = Tensor(np.tril(np.ones((chunk, chunk), np.float32), k=-1))
        self.mul_between, self.hide_own = ops.Mul(), ops.Mul()
        self.inverse, self.cast_inverse = UnitInverse(chunk), ops.Cast()
        self.mul_beta_value, self.solve = ops.Mul(), ops.BatchMatMul()
        self.attend, self.mul_seen, self.read_chunk = ops.BatchMatMul(transpose_b=True), ops.Mul(), ops.BatchMatMul()
        if self.chunks > 1:
            self.exp_since, self.cast_since, self.neg_since, self.mul_since_key = (
                ops.Exp(),
                ops.Cast(),
                ops.Neg(),
                ops.Mul(),
            )
            self.cut_last, self.sub_last, self.exp_until, self.cast_until = (
                ops.Slice(),
                ops.Sub(),
                ops.Exp(),
                ops.Cast(),
            )
            self.solve_key, self.mul_until_key = ops.BatchMatMul(), ops.Mul()
            self.fade, self.write = ops.BatchMatMul(transpose_a=True), ops.BatchMatMul(transpose_a=True)
            self.kept = Tensor(np.eye(delta.key_size, dtype=np.float32), self.compute_dtype)
            self.exp_last, self.cast_last, self.mul_kept, self.add_kept = ops.Exp(), ops.Cast(), ops.Mul(), ops.Add()
            self.states, self.erase, self.add_erased = StatesBefore(config, self.chunks), ops.BatchMatMul(), ops.Add()
            self.mul_since_query, self.read_state, self.add_state = ops.Mul(), ops.BatchMatMul(), ops.Add()

    def construct(self, query: Tensor, key: Tensor, value: Tensor, beta: Tensor, decay: Tensor) -> Tensor:
        batch, heads, chunks, chunk, _ = key.shape
        beta = self.chunk_beta(beta, (batch, heads, chunks, chunk, 1))
        decay = self.sum_decay(self.chunk_decay(decay, (batch, heads, chunks, chunk)), 3)
        row = self.decay_row(decay, (batch, heads, chunks, 1, chunk))
        column = self.decay_column(decay, (batch, heads, chunks, chunk, 1))
        between = self.exp_between(self.hide_later(self.sub_decay(column, row), self.later))
        written = self.mul_beta_key(key, beta)
        system = self.cast_gram(self.gram(written, key), ms.float32)
        system = self.hide_own(self.mul_between(system, between), self.earlier)
        inverse = self.cast_inverse(self.inverse(system), self.compute_dtype)
        solved = self.mul_beta_value(value, beta)
        seen = self.mul_seen(self.attend(query, key), self.cast_between(between, self.compute_dtype))
        if self.chunks == 1:
            return self.read_chunk(seen, self.solve(inverse, solved))
        faded = self.cast_since(self.exp_since(column), self.compute_dtype)
        last = self.cut_last(column, (0, 0, 0, chunk - 1, 0), (batch, heads, chunks, 1, 1))
        until = self.cast_until(self.exp_until(self.sub_last(last, column)), self.compute_dtype)
        written = self.mul_since_key(written, self.neg_since(faded))
        erasing, solved = self.solve_key(inverse, written), self.solve(inverse, solved)
        key = self.mul_until_key(key, until)
        kept = self.mul_kept(self.cast_last(self.exp_last(last), self.compute_dtype), self.kept)
        states = self.states(self.add_kept(self.fade(key, erasing), kept), self.write(key, solved))
        values = self.add_erased(solved, self.erase(erasing, states))
        before = self.read_state(self.mul_since_query(query, faded), states)
        return self.add_state(self.read_chunk(seen, values), before)


class ValueHeads(nn.Cell):
    """[batch, key_heads, seq, values of each] -> [batch, key_heads, value heads of each, seq, value_size]; where each has one, as
    it is.
    """

    def __init__(self, delta: DeltaSizes) -> None:
        super().__init__()
        self.size, self.times = delta.value_size, delta.value_heads // delta.key_heads
        if self.times > 1:
            self.split, self.transpose = ops.Reshape(), ops.Transpose()

    def construct(self, x: Tensor) -> Tensor:
        batch, heads, seq, _ = x.shape
        if self.times == 1:
            return x
        return self.transpose(self.split(x, (batch, heads, seq, self.times, self.size)), (0, 1, 3, 2, 4))


class GatedNorm(nn.Cell):
    """RmsNorm of x [batch, heads, seq, size] over its last dim, times silu of the gate."""

    def __init__(self, config: TransformerConfig, delta: DeltaSizes) -> None:
        super().__init__()
        self.compute_dtype = dtype_of(config.compute_dtype)
        self.gamma = Parameter(initializer("ones", (delta.value_size,), ms.float32), requires_grad=config.trains_base)
        # What is read is sqrt(key_size) times too long, of queries of length one: the norm takes that out.
        epsilon = (delta.norm_epsilon or config.norm_epsilon) * delta.key_size
        self.cast_in, self.norm, self.cast_out = ops.Cast(), ops.RmsNorm(epsilon), ops.Cast()
        self.silu, self.mul = SiLU(), ops.Mul()

    def construct(self, x: Tensor, gate: Tensor) -> Tensor:
        x = self.cast_out(self.norm(self.cast_in(x, ms.float32), self.gamma)[0], self.compute_dtype)
        return self.mul(x, self.silu(gate))


class DeltaCore(nn.Cell):
    """mixed [batch, key_heads, seq, channels] and rates [batch, value_heads, seq, 2] -> [batch, value_heads, seq, value_size].
    A key head's channels are its query, its key, and values and gates of its value heads; the rates are beta's and the decay's.
    """

    def __init__(self, config: TransformerConfig, delta: DeltaSizes) -> None:
        super().__init__()
        self.key_size, self.value_size, self.heads = delta.key_size, delta.value_size, delta.value_heads
        self.group_size, self.group_values, self.chunk_size = delta.group_size, delta.group_values, config.delta_chunk
        self.cut_gate, self.gate, self.cut_mixed = ops.Slice(), ValueHeads(delta), ops.Slice()
        self.joins_gate = delta.value_heads > delta.key_heads
        if self.joins_gate:
            self.join_gate = ops.Reshape()
        self.convolution = CausalConvolution(config, delta)
        self.cut_keys, self.keys, self.cut_value = ops.Slice(), ChunkedKeys(config, delta), ops.Slice()
        self.value, self.chunk_value = ValueHeads(delta), ops.Reshape()
        self.split_rates, self.sigmoid_beta = ops.Split(3, 2), ops.Sigmoid()
        self.is_scaled = delta.largest_beta != 1.0
        if self.is_scaled:
            self.largest, self.scale_beta = Tensor(delta.largest_beta, dtype_of(config.compute_dtype)), ops.Mul()
        self.decay, self.rule = Decay(config, delta.value_heads), DeltaRule(config, delta)
        self.join_chunks, self.norm = ops.Reshape(), GatedNorm(config, delta)

    def construct(self, mixed: Tensor, rates: Tensor) -> Tensor:
        batch, heads, seq, _ = mixed.shape
        size, values = self.key_size, self.group_values
        gate = self.gate(self.cut_gate(mixed, (0, 0, 0, self.group_size), (batch, heads, seq, values)))
        gate = self.join_gate(gate, (batch, self.heads, seq, self.value_size)) if self.joins_gate else gate
        mixed = self.convolution(self.cut_mixed(mixed, (0, 0, 0, 0), (batch, heads, seq, self.group_size)))
        query, key = self.keys(self.cut_keys(mixed, (0, 0, 0, 0), (batch, heads, seq, 2 * size)))
        value = self.value(self.cut_value(mixed, (0, 0, 0, 2 * size), (batch, heads, seq, values)))
        chunks = seq // self.chunk_size
        value = self.chunk_value(value, (batch, self.heads, chunks, self.chunk_size, self.value_size))
        beta, step = self.split_rates(rates)
        beta = self.sigmoid_beta(beta)
        beta = self.scale_beta(beta, self.largest) if self.is_scaled else beta
        out = self.rule(query, key, value, beta, self.decay(step))
        return self.norm(self.join_chunks(out, (batch, self.heads, seq, self.value_size)), gate)


class GatedDelta(nn.Cell):
    """[tokens, hidden] -> [tokens, hidden]."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        delta = config.delta
        assert delta is not None
        self.seq_length, self.key_heads, self.heads = config.seq_length, delta.key_heads, delta.value_heads
        self.channels, self.width = delta.group_size + delta.group_values, delta.value_heads * delta.value_size
        self.mixed = Linear(config, config.hidden_size, self.key_heads * self.channels, False)
        self.rates = Linear(config, config.hidden_size, 2 * self.heads, False)
        self.split_mixed, self.transpose_mixed = ops.Reshape(), ops.Transpose()
        self.split_rates, self.transpose_rates = ops.Reshape(), ops.Transpose()
        self.core, self.transpose_out, self.merge_heads = DeltaCore(config, delta), ops.Transpose(), ops.Reshape()
        self.output = Linear(config, self.width, config.hidden_size, False)

    def construct(self, x: Tensor) -> Tensor:
        tokens = x.shape[0]
        batch, seq = tokens // self.seq_length, self.seq_length
        mixed = self.split_mixed(self.mixed(x), (batch, seq, self.key_heads, self.channels))
        rates = self.split_rates(self.rates(x), (batch, seq, self.heads, 2))
        out = self.core(self.transpose_mixed(mixed, (0, 2, 1, 3)), self.transpose_rates(rates, (0, 2, 1, 3)))
        return self.output(self.merge_heads(self.transpose_out(out, (0, 2, 1, 3)), (tokens, self.width)))
