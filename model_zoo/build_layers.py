"""The cells of `layers.py` as graphs."""

import math

from model_zoo.build_operators import Operators, float32
from model_zoo.config import BIASED_DIMS, COMPRESSED_MASK_SIZE, BlockKind
from model_zoo.emitter import Argument, Value
from ms_symtensor.tensor.graph import Constant, TensorType

_BSND = 3  # FlashAttentionScore's number of this input layout
_CAUSAL_SPARSE_MODE, _BAND_SPARSE_MODE = 2, 4
_UNLIMITED_TOKENS = 2147483647
_SOFTMAX_STATISTICS_SIZE = 8  # FlashAttentionScore keeps each row's maximum and sum eight times


class Layers(Operators):
    """Every method is the cell of the same name."""

    def low_rank(self, x: Value, out_size: int) -> Value:
        c = self.config
        assert c.lora is not None
        with self.emit.cell("low_rank", "LowRank"):
            down = self.weight("down", (c.lora.rank, x.shape[1]))
            x = self.matmul(x, self.cast("cast_down", down, c.compute_dtype), "matmul_down")
            up = self.weight("up", (out_size, c.lora.rank))
            x = self.matmul(x, self.cast("cast_up", up, c.compute_dtype), "matmul_up")
            return self.binary("Mul", "mul_scale", x, self.table((), c.compute_dtype))

    def linear(self, attribute: str, x: Value, out_size: int, has_bias: bool, is_whole: bool = False) -> Value:
        c = self.config
        with self.emit.cell(attribute, "Linear"):
            weight = (self.weight if is_whole else self.matrix)("weight", (out_size, x.shape[1]))
            y = self.matmul(x, self.cast("cast_weight", weight, c.compute_dtype))
            if c.has_scales and not is_whole:
                y = self.binary("Mul", "mul_scale", y, self.weight("scale", (out_size,)))
            if has_bias:
                bias = self.weight("bias", (out_size,), c.trains_base)
                y = self.binary("Add", "add_bias", y, self.cast("cast_bias", bias, c.compute_dtype))
            if c.lora is not None:
                y = self.binary("Add", "add_low_rank", y, self.low_rank(x, out_size))
        return y

    def norm(self, attribute: str, x: Value, has_weight: bool = True) -> Value:
        c = self.config
        with self.emit.cell(attribute, "Norm"):
            x = self.cast("cast_in", x, "float32")
            gamma = beta = self.table(x.shape[-1:], "float32")
            if has_weight and c.norm != "layer_norm_no_weight":
                gamma = self.emit.parameter("gamma", x.shape[-1:], "float32", c.trains_base)
            epsilon = Constant(float32(c.norm_epsilon))
            statistic = TensorType((*x.shape[:-1], 1), "float32")
            if c.norm == "rms_norm":
                x = self.emit.op("RmsNorm", "norm", (x, gamma, epsilon), x.type, statistic)[0]
            else:
                if c.norm == "layer_norm":
                    beta = self.emit.parameter("beta", x.shape[-1:], "float32", c.trains_base)
                arguments = (x, gamma, beta, Constant(-1), Constant(-1), epsilon)
                x = self.emit.op("LayerNorm", "norm", arguments, x.type, statistic, statistic)[0]
            return self.cast("cast_out", x, c.compute_dtype)

    def rotary_embedding(self, attribute: str, x: Value) -> Value:
        _, seq, _, head_dim = x.shape
        cos = sin = self.table((seq, 1, head_dim), x.dtype)
        swap = self.table((head_dim, head_dim), x.dtype)
        with self.emit.cell(attribute, "RotaryEmbedding"):
            arguments = (x, swap, Constant(False), Constant(False))
            swapped = self.emit.op("BatchMatMul", "swap_halves", arguments, x.type)[0]
            along = self.binary("Mul", "mul_cos", x, cos)
            across = self.binary("Mul", "mul_sin", swapped, sin)
            return self.binary("Add", "add", along, across)

    def distance_bias(self, attribute: str, x: Value, of_table: tuple[int, ...]) -> Value:
        size = x.shape[-1] + BIASED_DIMS
        wide, result = self.table((x.shape[-1], size), x.dtype), TensorType((*x.shape[:-1], size), x.dtype)
        with self.emit.cell(attribute, "DistanceBias"):
            x = self.emit.op("BatchMatMul", "widen", (x, wide, Constant(False), Constant(False)), result)[0]
            return self.binary("Add", "add_table", x, self.table((*of_table, size), x.dtype))

    def core(self, query: Value, key: Value, value: Value, window: int = 0, hidden: Value | None = None) -> Value:
        if self.config.attention == "flash":
            return self.flash_attention(query, key, value, window, hidden)
        return self.core_attention(query, key, value, hidden)

    def flash_attention(
        self, query: Value, key: Value, value: Value, window: int, hidden: Value | None = None
    ) -> Value:
        c, none = self.config, Constant(None)
        mask: Argument = self.table((COMPRESSED_MASK_SIZE, COMPRESSED_MASK_SIZE), "uint8") if c.causal else none
        before, after, mode = _UNLIMITED_TOKENS, _UNLIMITED_TOKENS, _CAUSAL_SPARSE_MODE if c.causal else 0
        if hidden is not None:
            mask, mode = hidden, 0
        if window:
            before, after, mode = window - 1, 0, _BAND_SPARSE_MODE
        scale = float32(1.0 / math.sqrt(c.score_size or c.head_dim))
        options = c.num_heads, 1.0, scale, before, after, 0, _BSND, mode
        arguments = (query, key, value, none, none, none, mask, none, none, none, *map(Constant, options))
        batch, seq, heads, _ = query.shape
        statistic = TensorType((batch, heads, seq, _SOFTMAX_STATISTICS_SIZE), "float32")
        softmax = TensorType((1,), query.dtype)  # stays empty in training
        with self.emit.cell("core", "FlashAttention"):
            result = TensorType((batch, seq, heads, value.shape[3]), query.dtype)
            outputs = statistic, statistic, softmax, result
            return self.emit.op("FlashAttentionScore", "flash_attention", arguments, *outputs)[3]

    def core_attention(self, query: Value, key: Value, value: Value, hidden: Value | None = None) -> Value:
        c = self.config
        batch, seq, heads, _ = query.shape
        with self.emit.cell("core", "CoreAttention"):
            query = self.swap_heads_and_sequence("transpose_query", query)
            key = self.swap_heads_and_sequence("transpose_key", key)
            value = self.swap_heads_and_sequence("transpose_value", value)
            if c.n_kv_heads < c.num_heads:
                times = c.num_heads // c.n_kv_heads
                key = self.repeat_heads("repeat_key", key, times)
                value = self.repeat_heads("repeat_value", value, times)
            scores = TensorType((batch, heads, seq, seq), query.dtype)
            score = self.emit.op("BatchMatMul", "score", (query, key, Constant(False), Constant(True)), scores)[0]
            if c.score_cap:
                score = self.cap("cap", score)
            else:
                score = self.binary("Mul", "mul_scale", score, self.table((), c.compute_dtype))
            if hidden is not None:
                added = self.cast("cast_hidden", hidden, c.compute_dtype)
                added = self.binary("Mul", "mul_hidden", added, self.table((), c.compute_dtype))
                score = self.binary("Add", "add_mask", score, added)
            elif c.causal:
                score = self.binary("Add", "add_mask", score, self.table((seq, seq), c.compute_dtype))
            score = self.cast("cast_score", score, "float32")
            if c.sinks:
                probability = self.sink_softmax("softmax", score)
            else:
                probability = self.emit.op("Softmax", "softmax", (score, Constant((-1,))), score.type)[0]
            probability = self.cast("cast_probability", probability, c.compute_dtype)
            arguments = (probability, value, Constant(False), Constant(False))
            result = TensorType((*query.shape[:3], value.shape[3]), query.dtype)
            out = self.emit.op("BatchMatMul", "weighted_sum", arguments, result)[0]
            return self.swap_heads_and_sequence("transpose_out", out)

    def sink_softmax(self, attribute: str, x: Value) -> Value:
        c = self.config
        with self.emit.cell(attribute, "SinkSoftmax"):
            peak = self.unary("StopGradient", "stop_gradient", self.reduce("ReduceMax", "max", x, (-1,), True))
            scores = self.unary("Exp", "exp", self.binary("Sub", "sub_max", x, peak))
            sink = self.cast("cast_sink", self.weight("sink", (c.num_heads,), c.trains_base), "float32")
            sink = self.reshape("widen_sink", sink, (1, c.num_heads, 1, 1))
            beside = self.emit.op("Sub", "sub_sink", (sink, peak), peak.type)[0]
            total = self.sum("sum_exp", scores, (-1,), True)
            total = self.binary("Add", "add_sink", total, self.unary("Exp", "exp_sink", beside))
            return self.binary("RealDiv", "div", scores, total)

    def cap(self, attribute: str, x: Value) -> Value:
        with self.emit.cell(attribute, "Cap"):
            scaled = self.binary("Mul", "mul_scale", x, self.table((), x.dtype))
            return self.binary("Mul", "mul_limit", self.unary("Tanh", "tanh", scaled), self.table((), x.dtype))

    def repeat_heads(self, attribute: str, x: Value, times: int) -> Value:
        batch, heads, seq, head_dim = x.shape
        with self.emit.cell(attribute, "RepeatHeads"):
            x = self.reshape("flatten", x, (batch, heads, 1, seq * head_dim))
            tiled = TensorType((batch, heads, times, seq * head_dim), x.dtype)
            x = self.emit.op("Tile", "tile", (x, Constant((1, 1, times, 1))), tiled)[0]
            return self.reshape("unflatten", x, (batch, heads * times, seq, head_dim))

    def self_attention(self, x: Value, kind: BlockKind) -> Value:
        c = self.config
        tokens = x.shape[0]
        with self.emit.cell("attention", "SelfAttention"):
            projected = []
            for attribute, heads in (("query", c.num_heads), ("key", c.n_kv_heads), ("value", c.n_kv_heads)):
                normed = c.qk_norm if attribute != "value" else None
                y = self.linear(attribute, x, heads * c.head_dim, c.qkv_bias)
                if normed == "projection":
                    y = self.norm(f"{attribute}_norm", y)
                y = self.reshape(f"split_{attribute}", y, (tokens // c.seq_length, c.seq_length, heads, c.head_dim))
                if normed == "head":
                    y = self.norm(f"{attribute}_norm", y)
                projected.append(y)
            query, key, value = projected
            if c.position == "rotary" and kind.rotary:
                query = self.rotary_embedding("rotary_query", query)
                key = self.rotary_embedding("rotary_key", key)
            if c.qk_norm == "rotated_head" or (c.qk_norm == "rotated" and kind.rotary):
                weighs = c.qk_norm == "rotated_head"
                query, key = self.norm("query_norm", query, weighs), self.norm("key_norm", key, weighs)
            if c.position == "distance":
                query = self.distance_bias("bias_query", query, (c.num_heads,))
                key = self.distance_bias("bias_key", key, (c.seq_length, 1))
            out = self.reshape("merge_heads", self.core(query, key, value, kind.window), (tokens, c.query_size))
            if c.attention_gate:
                gate = self.unary("Sigmoid", "sigmoid_heads", self.linear("gate", x, c.query_size, c.qkv_bias))
                out = self.binary("Mul", "mul_heads", out, gate)
            return self.linear("output", out, c.hidden_size, c.linear_bias or c.output_bias)

    def feed_forward(self, attribute: str, x: Value, width: int) -> Value:
        c = self.config
        with self.emit.cell(attribute, "GatedFeedForward" if c.is_gated else "FeedForward"):
            if c.is_gated:
                gate = self.linear("gate", x, width, c.linear_bias)
                gate = (
                    self.unary("SiLU", "silu", gate) if c.activation == "swiglu" else self.unary("GeLU", "gelu", gate)
                )
                x = self.binary("Mul", "mul", gate, self.linear("up", x, width, c.linear_bias))
            else:
                x = self.activation(self.linear("up", x, width, c.linear_bias))
            return self.linear("down", x, c.hidden_size, c.linear_bias)

    def activation(self, x: Value) -> Value:
        name = self.config.activation
        if name == "gelu":
            return self.unary("GeLU", "gelu", x)
        if name == "xielu":
            return self.xielu(x)
        x = self.unary("ReLU", "relu", x)
        return self.unary("Square", "square", x) if name == "relu2" else x

    def xielu(self, x: Value) -> Value:
        c = self.config
        with self.emit.cell("xielu", "Xielu"):
            positive, negative = (
                self.emit.parameter(name, (1,), "float32", c.trains_base) for name in ("positive", "negative")
            )
            above = self.unary("ReLU", "relu", x)
            below = self.binary("Sub", "below", x, above)
            positive = self.cast(
                "cast_positive", self.unary("Softplus", "softplus_positive", positive), c.compute_dtype
            )
            negative = self.unary("Softplus", "softplus_negative", negative)
            negative = self.binary("Add", "add_least", negative, self.table((), negative.dtype))
            negative = self.cast("cast_negative", negative, c.compute_dtype)
            y = self.binary("Mul", "mul_positive", self.unary("Square", "square", above), positive)
            falling = self.binary("Sub", "sub", self.unary("Expm1", "expm1", below), below)
            y = self.binary("Add", "add_negative", y, self.binary("Mul", "mul_negative", falling, negative))
            return self.binary("Add", "add_half", y, self.binary("Mul", "mul_half", x, self.table((), x.dtype)))
