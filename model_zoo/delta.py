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
from model_zoo.delta_form import HIDDEN, KEY_EPSILON, doublings, levels_of, log2_of, pairs_of, sums_of
from model_zoo.layers import Linear, dtype_of, weight


class Decay(nn.Cell):
    """The steps softplus(x + bias) of x [batch, heads, seq, 1], at least `least`, and the decays -exp(log_decay) times the step,
    float32; of channels [batch, heads, channels, seq].
    """

    def __init__(self, config: TransformerConfig, heads: int, channels: int = 1, least: float = 0.0) -> None:
        super().__init__()
        self.channels, self.is_limited = channels, least > 0
        self.log_decay = weight((heads,), config, "zeros", trains=config.trains_base)
        self.bias = weight((heads * self.channels,), config, "ones", trains=config.trains_base)
        self.cast_step, self.cast_bias, self.cast_rate = ops.Cast(), ops.Cast(), ops.Cast()
        self.add_bias, self.softplus, self.exp_rate = ops.Add(), ops.Softplus(), ops.Exp()
        self.widen_bias, self.widen_rate = ops.Reshape(), ops.Reshape()
        self.mul_rate, self.neg = ops.Mul(), ops.Neg()
        if self.is_limited:
            self.least, self.limit = Tensor(least, ms.float32), ops.Maximum()

    def construct(self, x: Tensor) -> tuple[Tensor, Tensor]:
        heads = x.shape[1]
        bias = self.widen_bias(self.cast_bias(self.bias, ms.float32), (heads, self.channels, 1))
        rate = self.widen_rate(self.exp_rate(self.cast_rate(self.log_decay, ms.float32)), (heads, 1, 1))
        step = self.softplus(self.add_bias(self.cast_step(x, ms.float32), bias))
        step = self.limit(step, self.least) if self.is_limited else step
        return step, self.neg(self.mul_rate(step, rate))


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
    """silu of the sum of x [batch, heads, seq, size] and the tokens before, each channel with weights of its own (and a bias)."""

    def __init__(self, config: TransformerConfig, heads: int, size: int, kernel: int, has_bias: bool = False) -> None:
        super().__init__()
        self.compute_dtype, self.has_bias = dtype_of(config.compute_dtype), has_bias
        self.weight = weight((kernel, heads, 1, size), config, trains=config.trains_base)
        self.before = Tensor(np.zeros((config.batch_size, heads, kernel - 1, size), np.float16), self.compute_dtype)
        self.cast_weight, self.split_weight, self.pad = ops.Cast(), ops.Split(0, kernel), ops.Concat(axis=2)
        self.taps, self.kernel = nn.CellList([Tap(number, config.seq_length) for number in range(kernel)]), kernel
        if has_bias:
            self.bias = weight((heads * size,), config, "zeros", trains=config.trains_base)
            self.cast_bias, self.widen_bias, self.add_bias = ops.Cast(), ops.Reshape(), ops.Add()
        self.silu = SiLU()

    def construct(self, x: Tensor) -> Tensor:
        padded = self.pad((self.before, x))
        weights = self.split_weight(self.cast_weight(self.weight, self.compute_dtype))
        total = None
        for number in range(self.kernel):
            total = self.taps[number](padded, weights[number], total)
        if self.has_bias:
            _, heads, _, size = x.shape
            bias = self.widen_bias(self.cast_bias(self.bias, self.compute_dtype), (1, heads, 1, size))
            total = self.add_bias(total, bias)
        return self.silu(total)


class ChunkedKeys(nn.Cell):
    """x [batch, key_heads, seq, 2 * key_size], queries and keys, in chunks, each head as often as `times` says: twice
    [batch, heads, chunks, tokens, key_size]. `normed`: as vectors of length one.
    """

    def __init__(self, config: TransformerConfig, size: int, heads: int, times: int, normed: bool = True) -> None:
        super().__init__()
        self.compute_dtype, self.chunk_size = dtype_of(config.compute_dtype), config.chunk_tokens
        self.size, self.heads, self.times, self.is_normed = size, heads * times, times, normed
        if normed:
            self.split_pair, self.cast_in, self.cast_out = ops.Reshape(), ops.Cast(), ops.Cast()
            self.gamma = Tensor(np.full(size, size**-0.5, np.float32))
            self.norm = ops.RmsNorm(KEY_EPSILON / size)
        if self.times > 1:
            self.flatten, self.tile = ops.Reshape(), ops.Tile()
        self.chunk, self.split_keys = ops.Reshape(), ops.Split(4, 2)

    def construct(self, x: Tensor) -> tuple[Tensor, Tensor]:
        batch, heads, seq, _ = x.shape
        if self.is_normed:
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


class ChannelPairs(nn.Cell):
    """What pairs of a chunk's tokens have in common where every channel fades by itself: products of `written` and `key`, and of
    `query` and `key`, [batch, heads, chunks, tokens, tokens]. Behind them how far channels have faded since the chunk's
    beginning, and do until its end, [.., tokens, key_size].

    A pair's tokens fade towards the middle of the least block of 2, 4, … tokens that holds both. So no exponent is above zero.
    """

    def __init__(self, config: TransformerConfig, delta: DeltaSizes) -> None:
        super().__init__()
        chunk, self.chunks = config.chunk_tokens, config.seq_length // config.chunk_tokens
        self.compute_dtype, self.levels = dtype_of(config.compute_dtype), levels_of(chunk)
        self.chunk_decay, self.sums, self.sum_decays = ops.Reshape(), Tensor(sums_of(chunk)), ops.BatchMatMul()
        self.turn, self.exp, self.cast, self.split_levels = ops.Transpose(), ops.Exp(), ops.Cast(), ops.Reshape()
        self.cut_pairs, self.pairs = ops.Slice(), Tensor(pairs_of(chunk), self.compute_dtype)
        self.widen_query, self.widen_key, self.widen_written = ops.Reshape(), ops.Reshape(), ops.Reshape()
        self.mul_query, self.mul_key, self.mul_written = ops.Mul(), ops.Mul(), ops.Mul()
        self.gram, self.mul_gram = ops.BatchMatMul(transpose_b=True), ops.Mul()
        self.attend, self.mul_seen = ops.BatchMatMul(transpose_b=True), ops.Mul()
        self.sum_gram, self.sum_seen = ops.ReduceSum(), ops.ReduceSum()
        if self.chunks > 1:
            self.cut_since, self.join_since, self.cut_until, self.join_until = (
                ops.Slice(),
                ops.Reshape(),
                ops.Slice(),
                ops.Reshape(),
            )

    def construct(self, query: Tensor, key: Tensor, written: Tensor, decay: Tensor) -> tuple[Tensor, ...]:
        batch, heads, chunks, chunk, size = key.shape
        decay = self.sum_decays(self.chunk_decay(decay, (batch, heads, size, chunks, chunk)), self.sums)
        faded = self.cast(self.exp(self.turn(decay, (0, 1, 3, 4, 2))), self.compute_dtype)
        faded = self.split_levels(faded, (batch, heads, chunks, self.levels + 2, chunk, size))
        begin, shape = (0, 0, 0, 0, 0, 0), (batch, heads, chunks, self.levels, chunk, size)
        pairs, one = self.cut_pairs(faded, begin, shape), (batch, heads, chunks, 1, chunk, size)
        key = self.mul_key(self.widen_key(key, one), pairs)
        written = self.mul_written(self.widen_written(written, one), pairs)
        query = self.mul_query(self.widen_query(query, one), pairs)
        gram = self.sum_gram(self.mul_gram(self.gram(written, key), self.pairs), 3)
        seen = self.sum_seen(self.mul_seen(self.attend(query, key), self.pairs), 3)
        if self.chunks == 1:
            return gram, seen
        tokens = (batch, heads, chunks, chunk, size)
        since = self.join_since(self.cut_since(faded, (0, 0, 0, self.levels, 0, 0), one), tokens)
        until = self.join_until(self.cut_until(faded, (0, 0, 0, self.levels + 1, 0, 0), one), tokens)
        return gram, seen, since, until


class Between(nn.Cell):
    """exp(later - earlier) for pairs of sums of decays, [.., size, 1] and [.., size] -> [.., size, size], float32; zero where the
    earlier one stands behind the later one, and with the later one too if not `own`.
    """

    def __init__(self, size: int, own: bool) -> None:
        super().__init__()
        self.row, self.sub, self.hide, self.exp = ops.Reshape(), ops.Sub(), ops.Add(), ops.Exp()
        self.hidden = Tensor(np.triu(np.full((size, size), HIDDEN, np.float32), k=1 if own else 0))

    def construct(self, later: Tensor, earlier: Tensor) -> Tensor:
        row = self.row(earlier, (*earlier.shape[:-1], 1, earlier.shape[-1]))
        return self.exp(self.hide(self.sub(later, row), self.hidden))


class Fading(nn.Cell):
    """How far heads fade in chunks, of their decays [batch, heads, seq, 1]: between two tokens [batch, heads, chunks, tokens,
    tokens], float32, since a chunk's beginning and until its end [.., tokens, 1]; the decay of all of it [.., 1, 1], float32.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.chunk_size, self.compute_dtype = config.chunk_tokens, dtype_of(config.compute_dtype)
        self.chunk, self.sum, self.column = ops.Reshape(), ops.CumSum(), ops.Reshape()
        self.between, self.exp_since, self.cast_since = Between(self.chunk_size, True), ops.Exp(), ops.Cast()
        self.cut_last, self.sub_last, self.exp_until, self.cast_until = ops.Slice(), ops.Sub(), ops.Exp(), ops.Cast()

    def construct(self, decay: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        batch, heads, seq, _ = decay.shape
        chunks, chunk = seq // self.chunk_size, self.chunk_size
        decay = self.sum(self.chunk(decay, (batch, heads, chunks, chunk)), 3)
        column = self.column(decay, (batch, heads, chunks, chunk, 1))
        since = self.cast_since(self.exp_since(column), self.compute_dtype)
        last = self.cut_last(column, (0, 0, 0, chunk - 1, 0), (batch, heads, chunks, 1, 1))
        until = self.cast_until(self.exp_until(self.sub_last(last, column)), self.compute_dtype)
        return self.between(column, decay), since, until, last


class DeltaRule(nn.Cell):
    """What the tokens read, [batch, heads, chunks, tokens, value_size]; query, key and value so, beta and decay [batch, heads,
    seq, 1], a decay of channels [batch, heads, key_size, seq].
    """

    def __init__(self, config: TransformerConfig, delta: DeltaSizes) -> None:
        super().__init__()
        chunk, self.chunks = config.chunk_tokens, config.seq_length // config.chunk_tokens
        self.compute_dtype, self.by_channel = dtype_of(config.compute_dtype), delta.channel_rank > 0
        self.chunk_beta, self.mul_beta_key, self.cast_gram = ops.Reshape(), ops.Mul(), ops.Cast()
        if self.by_channel:
            self.pairs = ChannelPairs(config, delta)
        else:
            self.fading, self.cast_between = Fading(config), ops.Cast()
            self.gram, self.mul_between = ops.BatchMatMul(transpose_b=True), ops.Mul()
            self.attend, self.mul_seen = ops.BatchMatMul(transpose_b=True), ops.Mul()
        self.earlier, self.hide_own = Tensor(np.tril(np.ones((chunk, chunk), np.float32), k=-1)), ops.Mul()
        self.inverse, self.cast_inverse = UnitInverse(chunk), ops.Cast()
        self.mul_beta_value, self.solve, self.read_chunk = ops.Mul(), ops.BatchMatMul(), ops.BatchMatMul()
        if self.chunks > 1:
            self.neg_since, self.mul_since_key = ops.Neg(), ops.Mul()
            if self.by_channel:
                self.cut_last = ops.Slice()
            else:
                self.exp_last, self.cast_last = ops.Exp(), ops.Cast()
            self.solve_key, self.mul_until_key = ops.BatchMatMul(), ops.Mul()
            self.fade, self.write = ops.BatchMatMul(transpose_a=True), ops.BatchMatMul(transpose_a=True)
            self.kept = Tensor(np.eye(delta.key_size, dtype=np.float32), self.compute_dtype)
            self.mul_kept, self.add_kept = ops.Mul(), ops.Add()
            self.states, self.erase, self.add_erased = StatesBefore(config, self.chunks), ops.BatchMatMul(), ops.Add()
            self.mul_since_query, self.read_state, self.add_state = ops.Mul(), ops.BatchMatMul(), ops.Add()

    def construct(self, query: Tensor, key: Tensor, value: Tensor, beta: Tensor, decay: Tensor) -> Tensor:
        batch, heads, chunks, chunk, size = key.shape
        beta = self.chunk_beta(beta, (batch, heads, chunks, chunk, 1))
        if self.by_channel:
            written = self.mul_beta_key(key, beta)
            pairs = self.pairs(query, key, written, decay)
            system, seen = self.cast_gram(pairs[0], ms.float32), pairs[1]
            inverse = self.cast_inverse(self.inverse(self.hide_own(system, self.earlier)), self.compute_dtype)
            solved = self.mul_beta_value(value, beta)
            if self.chunks == 1:
                return self.read_chunk(seen, self.solve(inverse, solved))
            faded, until = pairs[2], pairs[3]
            last = self.cut_last(faded, (0, 0, 0, chunk - 1, 0), (batch, heads, chunks, 1, size))
            return self.across((query, key), (inverse, solved, seen), written, (faded, until, last))
        between, since, until, last = self.fading(decay)
        written = self.mul_beta_key(key, beta)
        system = self.cast_gram(self.gram(written, key), ms.float32)
        system = self.hide_own(self.mul_between(system, between), self.earlier)
        inverse = self.cast_inverse(self.inverse(system), self.compute_dtype)
        solved = self.mul_beta_value(value, beta)
        seen = self.mul_seen(self.attend(query, key), self.cast_between(between, self.compute_dtype))
        if self.chunks == 1:
            return self.read_chunk(seen, self.solve(inverse, solved))
        return self.across((query, key), (inverse, solved, seen), written, (since, until, last))

    def across(
        self, read: tuple[Tensor, ...], chunk: tuple[Tensor, ...], written: Tensor, decays: tuple[Tensor, ...]
    ) -> Tensor:
        """What comes from chunks before is added. `decays`: since a chunk's beginning, until its end, and of all of it."""
        query, key = read
        inverse, solved, seen = chunk
        faded, until, last = decays
        written = self.mul_since_key(written, self.neg_since(faded))
        erasing, solved = self.solve_key(inverse, written), self.solve(inverse, solved)
        key = self.mul_until_key(key, until)
        if not self.by_channel:
            last = self.cast_last(self.exp_last(last), self.compute_dtype)
        kept = self.mul_kept(last, self.kept)
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
    """RmsNorm of x [batch, heads, seq, size] over its last dim, times silu, or a sigmoid, of the gate."""

    def __init__(self, config: TransformerConfig, delta: DeltaSizes) -> None:
        super().__init__()
        self.compute_dtype = dtype_of(config.compute_dtype)
        self.gamma = Parameter(initializer("ones", (delta.value_size,), ms.float32), requires_grad=config.trains_base)
        # What is read is sqrt(key_size) times too long, of queries of length one: the norm takes that out.
        epsilon = (delta.norm_epsilon or config.norm_epsilon) * delta.key_size
        self.cast_in, self.norm, self.cast_out = ops.Cast(), ops.RmsNorm(epsilon), ops.Cast()
        self.is_sigmoid, self.mul = delta.channel_rank > 0, ops.Mul()
        if self.is_sigmoid:
            self.sigmoid = ops.Sigmoid()
        else:
            self.silu = SiLU()

    def construct(self, x: Tensor, gate: Tensor) -> Tensor:
        x = self.cast_out(self.norm(self.cast_in(x, ms.float32), self.gamma)[0], self.compute_dtype)
        return self.mul(x, self.sigmoid(gate) if self.is_sigmoid else self.silu(gate))


class DeltaCore(nn.Cell):
    """mixed [batch, key_heads, seq, channels] and rates [batch, value_heads, seq, 2] -> [batch, value_heads, seq, value_size].
    A key head's channels are its query, its key, and values and gates of its value heads; the rates are beta's and the decay's.
    Where channels fade by themselves `step` [batch, heads, key_size, seq] and `gate` are inputs of their own.
    """

    def __init__(self, config: TransformerConfig, delta: DeltaSizes) -> None:
        super().__init__()
        self.key_size, self.value_size, self.heads = delta.key_size, delta.value_size, delta.value_heads
        self.group_size, self.group_values, self.chunk_size = delta.group_size, delta.group_values, config.chunk_tokens
        self.by_channel = delta.channel_rank > 0
        if not self.by_channel:
            self.cut_gate, self.gate, self.cut_mixed = ops.Slice(), ValueHeads(delta), ops.Slice()
            self.split_rates = ops.Split(3, 2)
        self.joins_gate = delta.value_heads > delta.key_heads
        if self.joins_gate:
            self.join_gate = ops.Reshape()
        self.convolution = CausalConvolution(config, delta.key_heads, delta.group_size, delta.kernel)
        self.cut_keys, self.cut_value = ops.Slice(), ops.Slice()
        self.keys = ChunkedKeys(config, delta.key_size, delta.key_heads, delta.value_heads // delta.key_heads)
        self.value, self.chunk_value = ValueHeads(delta), ops.Reshape()
        self.sigmoid_beta = ops.Sigmoid()
        self.is_scaled = delta.largest_beta != 1.0
        if self.is_scaled:
            self.largest, self.scale_beta = Tensor(delta.largest_beta, dtype_of(config.compute_dtype)), ops.Mul()
        self.decay = Decay(config, delta.value_heads, delta.key_size if self.by_channel else 1)
        self.rule = DeltaRule(config, delta)
        self.join_chunks, self.norm = ops.Reshape(), GatedNorm(config, delta)

    def construct(self, mixed: Tensor, rates: Tensor, step: Tensor | None = None, gate: Tensor | None = None) -> Tensor:
        batch, heads, seq, _ = mixed.shape
        size, values = self.key_size, self.group_values
        if not self.by_channel:
            gate = self.gate(self.cut_gate(mixed, (0, 0, 0, self.group_size), (batch, heads, seq, values)))
            gate = self.join_gate(gate, (batch, self.heads, seq, self.value_size)) if self.joins_gate else gate
            mixed = self.cut_mixed(mixed, (0, 0, 0, 0), (batch, heads, seq, self.group_size))
        mixed = self.convolution(mixed)
        query, key = self.keys(self.cut_keys(mixed, (0, 0, 0, 0), (batch, heads, seq, 2 * size)))
        value = self.value(self.cut_value(mixed, (0, 0, 0, 2 * size), (batch, heads, seq, values)))
        chunks = seq // self.chunk_size
        value = self.chunk_value(value, (batch, self.heads, chunks, self.chunk_size, self.value_size))
        beta = rates
        if not self.by_channel:
            beta, step = self.split_rates(rates)
        beta = self.sigmoid_beta(beta)
        beta = self.scale_beta(beta, self.largest) if self.is_scaled else beta
        _, decay = self.decay(step)
        out = self.rule(query, key, value, beta, decay)
        return self.norm(self.join_chunks(out, (batch, self.heads, seq, self.value_size)), gate)


class GatedDelta(nn.Cell):
    """[tokens, hidden] -> [tokens, hidden]."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        delta = config.delta
        assert delta is not None
        self.seq_length, self.key_heads, self.heads = config.seq_length, delta.key_heads, delta.value_heads
        self.key_size, self.value_size, rank = delta.key_size, delta.value_size, delta.channel_rank
        self.by_channel, self.rate_num = rank > 0, 1 if rank else 2
        self.channels = delta.group_size + (0 if rank else delta.group_values)
        self.width, hidden = delta.value_heads * delta.value_size, config.hidden_size
        self.mixed = Linear(config, hidden, self.key_heads * self.channels, False)
        self.rates = Linear(config, hidden, self.rate_num * self.heads, False)
        if self.by_channel:
            self.step_down, self.step = (
                Linear(config, hidden, rank, False),
                Linear(config, rank, self.heads * self.key_size, False),
            )
            self.split_step, self.transpose_step = ops.Reshape(), ops.Transpose()
            self.split_gate, self.transpose_gate = ops.Reshape(), ops.Transpose()
        self.split_mixed, self.transpose_mixed = ops.Reshape(), ops.Transpose()
        self.split_rates, self.transpose_rates = ops.Reshape(), ops.Transpose()
        self.core, self.transpose_out, self.merge_heads = DeltaCore(config, delta), ops.Transpose(), ops.Reshape()
        self.output = Linear(config, self.width, config.hidden_size, False)
        if self.by_channel:
            self.gate_down, self.gate = Linear(config, hidden, rank, False), Linear(config, rank, self.width, False)

    def construct(self, x: Tensor) -> Tensor:
        tokens = x.shape[0]
        batch, seq = tokens // self.seq_length, self.seq_length
        mixed = self.split_mixed(self.mixed(x), (batch, seq, self.key_heads, self.channels))
        rates = self.split_rates(self.rates(x), (batch, seq, self.heads, self.rate_num))
        mixed, rates = self.transpose_mixed(mixed, (0, 2, 1, 3)), self.transpose_rates(rates, (0, 2, 1, 3))
        if self.by_channel:
            step = self.split_step(self.step(self.step_down(x)), (batch, seq, self.heads, self.key_size))
            gate = self.split_gate(self.gate(self.gate_down(x)), (batch, seq, self.heads, self.value_size))
            out = self.core(
                mixed, rates, self.transpose_step(step, (0, 2, 3, 1)), self.transpose_gate(gate, (0, 2, 1, 3))
            )
        else:
            out = self.core(mixed, rates)
        return self.output(self.merge_heads(self.transpose_out(out, (0, 2, 1, 3)), (tokens, self.width)))
