"""State-space layers in the dual form of Mamba-2 (arXiv:2405.21060), from operators that MindSpore can cut.

A head keeps a state S [state_size, head_size]. A token fades it by exp(decay) and writes to it: S <- exp(decay) S + step k v^T.
It reads q^T S. That is the delta rule without what it takes away, so that cells of `delta.py` do what both share. A head fades by
a number: so the states before all chunks are one product with a triangular matrix, as what the tokens of a chunk read is one.
Queries and keys are those of a group of heads. Steps, decays and the norm are float32, products of the compute type.
"""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import initializer
from mindspore.ops.auto_generate import SiLU

from model_zoo.config import StateSpaceSizes, TransformerConfig
from model_zoo.delta import Between, CausalConvolution, ChunkedKeys, Decay, Fading
from model_zoo.layers import Linear, dtype_of, weight


class ChunkStates(nn.Cell):
    """The states before every chunk, [batch, heads, chunks, state_size, head_size], of what chunks write, of that shape, and how
    they fade, [batch, heads, chunks, 1, 1], float32.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        chunks = config.seq_length // config.chunk_tokens
        self.compute_dtype, self.flatten = dtype_of(config.compute_dtype), ops.Reshape()
        self.sum, self.sum_before, self.column = ops.CumSum(), ops.CumSum(exclusive=True), ops.Reshape()
        self.between, self.cast_between = Between(chunks, own=False), ops.Cast()
        self.join, self.matmul, self.split = ops.Reshape(), ops.BatchMatMul(), ops.Reshape()

    def construct(self, written: Tensor, decay: Tensor) -> Tensor:
        batch, heads, chunks, size, width = written.shape
        decay = self.flatten(decay, (batch, heads, chunks))
        before = self.column(self.sum_before(decay, 2), (batch, heads, chunks, 1))
        between = self.cast_between(self.between(before, self.sum(decay, 2)), self.compute_dtype)
        states = self.matmul(between, self.join(written, (batch, heads, chunks, size * width)))
        return self.split(states, (batch, heads, chunks, size, width))


class StateSpaceCore(nn.Cell):
    """value [batch, heads, seq, head_size], key [batch, groups, seq, 2 * state_size], queries and keys, and step [batch, heads,
    seq, 1] -> [batch, heads, seq, head_size].
    """

    def __init__(self, config: TransformerConfig, sizes: StateSpaceSizes) -> None:
        super().__init__()
        self.compute_dtype, self.chunk_size = dtype_of(config.compute_dtype), config.chunk_tokens
        self.skip = weight((sizes.heads,), config, "ones", trains=config.trains_base)
        width, has_bias = 2 * sizes.state_size, sizes.conv_bias
        self.key_convolution = CausalConvolution(config, sizes.groups, width, sizes.kernel, has_bias)
        self.convolution = CausalConvolution(config, sizes.heads, sizes.head_size, sizes.kernel, has_bias)
        self.decay, self.fading = Decay(config, sizes.heads, least=sizes.least_step), Fading(config)
        self.keys = ChunkedKeys(config, sizes.state_size, sizes.groups, sizes.key_times, normed=False)
        self.chunk_value, self.chunk_step, self.cast_step, self.mul_step = (
            ops.Reshape(), ops.Reshape(), ops.Cast(), ops.Mul()
        )  # fmt: skip
        self.attend, self.cast_between, self.mul_seen = ops.BatchMatMul(transpose_b=True), ops.Cast(), ops.Mul()
        self.read_chunk, self.has_states = ops.BatchMatMul(), config.seq_length > config.chunk_tokens
        if self.has_states:
            self.mul_until, self.write = ops.Mul(), ops.BatchMatMul(transpose_a=True)
            self.states, self.read_state = ChunkStates(config), ops.BatchMatMul()
            self.mul_since, self.add_state = ops.Mul(), ops.Add()
        self.cast_skip, self.widen_skip, self.mul_skip, self.add_skip = ops.Cast(), ops.Reshape(), ops.Mul(), ops.Add()
        self.join_chunks = ops.Reshape()

    def construct(self, value: Tensor, key: Tensor, step: Tensor) -> Tensor:
        batch, heads, seq, size = value.shape
        chunks, chunk = seq // self.chunk_size, self.chunk_size
        query, key = self.keys(self.key_convolution(key))
        value = self.chunk_value(self.convolution(value), (batch, heads, chunks, chunk, size))
        step, decay = self.decay(step)
        between, since, until, last = self.fading(decay)
        step = self.chunk_step(self.cast_step(step, self.compute_dtype), (batch, heads, chunks, chunk, 1))
        written = self.mul_step(value, step)
        seen = self.mul_seen(self.cast_between(between, self.compute_dtype), self.attend(query, key))
        out = self.read_chunk(seen, written)
        if self.has_states:
            states = self.states(self.write(key, self.mul_until(written, until)), last)
            out = self.add_state(out, self.mul_since(self.read_state(query, states), since))
        skip = self.widen_skip(self.cast_skip(self.skip, self.compute_dtype), (1, heads, 1, 1, 1))
        out = self.add_skip(out, self.mul_skip(value, skip))
        return self.join_chunks(out, (batch, heads, seq, size))


class GroupedNorm(nn.Cell):
    """RmsNorm of x [tokens, width] times silu of the gate, over the channels of each group of heads."""

    def __init__(self, config: TransformerConfig, sizes: StateSpaceSizes) -> None:
        super().__init__()
        self.compute_dtype, self.groups = dtype_of(config.compute_dtype), sizes.groups
        self.width, self.size = sizes.width, sizes.width // sizes.groups
        self.gamma = Parameter(initializer("ones", (self.width,), ms.float32), requires_grad=config.trains_base)
        self.cast_in, self.cast_gate, self.cast_out = ops.Cast(), ops.Cast(), ops.Cast()
        self.silu, self.mul_gate, self.norm = SiLU(), ops.Mul(), ops.RmsNorm(config.norm_epsilon)
        if self.groups > 1:
            self.one = Tensor(np.ones(self.size, np.float32))
            self.split, self.join, self.mul_gamma = ops.Reshape(), ops.Reshape(), ops.Mul()

    def construct(self, x: Tensor, gate: Tensor) -> Tensor:
        x = self.mul_gate(self.cast_in(x, ms.float32), self.silu(self.cast_gate(gate, ms.float32)))
        if self.groups == 1:
            return self.cast_out(self.norm(x, self.gamma)[0], self.compute_dtype)
        tokens = x.shape[0]
        x = self.norm(self.split(x, (tokens, self.groups, self.size)), self.one)[0]
        return self.cast_out(self.mul_gamma(self.join(x, (tokens, self.width)), self.gamma), self.compute_dtype)


class StateSpace(nn.Cell):
    """[tokens, hidden] -> [tokens, hidden]."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        sizes = config.state_space
        assert sizes is not None
        self.seq_length, self.heads, self.head_size = config.seq_length, sizes.heads, sizes.head_size
        self.groups, self.state_size, self.width = sizes.groups, sizes.state_size, sizes.width
        hidden, has_bias = config.hidden_size, sizes.bias
        self.key = Linear(config, hidden, 2 * sizes.groups * sizes.state_size, has_bias)
        self.value = Linear(config, hidden, sizes.width, has_bias)
        self.step = Linear(config, hidden, sizes.heads, has_bias)
        self.split_key, self.transpose_key = ops.Reshape(), ops.Transpose()
        self.split_value, self.transpose_value = ops.Reshape(), ops.Transpose()
        self.split_step, self.transpose_step = ops.Reshape(), ops.Transpose()
        self.core, self.transpose_out, self.merge_heads = StateSpaceCore(config, sizes), ops.Transpose(), ops.Reshape()
        self.output = Linear(config, sizes.width, hidden, has_bias)
        self.gate, self.norm = Linear(config, hidden, sizes.width, has_bias), GroupedNorm(config, sizes)

    def construct(self, x: Tensor) -> Tensor:
        tokens, seq, turned = x.shape[0], self.seq_length, (0, 2, 1, 3)
        batch = tokens // seq
        key = self.split_key(self.key(x), (batch, seq, self.groups, 2 * self.state_size))
        value = self.split_value(self.value(x), (batch, seq, self.heads, self.head_size))
        step = self.split_step(self.step(x), (batch, seq, self.heads, 1))
        key, value = self.transpose_key(key, turned), self.transpose_value(value, turned)
        out = self.core(value, key, self.transpose_step(step, turned))
        out = self.merge_heads(self.transpose_out(out, turned), (tokens, self.width))
        return self.output(self.norm(out, self.gate(x)))
