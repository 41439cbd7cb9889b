"""The networks' operator graphs from their dimensions alone, equal to what capture reads off the Cells.

Every function here and in `build_*.py` mirrors the cell of the same name: the same operators, in the same scopes, under the
same attributes. MindSpore is not needed.
"""

from model_zoo.build_delta import gated_delta
from model_zoo.build_experts import mixture_of_experts
from model_zoo.build_latent_attention import latent_attention
from model_zoo.build_layers import Layers
from model_zoo.build_phase import phase_graph
from model_zoo.build_state_space import state_space
from model_zoo.config import BlockKind, TransformerConfig
from model_zoo.emitter import Value
from ms_symtensor.tensor.graph import Constant, Graph, TensorType

PARAMETER_ORDER = (
    "output_table", "key_cache", "value_cache", "latent_cache", "word_embedding", "layers", "attention_norm",
    "feed_forward_norm", "attended_norm", "fed_forward_norm", "attention", "feed_forward", "router", "experts", "shared",
    "shared_gate", "query_down", "key_value_down", "query", "query_rotary", "key", "value", "key_rotary", "query_norm",
    "key_value_norm", "key_norm", "head_weight", "mixed", "rates", "step_down", "step", "core", "skip", "key_convolution",
    "convolution", "decay", "log_decay", "softmax", "output", "indexer", "gate_down", "gate", "xielu", "positive",
    "negative", "up", "down", "gate_scale", "up_scale", "down_scale", "gate_bias", "up_bias", "down_bias", "sink", "dense",
    "hidden_norm", "embedding_norm", "project",
    "block", "norm", "head", "second_token",
    "position_embedding", "type_embedding", "transform", "table", "weight", "scale", "bias", "correction", "scores", "low_rank",
    "gamma", "beta",
)  # fmt: skip


def build_graph(config: TransformerConfig) -> Graph:
    """The graph of the forward network with its loss, as `capture(*model_zoo.network.build(config))` gives it."""
    network = _Network(config)
    return network.transformer() if config.phase is None else phase_graph(network, config.phase, PARAMETER_ORDER)


class _Network(Layers):
    chosen: Value | None = None  # by the last indexer so far

    def transformer_block(self, x: Value, kind: BlockKind) -> Value:
        c = self.config
        feed_forward = self.mixture_of_experts if kind.experts else self.dense_feed_forward
        if kind.only == "attention":
            return self.binary("Add", "add_attention", x, self.attend(self.norm("attention_norm", x), kind))
        if kind.only:
            return self.binary("Add", "add_feed_forward", x, feed_forward(self.norm("feed_forward_norm", x)))
        if c.causal:
            before, after = c.norms_branches(kind)
            read = self.norm("attention_norm", x) if before else x
            attended = self.attend(read, kind)
            attended = self.branch("attention", self.norm("attended_norm", attended) if after else attended)
            if not c.is_parallel:
                x = self.binary("Add", "add_attention", x, attended)
            if before and c.branch_norm != "shared":
                read = self.norm("feed_forward_norm", x)
            fed = feed_forward(read if before else x)
            fed = self.branch("feed_forward", self.norm("fed_forward_norm", fed) if after else fed)
            if c.is_parallel:
                x = self.binary("Add", "add_attention", x, attended)
            return self.binary("Add", "add_feed_forward", x, fed)
        x = self.norm("attention_norm", self.binary("Add", "add_attention", x, self.attend(x, kind)))
        return self.norm("feed_forward_norm", self.binary("Add", "add_feed_forward", x, feed_forward(x)))

    def branch(self, name: str, x: Value) -> Value:
        c = self.config
        return x if c.branch_scale == 1.0 else self.binary("Mul", f"scale_{name}", x, self.table((), c.compute_dtype))

    def attend(self, x: Value, kind: BlockKind) -> Value:
        if kind.linear:
            return state_space(self, x) if self.config.delta is None else gated_delta(self, x)
        if self.config.latent_attention is None:
            return self.self_attention(x, kind)
        shared = self.chosen if kind.shares_choice else None
        attended, self.chosen = latent_attention(self, x, shared, kind.rotary)
        return attended

    def mixture_of_experts(self, x: Value) -> Value:
        return mixture_of_experts(self, x)

    def dense_feed_forward(self, x: Value) -> Value:
        return self.feed_forward("feed_forward", x, self.config.intermediate_size)

    def look_up(self, table: Value, ids: Value) -> Value:
        """The rows of `table` by `ids`."""
        result = TensorType((*ids.shape, table.shape[1]), table.dtype)
        # the axis, and how many leading dims of ids are batch dims
        return self.emit.op("Gather", "gather", (table, ids, Constant(0), Constant(0)), result)[0]

    def embedding(self, attribute: str, ids: Value, rows: int) -> tuple[Value, Value]:
        """The rows of the table by `ids`, and the table."""
        with self.emit.cell(attribute, "Embedding"):
            table = self.weight("table", (rows, self.config.hidden_size), self.config.trains_vocabulary)
            return self.look_up(table, ids), table

    def masked_token_transform(self, x: Value) -> Value:
        with self.emit.cell("transform", "MaskedTokenTransform"):
            x = self.linear("dense", x, self.config.hidden_size, self.config.linear_bias)
            return self.norm("norm", self.unary("GeLU", "gelu", x))

    def vocabulary_head(self, x: Value, table: Value) -> Value:
        c = self.config
        with self.emit.cell("head", "VocabularyHead"):
            if c.normed_head:
                table = self.cast("widen_table", table, "float32")
                table = self.unary("L2Normalize", "normalize", table, axis=(1,), epsilon=1e-24)
            logits = self.matmul(x, self.cast("cast_table", table, c.compute_dtype))
            logits = self.cast("cast_logits", logits, "float32")
            if c.head_bias or not c.causal:
                bias = self.weight("bias", (c.vocab_size,), c.trains_vocabulary)
                logits = self.binary("Add", "add_bias", logits, self.cast("cast_bias", bias, "float32"))
            if c.logit_scale != 1.0:
                logits = self.binary("Mul", "mul_scale", logits, self.table((), "float32"))
            return self.cap("cap", logits) if c.logit_cap else logits

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

    def loss_of(self, x: Value, table: Value, labels: Value, loss_mask: Value) -> Value:
        tokens = x.shape[0]
        logits = self.vocabulary_head(x, table)
        labels = self.reshape("flatten_labels", labels, (tokens,))
        return self.cross_entropy(logits, labels, self.reshape("flatten_mask", loss_mask, (tokens, 1)))

    def second_token(self, hidden: Value, next_ids: Value, table: Value, output_table: Value) -> Value:
        c = self.config
        labels = self.emit.input("second_labels", next_ids.shape, "int32")
        loss_mask = self.emit.input("second_loss_mask", next_ids.shape, "float32")
        with self.emit.cell("second_token", "SecondToken"):
            embedded = self.cast("cast_embedding", self.look_up(table, next_ids), c.compute_dtype)
            embedded = self.reshape("flatten_embedding", embedded, hidden.shape)
            parts = [self.norm("embedding_norm", embedded), self.norm("hidden_norm", hidden)]
            x = self.linear("project", self.concat("concat", parts, -1), c.hidden_size, c.linear_bias)
            with self.emit.cell("block", "TransformerBlock"):
                x = self.transformer_block(x, c.second_token_kind)
            loss = self.loss_of(self.norm("norm", x), output_table, labels, loss_mask)
            return self.binary("Mul", "mul_weight", loss, self.table((), "float32"))

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
        if c.embedding_scale != 1.0:
            x = self.binary("Mul", "mul_scale", x, self.table((), c.compute_dtype))
        if c.embedding_norm:
            x = self.norm("embedding_norm", x)
        if not c.causal:
            x = self.norm("norm", x)
        for layer in range(c.num_layers):
            with self.emit.cell("layers", "CellList"), self.emit.cell(str(layer), "TransformerBlock"):
                x = self.transformer_block(x, c.kind(layer))
        normed = self.norm("norm", x) if c.causal else self.masked_token_transform(x)
        output_table = word_table
        if not c.tied_embeddings:
            output_table = self.weight("output_table", (c.vocab_size, c.hidden_size), c.trains_vocabulary)
        loss = self.loss_of(normed, output_table, labels, loss_mask)
        if c.second_token_weight:
            loss = self.binary("Add", "add_loss", loss, self.second_token(x, labels, word_table, output_table))
        return self.emit.graph(c.network, loss, PARAMETER_ORDER)
