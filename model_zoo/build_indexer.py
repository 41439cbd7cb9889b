"""The cell of `indexer.py` as a graph."""

import copy

from model_zoo.build_layers import Layers
from model_zoo.emitter import Value
from ms_symtensor.tensor.graph import Constant, TensorType


def indexer(b: Layers, x: Value, narrow: Value) -> Value:
    c, own = b.config, copy.copy(b)
    own.config = c.of_indexer
    heads, size, seq = own.config.num_heads, own.config.head_dim, c.seq_length
    batch = x.shape[0] // seq
    assert c.indexer is not None
    with b.emit.cell("indexer", "Indexer"):
        x, narrow = own.unary("StopGradient", "stop_hidden", x), own.unary("StopGradient", "stop_narrow", narrow)
        query = own.linear("query", narrow, heads * size, False)
        query = own.rotary_embedding("rotate_query", own.reshape("split_query", query, (batch, seq, heads, size)))
        query = own.swap_heads_and_sequence("transpose_query", query)
        key = own.norm("key_norm", own.linear("key", x, size, False))
        key = own.rotary_embedding("rotate_key", own.reshape("split_key", key, (batch, seq, 1, size)))
        key = own.swap_heads_and_sequence("transpose_key", key)
        weight = own.linear("head_weight", x, heads, False)
        weight = own.reshape("split_weight", weight, (batch, seq, heads, 1))
        weight = own.swap_heads_and_sequence("transpose_weight", weight)
        scores = TensorType((batch, heads, seq, seq), query.dtype)
        score = b.emit.op("BatchMatMul", "score", (query, key, Constant(False), Constant(True)), scores)[0]
        score = own.binary("Mul", "weigh", own.unary("ReLU", "relu", score), weight)
        score = own.cast("cast_score", own.sum("sum_heads", score, (1,), True), "float32")
        score = own.binary("Add", "add_unseen", score, own.table((seq, seq), "float32"))
        keys = min(c.indexer.keys, seq)
        shape = (batch, 1, seq, keys)
        outputs = TensorType(shape, "float32"), TensorType(shape, "int32")
        top = b.emit.op("TopK", "top_k", (score, Constant(keys)), *outputs, sorted=True)[0]
        last = own.reduce("ReduceMin", "last_chosen", top, (-1,), True)
        last = own.binary("Maximum", "at_least", last, own.table((), "float32"))
        return b.emit.op("Less", "is_hidden", (score, last), TensorType(score.shape, "bool"))[0]
