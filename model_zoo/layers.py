"""The layers of the networks as MindSpore Cells, written so that every operator can be given a strategy of its own.

Every occurrence of an operator is a primitive object of its own, an attribute of its cell. Between operators,
activations are 2-D, [tokens, hidden] with tokens = batch * sequence, so that a strategy can cut tokens by any degree
(sequence parallelism); only attention looks at [batch, sequence, heads, head_dim]. Weights are stored in `param_dtype`
and cast to `compute_dtype` where they are used; norms, with their weights, softmax and loss are in float32.
"""

import math
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import initializer
from mindspore.ops.auto_generate import SiLU
from mindspore.ops.operations.nn_ops import FlashAttentionScore

from model_zoo.config import COMPRESSED_MASK_SIZE, TransformerConfig
from model_zoo.distance import DistanceBias

CAUSAL_SPARSE_MODE, BAND_SPARSE_MODE = 2, 4
MASKED_SCORE = -10000.0  # added to the score of a hidden position; float16 can hold it


def dtype_of(name: str) -> Any:
    return getattr(ms, name)


def weight(shape: tuple[int, ...], config: TransformerConfig, init: str = "normal", trains: bool = True) -> Parameter:
    """A parameter that trains, or a frozen one in the compute type."""
    dtype = config.param_dtype if trains else config.compute_dtype
    return Parameter(initializer(init, shape, dtype_of(dtype)), requires_grad=trains)


def matrix(shape: tuple[int, ...], config: TransformerConfig) -> Parameter:
    """The weight of a linear layer or of experts; in 8 bits where they have scales."""
    if config.has_scales:
        return Parameter(initializer("zeros", shape, ms.int8), requires_grad=False)
    return weight(shape, config, trains=config.trains_base)


class LowRank(nn.Cell):
    """What adapts a linear layer: (alpha / rank) (x down^T) up^T, of x [tokens, in] -> [tokens, out]."""

    def __init__(self, config: TransformerConfig, in_size: int, out_size: int) -> None:
        super().__init__()
        assert config.lora is not None
        self.compute_dtype = dtype_of(config.compute_dtype)
        self.up = weight((out_size, config.lora.rank), config, "zeros")
        self.down = weight((config.lora.rank, in_size), config)
        self.scale = Tensor(config.lora.alpha / config.lora.rank, self.compute_dtype)
        self.cast_down, self.cast_up = ops.Cast(), ops.Cast()
        self.matmul_down, self.matmul_up = ops.MatMul(transpose_b=True), ops.MatMul(transpose_b=True)
        self.mul_scale = ops.Mul()

    def construct(self, x: Tensor) -> Tensor:
        x = self.matmul_down(x, self.cast_down(self.down, self.compute_dtype))
        x = self.matmul_up(x, self.cast_up(self.up, self.compute_dtype))
        return self.mul_scale(x, self.scale)


class Linear(nn.Cell):
    """x [tokens, in] @ weight [out, in] transposed (* scale [out]) (+ bias [out]) (+ what adapts it) -> [tokens, out].

    `is_whole`: without a scale in any case.
    """

    def __init__(
        self, config: TransformerConfig, in_size: int, out_size: int, has_bias: bool, is_whole: bool = False
    ) -> None:
        super().__init__()
        self.has_scale = config.has_scales and not is_whole
        self.weight = (weight if is_whole else matrix)((out_size, in_size), config)
        if self.has_scale:
            self.scale, self.mul_scale = weight((out_size,), config), ops.Mul()
        self.has_bias = has_bias
        self.compute_dtype = dtype_of(config.compute_dtype)
        self.cast_weight = ops.Cast()
        self.matmul = ops.MatMul(transpose_b=True)
        if has_bias:
            self.bias = weight((out_size,), config, "zeros", trains=config.trains_base)
            self.cast_bias = ops.Cast()
            self.add_bias = ops.Add()
        self.is_adapted = config.lora is not None
        if self.is_adapted:
            self.low_rank, self.add_low_rank = LowRank(config, in_size, out_size), ops.Add()

    def construct(self, x: Tensor) -> Tensor:
        y = self.matmul(x, self.cast_weight(self.weight, self.compute_dtype))
        if self.has_scale:
            y = self.mul_scale(y, self.scale)
        if self.has_bias:
            y = self.add_bias(y, self.cast_bias(self.bias, self.compute_dtype))
        if self.is_adapted:
            y = self.add_low_rank(y, self.low_rank(x))
        return y


class Norm(nn.Cell):
    """RmsNorm or LayerNorm over the last dim, of size `width`, computed in float32, with constants for what it does not learn."""

    def __init__(self, config: TransformerConfig, width: int, has_weight: bool = True) -> None:
        super().__init__()
        self.compute_dtype = dtype_of(config.compute_dtype)
        self.is_rms_norm = config.norm == "rms_norm"
        self.cast_in, self.cast_out = ops.Cast(), ops.Cast()
        if has_weight and config.norm != "layer_norm_no_weight":
            self.gamma = Parameter(initializer("ones", (width,), ms.float32), requires_grad=config.trains_base)
        else:
            self.gamma = Tensor(np.ones(width, np.float32))
        if self.is_rms_norm:
            self.norm = ops.RmsNorm(config.norm_epsilon)
        else:
            self.beta = Tensor(np.zeros(width, np.float32))
            if config.norm == "layer_norm":
                self.beta = Parameter(initializer("zeros", (width,), ms.float32), requires_grad=config.trains_base)
            self.norm = ops.LayerNorm(begin_norm_axis=-1, begin_params_axis=-1, epsilon=config.norm_epsilon)

    def construct(self, x: Tensor) -> Tensor:
        x = self.cast_in(x, ms.float32)
        x = self.norm(x, self.gamma)[0] if self.is_rms_norm else self.norm(x, self.gamma, self.beta)[0]
        return self.cast_out(x, self.compute_dtype)


def rotary_tables(config: TransformerConfig, base: float = 0.0) -> tuple[Tensor, Tensor]:
    """cos and sin of the rotary angles, each [seq_length, 1, rotary_size]; the first half of sin is negated.

    With the sign in the table, x * cos + swap_halves(x) * sin is the rotation, one operator fewer for every use. Dims that are
    not rotated have cos 1 and sin 0. `base` 0: the network's.
    """
    return tables_of(config, _angles(config, config.seq_length, base))


def tables_of(config: TransformerConfig, angle: np.ndarray) -> tuple[Tensor, Tensor]:
    """As `rotary_tables`, of the angles [seq_length, half of what is rotated]."""
    cos, sin = _turned(config, angle)
    dtype = dtype_of(config.compute_dtype)
    return Tensor(cos[:, None], dtype), Tensor(sin[:, None], dtype)


def position_tables(config: TransformerConfig, positions: int) -> tuple[Tensor, Tensor]:
    """The same for so many positions, each [positions, rotary_size]."""
    cos, sin = _turned(config, _angles(config, positions, config.kind(0).rotary_base))
    return Tensor(cos, dtype_of(config.compute_dtype)), Tensor(sin, dtype_of(config.compute_dtype))


def _angles(config: TransformerConfig, positions: int, base: float) -> np.ndarray:
    half = (config.rotated_size or config.rotary_size) // 2
    frequency = (base or config.rotary_base) ** -(np.arange(half, dtype=np.float32) / half)
    return np.outer(np.arange(positions, dtype=np.float32), frequency)


def _turned(config: TransformerConfig, angle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    positions, half = angle.shape
    rotated = 2 * half
    rest = np.zeros((positions, config.rotary_size - rotated), np.float32)
    cos = np.concatenate([np.cos(angle), np.cos(angle), rest + 1], axis=-1).astype(np.float32)
    sin = np.concatenate([-np.sin(angle), np.sin(angle), rest], axis=-1).astype(np.float32)
    return cos, sin


def halves_swapped(config: TransformerConfig) -> Tensor:
    """The permutation [rotary_size, rotary_size] that swaps the halves of what is rotated, exactly."""
    rotated = config.rotated_size or config.rotary_size
    swapped = np.eye(config.rotary_size, dtype=np.float32)
    swapped[:rotated, :rotated] = np.roll(np.eye(rotated, dtype=np.float32), rotated // 2, axis=0)
    return Tensor(swapped, dtype_of(config.compute_dtype))


class RotaryEmbedding(nn.Cell):
    """Rotates x [batch, seq, heads, head_dim] by its positions; head_dim stays whole, the other dims can be cut.

    Halves are swapped by the cube unit, as MindFormers does by default: two slices and a Concat are three operators, each with
    a gradient of its own, and read and write x four times.
    """

    def __init__(self, config: TransformerConfig, tables: tuple[Tensor, Tensor]) -> None:
        super().__init__()
        self.cos, self.sin = tables
        self.swap = halves_swapped(config)
        self.swap_halves = ops.BatchMatMul()
        self.mul_cos, self.mul_sin, self.add = ops.Mul(), ops.Mul(), ops.Add()

    def construct(self, x: Tensor) -> Tensor:
        swapped = self.swap_halves(x, self.swap)
        return self.add(self.mul_cos(x, self.cos), self.mul_sin(swapped, self.sin))


class Rotation(nn.Cell):
    """Rotates x [batch, seq, heads, head_dim] by cos and sin [batch, seq, 1, head_dim]; see `RotaryEmbedding`."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.swap = halves_swapped(config)
        self.swap_halves = ops.BatchMatMul()
        self.mul_cos, self.mul_sin, self.add = ops.Mul(), ops.Mul(), ops.Add()

    def construct(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        swapped = self.swap_halves(x, self.swap)
        return self.add(self.mul_cos(x, cos), self.mul_sin(swapped, sin))


class FlashAttention(nn.Cell):
    """Fused attention on [batch, seq, heads, head_dim]; key and value may have fewer heads. `window`: see `BlockKind`.

    Where the network has an indexer, `hidden` [batch, 1, seq, seq] says which keys a query does not see.
    """

    def __init__(self, config: TransformerConfig, mask: Tensor | None, window: int = 0) -> None:
        super().__init__()
        self.is_sparse, self.mask = config.indexer is not None, mask
        causal = CAUSAL_SPARSE_MODE if config.causal and not self.is_sparse else 0
        band = {"pre_tokens": window - 1, "next_tokens": 0, "sparse_mode": BAND_SPARSE_MODE}
        self.flash_attention = FlashAttentionScore(
            head_num=config.num_heads,
            scale_value=1.0 / math.sqrt(config.score_size or config.head_dim),
            input_layout="BSND",
            **(band if window else {"sparse_mode": causal}),
        )

    def construct(self, query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None = None) -> Tensor:
        mask = hidden if self.is_sparse else self.mask
        return self.flash_attention(query, key, value, None, None, None, mask, None, None, None)[3]


class RepeatHeads(nn.Cell):
    """Every head `times` times in a row: [batch, kv_heads, seq, head_dim] -> [batch, heads, seq, head_dim]."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times
        self.flatten, self.tile, self.unflatten = ops.Reshape(), ops.Tile(), ops.Reshape()

    def construct(self, x: Tensor) -> Tensor:
        batch, heads, seq, head_dim = x.shape
        x = self.flatten(x, (batch, heads, 1, seq * head_dim))
        x = self.tile(x, (1, 1, self.times, 1))
        return self.unflatten(x, (batch, heads * self.times, seq, head_dim))


class Cap(nn.Cell):
    """limit * tanh(scale * x / limit): what is small stays, nothing is larger than the limit (Gemma 2)."""

    def __init__(self, limit: float, dtype: Any, scale: float = 1.0) -> None:
        super().__init__()
        self.scale, self.limit = Tensor(scale / limit, dtype), Tensor(limit, dtype)
        self.mul_scale, self.tanh, self.mul_limit = ops.Mul(), ops.Tanh(), ops.Mul()

    def construct(self, x: Tensor) -> Tensor:
        return self.mul_limit(self.tanh(self.mul_scale(x, self.scale)), self.limit)


class SinkSoftmax(nn.Cell):
    """exp(x) / (sum of exp(x) + exp(sink)) over the last dim of x [batch, heads, seq, keys], float32; a sink for every head."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.heads = config.num_heads
        self.sink = weight((config.num_heads,), config, "zeros", trains=config.trains_base)
        self.cast_sink, self.widen_sink = ops.Cast(), ops.Reshape()
        self.max, self.stop_gradient, self.sub_max = ops.ReduceMax(keep_dims=True), ops.StopGradient(), ops.Sub()
        self.exp, self.sum_exp = ops.Exp(), ops.ReduceSum(keep_dims=True)
        self.sub_sink, self.exp_sink, self.add_sink, self.div = ops.Sub(), ops.Exp(), ops.Add(), ops.RealDiv()

    def construct(self, x: Tensor) -> Tensor:
        # The maximum only guards exp against overflow: the result does not depend on it.
        peak = self.stop_gradient(self.max(x, -1))
        scores = self.exp(self.sub_max(x, peak))
        sink = self.widen_sink(self.cast_sink(self.sink, ms.float32), (1, self.heads, 1, 1))
        return self.div(scores, self.add_sink(self.sum_exp(scores, -1), self.exp_sink(self.sub_sink(sink, peak))))


class CoreAttention(nn.Cell):
    """softmax(query key^T / sqrt(score_size) + mask) value from plain operators, on [batch, seq, heads, head_dim]; `hidden` as of
    `FlashAttention`.
    """

    def __init__(self, config: TransformerConfig, mask: Tensor | None) -> None:
        super().__init__()
        self.compute_dtype = dtype_of(config.compute_dtype)
        self.mask, self.causal, self.is_sparse = mask, config.causal, config.indexer is not None
        if self.is_sparse:
            self.masked_score = Tensor(MASKED_SCORE, self.compute_dtype)
            self.cast_hidden, self.mul_hidden = ops.Cast(), ops.Mul()
        self.transpose_query, self.transpose_key = ops.Transpose(), ops.Transpose()
        self.transpose_value, self.transpose_out = ops.Transpose(), ops.Transpose()
        self.repeats_heads = config.n_kv_heads < config.num_heads
        if self.repeats_heads:
            times = config.num_heads // config.n_kv_heads
            self.repeat_key, self.repeat_value = RepeatHeads(times), RepeatHeads(times)
        scale = 1.0 / math.sqrt(config.score_size or config.head_dim)
        self.score = ops.BatchMatMul(transpose_b=True)
        self.is_capped = config.score_cap > 0
        if self.is_capped:
            self.cap = Cap(config.score_cap, self.compute_dtype, scale)
        else:
            self.scale, self.mul_scale = Tensor(scale, self.compute_dtype), ops.Mul()
        self.add_mask = ops.Add()
        self.cast_score, self.cast_probability = ops.Cast(), ops.Cast()
        self.softmax = SinkSoftmax(config) if config.sinks else ops.Softmax(axis=-1)
        self.weighted_sum = ops.BatchMatMul()

    def construct(self, query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None = None) -> Tensor:
        query = self.transpose_query(query, (0, 2, 1, 3))
        key = self.transpose_key(key, (0, 2, 1, 3))
        value = self.transpose_value(value, (0, 2, 1, 3))
        if self.repeats_heads:
            key, value = self.repeat_key(key), self.repeat_value(value)
        score = self.score(query, key)
        score = self.cap(score) if self.is_capped else self.mul_scale(score, self.scale)
        if self.is_sparse:
            hidden = self.mul_hidden(self.cast_hidden(hidden, self.compute_dtype), self.masked_score)
            score = self.add_mask(score, hidden)
        elif self.causal:
            score = self.add_mask(score, self.mask)
        probability = self.softmax(self.cast_score(score, ms.float32))
        out = self.weighted_sum(self.cast_probability(probability, self.compute_dtype), value)
        return self.transpose_out(out, (0, 2, 1, 3))


def attention_mask(config: TransformerConfig, window: int = 0) -> Tensor | None:
    """What keeps attention from later positions, and from those before the window; None for encoders, whose samples are packed
    and need no mask.
    """
    if not config.causal:
        return None
    if config.attention == "flash":
        return Tensor(np.triu(np.ones((COMPRESSED_MASK_SIZE, COMPRESSED_MASK_SIZE), np.uint8), k=1))
    scores = np.full((config.seq_length, config.seq_length), MASKED_SCORE, np.float32)
    hidden = np.triu(scores, k=1) + (np.tril(scores, k=-window) if window else 0)
    return Tensor(hidden, dtype_of(config.compute_dtype))


def core_attention(config: TransformerConfig, mask: Tensor | None, window: int = 0) -> nn.Cell:
    """Attention of heads in the form that the network takes; a mask of plain operators knows the window itself."""
    return FlashAttention(config, mask, window) if config.attention == "flash" else CoreAttention(config, mask)


class SelfAttention(nn.Cell):
    """Multi-head (or grouped-query) attention of [tokens, hidden] with its projections; without tables nothing is rotated.

    Where scores are biased by distance, `distance_tables` stand for them.
    """

    def __init__(
        self, config: TransformerConfig, tables: tuple[Tensor, Tensor] | None, mask: Tensor | None, window: int = 0
    ) -> None:
        super().__init__()
        self.seq_length, self.head_dim = config.seq_length, config.head_dim
        self.num_heads, self.n_kv_heads = config.num_heads, config.n_kv_heads
        self.query_size = config.query_size
        self.query = Linear(config, config.hidden_size, config.query_size, config.qkv_bias)
        self.key = Linear(config, config.hidden_size, config.kv_size, config.qkv_bias)
        self.value = Linear(config, config.hidden_size, config.kv_size, config.qkv_bias)
        self.split_query, self.split_key, self.split_value = ops.Reshape(), ops.Reshape(), ops.Reshape()
        self.norms_heads, self.norms_projection = config.qk_norm == "head", config.qk_norm == "projection"
        if self.norms_heads:
            self.query_norm, self.key_norm = Norm(config, config.head_dim), Norm(config, config.head_dim)
        if self.norms_projection:
            self.query_norm, self.key_norm = Norm(config, config.query_size), Norm(config, config.kv_size)
        self.is_biased = config.position == "distance"
        self.is_rotary = tables is not None and not self.is_biased
        weighs = config.qk_norm == "rotated_head"
        self.norms_rotated = weighs or (config.qk_norm == "rotated" and self.is_rotary)
        if self.norms_rotated:
            self.query_norm, self.key_norm = (Norm(config, config.head_dim, weighs) for _ in range(2))
        if tables is not None and self.is_biased:
            self.bias_query, self.bias_key = DistanceBias(config, tables[0]), DistanceBias(config, tables[1])
        elif tables is not None:
            self.rotary_query, self.rotary_key = RotaryEmbedding(config, tables), RotaryEmbedding(config, tables)
        self.core = core_attention(config, mask, window)
        self.merge_heads = ops.Reshape()
        self.output = Linear(config, config.query_size, config.hidden_size, config.linear_bias or config.output_bias)
        self.has_gate = config.attention_gate
        if self.has_gate:
            self.gate = Linear(config, config.hidden_size, config.query_size, config.qkv_bias)
            self.sigmoid_heads, self.mul_heads = ops.Sigmoid(), ops.Mul()

    def construct(self, x: Tensor) -> Tensor:
        tokens = x.shape[0]
        batch = tokens // self.seq_length
        query, key, value = self.query(x), self.key(x), self.value(x)
        if self.norms_projection:
            query, key = self.query_norm(query), self.key_norm(key)
        query = self.split_query(query, (batch, self.seq_length, self.num_heads, self.head_dim))
        key = self.split_key(key, (batch, self.seq_length, self.n_kv_heads, self.head_dim))
        value = self.split_value(value, (batch, self.seq_length, self.n_kv_heads, self.head_dim))
        if self.norms_heads:
            query, key = self.query_norm(query), self.key_norm(key)
        if self.is_rotary:
            query, key = self.rotary_query(query), self.rotary_key(key)
        if self.norms_rotated:
            query, key = self.query_norm(query), self.key_norm(key)
        if self.is_biased:
            query, key = self.bias_query(query), self.bias_key(key)
        out = self.merge_heads(self.core(query, key, value), (tokens, self.query_size))
        out = self.mul_heads(out, self.sigmoid_heads(self.gate(x))) if self.has_gate else out
        return self.output(out)


class GatedFeedForward(nn.Cell):
    """down(silu(gate(x)) * up(x)) of some `width`, as in LLaMA; gelu instead of silu, as in Gemma."""

    def __init__(self, config: TransformerConfig, width: int) -> None:
        super().__init__()
        self.gate = Linear(config, config.hidden_size, width, config.linear_bias)
        self.up = Linear(config, config.hidden_size, width, config.linear_bias)
        self.down = Linear(config, width, config.hidden_size, config.linear_bias)
        self.is_silu = config.activation == "swiglu"
        if self.is_silu:
            self.silu = SiLU()
        else:
            self.gelu = ops.GeLU()
        self.mul = ops.Mul()

    def construct(self, x: Tensor) -> Tensor:
        gate = self.silu(self.gate(x)) if self.is_silu else self.gelu(self.gate(x))
        return self.down(self.mul(gate, self.up(x)))


class Xielu(nn.Cell):
    """Element by element a max(x, 0)^2 + b (e^m - 1 - m) + x / 2 with m = min(x, 0) (arXiv:2411.13010). Of two learned numbers p
    and q [1] a is softplus(p), and b is 1/2 + softplus(q). Both are float32, as MindSpore has no Softplus of bfloat16.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.compute_dtype = dtype_of(config.compute_dtype)
        self.positive = Parameter(initializer("zeros", (1,), ms.float32), requires_grad=config.trains_base)
        self.negative = Parameter(initializer("zeros", (1,), ms.float32), requires_grad=config.trains_base)
        self.half, self.least = Tensor(0.5, self.compute_dtype), Tensor(0.5, ms.float32)
        self.softplus_positive, self.softplus_negative, self.add_least = ops.Softplus(), ops.Softplus(), ops.Add()
        self.cast_positive, self.cast_negative = ops.Cast(), ops.Cast()
        self.relu, self.square, self.mul_positive = ops.ReLU(), ops.Square(), ops.Mul()
        self.below, self.expm1, self.sub, self.mul_negative = ops.Sub(), ops.Expm1(), ops.Sub(), ops.Mul()
        self.add_negative, self.mul_half, self.add_half = ops.Add(), ops.Mul(), ops.Add()

    def construct(self, x: Tensor) -> Tensor:
        above = self.relu(x)
        below = self.below(x, above)
        positive = self.cast_positive(self.softplus_positive(self.positive), self.compute_dtype)
        negative = self.add_least(self.softplus_negative(self.negative), self.least)
        negative = self.cast_negative(negative, self.compute_dtype)
        y = self.mul_positive(self.square(above), positive)
        y = self.add_negative(y, self.mul_negative(self.sub(self.expm1(below), below), negative))
        return self.add_half(y, self.mul_half(x, self.half))


class Activated(nn.Cell):
    """A cell that applies the activation of feed-forwards without a gate: gelu, relu or the square of relu, xielu."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.is_gelu, self.is_squared = config.activation == "gelu", config.activation == "relu2"
        self.is_xielu = config.activation == "xielu"
        if config.is_gated:
            return
        if self.is_xielu:
            self.xielu = Xielu(config)
        elif self.is_gelu:
            self.gelu = ops.GeLU()
        else:
            self.relu = ops.ReLU()
        if self.is_squared:
            self.square = ops.Square()

    def activated(self, x: Tensor) -> Tensor:
        """The activation of x, element by element."""
        if self.is_xielu:
            return self.xielu(x)
        x = self.gelu(x) if self.is_gelu else self.relu(x)
        return self.square(x) if self.is_squared else x


class FeedForward(Activated):
    """down(gelu(up(x))) of some `width`, as in GPT-2 and BERT; relu (OPT), its square (Nemotron) or xielu (Apertus) for gelu."""

    def __init__(self, config: TransformerConfig, width: int) -> None:
        super().__init__(config)
        self.up = Linear(config, config.hidden_size, width, config.linear_bias)
        self.down = Linear(config, width, config.hidden_size, config.linear_bias)

    def construct(self, x: Tensor) -> Tensor:
        return self.down(self.activated(self.up(x)))
