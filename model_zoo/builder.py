"""The networks' operator graphs from their dimensions alone, equal to what capture reads off the Cells.

Every function mirrors the cell of the same name in `layers.py` or `network.py`: the same operators, in the same scopes,
under the same attributes. MindSpore is not needed.
"""

import math
import struct

from model_zoo.config import COMPRESSED_MASK_SIZE, TransformerConfig
from model_zoo.emitter import Argument, Emitter, Value
from ms_symtensor.tensor.graph import Attribute, Constant, Graph, TensorType

_TYPE_ID = {"float16": 42, "float32": 43, "bfloat16": 45}  # MindSpore's numbers of element types, as Cast takes them
_BNSD = 1  # FlashAttentionScore's number of this input layout
_CAUSAL_SPARSE_MODE = 2
_UNLIMITED_TOKENS = 2147483647
_SOFTMAX_STATISTICS_SIZE = 8  # FlashAttentionScore keeps each row's maximum and sum eight times
_PARAMETER_ORDER = (
    "output_table", "word_embedding", "layers", "attention_norm", "feed_forward_norm", "attention", "feed_forward",
    "query", "key", "value", "query_norm", "key_norm", "output", "gate", "up", "down", "dense", "norm", "head",
    "position_embedding", "type_embedding", "transform", "table", "weight", "bias", "low_rank", "gamma", "beta",
)  # fmt: skip


def build_graph(config: TransformerConfig) -> Graph:
    """The graph of the forward network with its loss, as `capture(*model_zoo.network.build(config))` gives it."""
    return _Builder(config).transformer()


def _float32(value: float) -> float:
    """`value` rounded to float32, as MindSpore keeps its scalars, in the seven decimal digits that capture reads."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return float(f"{rounded:.7g}")


class _Builder:
    def __init__(self, config: TransformerConfig) -> None:
        self.config = config
        self.emit = Emitter()

    # Operators

    def unary(self, op_type: str, primitive: str, x: Value, **attributes: Attribute) -> Value:
        return self.emit.op(op_type, primitive, (x,), x.type, **attributes)[0]

    def binary(self, op_type: str, primitive: str, x: Value, y: Value) -> Value:
        """An element-wise operator whose result has the shape of `x`."""
        return self.emit.op(op_type, primitive, (x, y), x.type)[0]

    def cast(self, primitive: str, x: Value, dtype: str) -> Value:
        if x.type.dtype == dtype:
            return x  # MindSpore drops a Cast that changes nothing
        return self.emit.op("Cast", primitive, (x, Constant(_TYPE_ID[dtype])), TensorType(x.shape, dtype))[0]

    def reshape(self, primitive: str, x: Value, shape: tuple[int, ...]) -> Value:
        return self.emit.op("Reshape", primitive, (x, Constant(shape)), TensorType(shape, x.dtype))[0]

    def swap_heads_and_sequence(self, primitive: str, x: Value) -> Value:
        a, b, c, d = x.shape
        return self.emit.op("Transpose", primitive, (x, Constant((0, 2, 1, 3))), TensorType((a, c, b, d), x.dtype))[0]

    def matmul(self, x: Value, weight: Value, primitive: str = "matmul") -> Value:
        """x [m, k] @ weight [n, k] transposed."""
        result = TensorType((x.shape[0], weight.shape[0]), x.dtype)
        return self.emit.op("MatMul", primitive, (x, weight, Constant(False), Constant(True)), result)[0]

    def reduce(
        self,
        op_type: str,
        primitive: str,
        x: Value,
        axes: tuple[int, ...],
        keep_dims: bool,
        *more: Argument,
        **attributes: Attribute,
    ) -> Value:
        """A reduction of x [m, n] over its last dim (keep_dims) or to a scalar."""
        result = TensorType((x.shape[0], 1) if keep_dims else (), x.dtype)
        arguments = (x, Constant(axes), Constant(keep_dims), *more)
        return self.emit.op(op_type, primitive, arguments, result, **attributes)[0]

    def sum(self, primitive: str, x: Value, axes: tuple[int, ...], keep_dims: bool) -> Value:
        return self.reduce("ReduceSum", primitive, x, axes, keep_dims, Constant(False))

    def table(self, shape: tuple[int, ...], dtype: str) -> Value:
        """A constant tensor."""
        tensor = TensorType(shape, dtype)
        return Value(Constant(tensor=tensor), tensor)

    def weight(self, name: str, shape: tuple[int, ...], trains: bool = True) -> Value:
        """A parameter that trains, or a frozen one in the compute type."""
        dtype = self.config.param_dtype if trains else self.config.compute_dtype
        return self.emit.parameter(name, shape, dtype, trains)

    # Cells

    def low_rank(self, x: Value, out_size: int) -> Value:
        c = self.config
        assert c.lora is not None
        with self.emit.cell("low_rank", "LowRank"):
            down = self.weight("down", (c.lora.rank, x.shape[1]))
            x = self.matmul(x, self.cast("cast_down", down, c.compute_dtype), "matmul_down")
            up = self.weight("up", (out_size, c.lora.rank))
            x = self.matmul(x, self.cast("cast_up", up, c.compute_dtype), "matmul_up")
            return self.binary("Mul", "mul_scale", x, self.table((), c.compute_dtype))

    def linear(self, attribute: str, x: Value, out_size: int, has_bias: bool) -> Value:
        c = self.config
        with self.emit.cell(attribute, "Linear"):
            weight = self.weight("weight", (out_size, x.shape[1]), c.trains_base)
            y = self.matmul(x, self.cast("cast_weight", weight, c.compute_dtype))
            if has_bias:
                bias = self.weight("bias", (out_size,), c.trains_base)
                y = self.binary("Add", "add_bias", y, self.cast("cast_bias", bias, c.compute_dtype))
            if c.lora is not None:
                y = self.binary("Add", "add_low_rank", y, self.low_rank(x, out_size))
        return y

    def norm(self, attribute: str, x: Value) -> Value:
        c = self.config
        with self.emit.cell(attribute, "Norm"):
            x = self.cast("cast_in", x, "float32")
            gamma = self.emit.parameter("gamma", x.shape[-1:], c.param_dtype, c.trains_base)
            epsilon = Constant(_float32(c.norm_epsilon))
            statistic = TensorType((*x.shape[:-1], 1), "float32")
            if c.norm == "rms_norm":
                x = self.emit.op("RmsNorm", "norm", (x, gamma, epsilon), x.type, statistic)[0]
            else:
                beta = self.emit.parameter("beta", x.shape[-1:], c.param_dtype, c.trains_base)
                arguments = (x, gamma, beta, Constant(-1), Constant(-1), epsilon)
                x = self.emit.op("LayerNorm", "norm", arguments, x.type, statistic, statistic)[0]
            return self.cast("cast_out", x, c.compute_dtype)

    def rotary_embedding(self, attribute: str, x: Value) -> Value:
        batch, heads, seq, head_dim = x.shape
        half = head_dim // 2
        cos = sin = self.table((seq, head_dim), x.dtype)
        masks = (Constant(0),) * 5  # StridedSlice's begin, end, ellipsis, new-axis and shrink-axis masks

        def slice_of(primitive: str, begin: int, end: int) -> Value:
            bounds = Constant((0, 0, 0, begin)), Constant((batch, heads, seq, end)), Constant((1, 1, 1, 1))
            result = TensorType((batch, heads, seq, end - begin), x.dtype)
            return self.emit.op("StridedSlice", primitive, (x, *bounds, *masks), result)[0]

        with self.emit.cell(attribute, "RotaryEmbedding"):
            halves = [slice_of("upper_half", half, head_dim), slice_of("lower_half", 0, half)]
            swapped = self.emit.op("Concat", "concat", (halves, Constant(-1)), x.type)[0]
            along = self.binary("Mul", "mul_cos", x, cos)
            across = self.binary("Mul", "mul_sin", swapped, sin)
            return self.binary("Add", "add", along, across)

    def flash_attention(self, query: Value, key: Value, value: Value) -> Value:
        c, none = self.config, Constant(None)
        mask: Argument = self.table((COMPRESSED_MASK_SIZE, COMPRESSED_MASK_SIZE), "uint8") if c.causal else none
        options = (
            c.num_heads, 1.0, _float32(1.0 / math.sqrt(c.head_dim)), _UNLIMITED_TOKENS, _UNLIMITED_TOKENS, 0, _BNSD,
            _CAUSAL_SPARSE_MODE if c.causal else 0,
        )  # fmt: skip
        arguments = (query, key, value, none, none, none, mask, none, none, none, *map(Constant, options))
        statistic = TensorType((*query.shape[:3], _SOFTMAX_STATISTICS_SIZE), "float32")
        softmax = TensorType((1,), query.dtype)  # stays empty in training
        with self.emit.cell("core", "FlashAttention"):
            outputs = statistic, statistic, softmax, query.type
            return self.emit.op("FlashAttentionScore", "flash_attention", arguments, *outputs)[3]

    def core_attention(self, query: Value, key: Value, value: Value) -> Value:
        c = self.config
        batch, heads, seq, _ = query.shape
        with self.emit.cell("core", "CoreAttention"):
            scores = TensorType((batch, heads, seq, seq), query.dtype)
            score = self.emit.op("BatchMatMul", "score", (query, key, Constant(False), Constant(True)), scores)[0]
            score = self.binary("Mul", "mul_scale", score, self.table((), c.compute_dtype))
            if c.causal:
                score = self.binary("Add", "add_mask", score, self.table((seq, seq), c.compute_dtype))
            score = self.cast("cast_score", score, "float32")
            probability = self.emit.op("Softmax", "softmax", (score, Constant((-1,))), score.type)[0]
            probability = self.cast("cast_probability", probability, c.compute_dtype)
            arguments = (probability, value, Constant(False), Constant(False))
            return self.emit.op("BatchMatMul", "weighted_sum", arguments, query.type)[0]

    def repeat_heads(self, attribute: str, x: Value, times: int) -> Value:
        batch, heads, seq, head_dim = x.shape
        with self.emit.cell(attribute, "RepeatHeads"):
            x = self.reshape("flatten", x, (batch, heads, 1, seq * head_dim))
            tiled = TensorType((batch, heads, times, seq * head_dim), x.dtype)
            x = self.emit.op("Tile", "tile", (x, Constant((1, 1, times, 1))), tiled)[0]
            return self.reshape("unflatten", x, (batch, heads * times, seq, head_dim))

    def self_attention(self, x: Value) -> Value:
        c = self.config
        tokens = x.shape[0]
        with self.emit.cell("attention", "SelfAttention"):
            projected = []
            for attribute, heads in (("query", c.num_heads), ("key", c.n_kv_heads), ("value", c.n_kv_heads)):
                y = self.linear(attribute, x, heads * c.head_dim, c.qkv_bias)
                y = self.reshape(f"split_{attribute}", y, (tokens // c.seq_length, c.seq_length, heads, c.head_dim))
                if c.qk_norm and attribute != "value":
                    y = self.norm(f"{attribute}_norm", y)
                projected.append(self.swap_heads_and_sequence(f"transpose_{attribute}", y))
            query, key, value = projected
            if c.position == "rotary":
                query = self.rotary_embedding("rotary_query", query)
                key = self.rotary_embedding("rotary_key", key)
            if c.attention == "self" and c.n_kv_heads < c.num_heads:
                times = c.num_heads // c.n_kv_heads
                key = self.repeat_heads("repeat_key", key, times)
                value = self.repeat_heads("repeat_value", value, times)
            core = self.flash_attention if c.attention == "flash" else self.core_attention
            out = self.swap_heads_and_sequence("transpose_out", core(query, key, value))
            out = self.reshape("merge_heads", out, (tokens, c.query_size))
            return self.linear("output", out, c.hidden_size, c.linear_bias)

    def feed_forward(self, x: Value) -> Value:
        c = self.config
        is_gated = c.activation == "swiglu"
        with self.emit.cell("feed_forward", "GatedFeedForward" if is_gated else "FeedForward"):
            if is_gated:
                gate = self.unary("SiLU", "silu", self.linear("gate", x, c.intermediate_size, c.linear_bias))
                x = self.binary("Mul", "mul", gate, self.linear("up", x, c.intermediate_size, c.linear_bias))
            else:
                x = self.unary("GeLU", "gelu", self.linear("up", x, c.intermediate_size, c.linear_bias))
            return self.linear("down", x, c.hidden_size, c.linear_bias)

    def transformer_block(self, x: Value) -> Value:
        if self.config.causal:
            x = self.binary("Add", "add_attention", x, self.self_attention(self.norm("attention_norm", x)))
            return self.binary("Add", "add_feed_forward", x, self.feed_forward(self.norm("feed_forward_norm", x)))
        x = self.norm("attention_norm", self.binary("Add", "add_attention", x, self.self_attention(x)))
        return self.norm("feed_forward_norm", self.binary("Add", "add_feed_forward", x, self.feed_forward(x)))

    def embedding(self, attribute: str, ids: Value, rows: int) -> tuple[Value, Value]:
        """The rows of the table by `ids`, and the table."""
        c = self.config
        with self.emit.cell(attribute, "Embedding"):
            table = self.weight("table", (rows, c.hidden_size), c.trains_vocabulary)
            result = TensorType((*ids.shape, c.hidden_size), table.dtype)
            # the axis, and how many leading dims of ids are batch dims
            return self.emit.op("Gather", "gather", (table, ids, Constant(0), Constant(0)), result)[0], table

    def masked_token_transform(self, x: Value) -> Value:
        with self.emit.cell("transform", "MaskedTokenTransform"):
            x = self.linear("dense", x, self.config.hidden_size, self.config.linear_bias)
            return self.norm("norm", self.unary("GeLU", "gelu", x))

    def vocabulary_head(self, x: Value, table: Value) -> Value:
        c = self.config
        with self.emit.cell("head", "VocabularyHead"):
            logits = self.matmul(x, self.cast("cast_table", table, c.compute_dtype))
            logits = self.cast("cast_logits", logits, "float32")
            if not c.causal:
                bias = self.weight("bias", (c.vocab_size,), c.trains_vocabulary)
                logits = self.binary("Add", "add_bias", logits, bias)
        return logits

    def cross_entropy(self, logits: Value, labels: Value, loss_mask: Value) -> Value:
        scalar = self.table((), "float32")
        with self.emit.cell("loss", "CrossEntropy"):
            maximum = self.unary("StopGradient", "stop_gradient", self.reduce("ReduceMax", "max", logits, (-1,), True))
            logits = self.binary("Sub", "sub_max", logits, maximum)
            total = self.sum("sum_exp", self.unary("Exp", "exp", logits), (-1,), True)
            log_sum = self.unary("Log", "log", total, base=-1.0, scale=1.0, shift=0.0, cust_aicpu="Log")
            depth = Constant(self.config.vocab_size)
            one_hot = self.emit.op("OneHot", "one_hot", (labels, depth, scalar, scalar, Constant(-1)), logits.type)[0]
            target = self.sum("sum_target", self.binary("Mul", "mul_one_hot", logits, one_hot), (-1,), True)
            loss = self.binary("Mul", "mul_mask", self.binary("Sub", "sub_target", log_sum, target), loss_mask)
            token_num = self.sum("sum_mask", loss_mask, (0, 1), False)
            return self.binary("RealDiv", "div", self.sum("sum_loss", loss, (0, 1), False), token_num)

    def transformer(self) -> Graph:
        c = self.config
        shape = (c.batch_size, c.seq_length)
        tokens = c.batch_size * c.seq_length
        x, word_table = self.embedding("word_embedding", self.emit.input("input_ids", shape, "int32"), c.vocab_size)
        if c.position == "learned":
            ids = self.emit.input("position_ids", shape, "int32")
            position, _ = self.embedding("position_embedding", ids, c.max_position_embeddings)
            x = self.binary("Add", "add_position", x, position)
        if c.type_vocab_size:
            ids = self.emit.input("token_type_ids", shape, "int32")
            token_type, _ = self.embedding("type_embedding", ids, c.type_vocab_size)
            x = self.binary("Add", "add_type", x, token_type)
        labels = self.emit.input("labels", shape, "int32")
        loss_mask = self.emit.input("loss_mask", shape, "float32")
        x = self.reshape("flatten_embedding", self.cast("cast_embedding", x, c.compute_dtype), (tokens, c.hidden_size))
        if not c.causal:
            x = self.norm("norm", x)
        for layer in range(c.num_layers):
            with self.emit.cell("layers", "CellList"), self.emit.cell(str(layer), "TransformerBlock"):
                x = self.transformer_block(x)
        x = self.norm("norm", x) if c.causal else self.masked_token_transform(x)
        if not c.tied_embeddings:
            word_table = self.weight("output_table", (c.vocab_size, c.hidden_size), c.trains_vocabulary)
        logits = self.vocabulary_head(x, word_table)
        labels = self.reshape("flatten_labels", labels, (tokens,))
        loss = self.cross_entropy(logits, labels, self.reshape("flatten_mask", loss_mask, (tokens, 1)))
        return self.emit.graph(c.network, loss, _PARAMETER_ORDER)
