"""Sparse attention's choice of keys: the indexer of DeepSeek-V3.2 (arXiv:2512.02556, section 2.1)."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from model_zoo.config import TransformerConfig
from model_zoo.layers import Linear, Norm, RotaryEmbedding

UNSEEN_SCORE = -1e30  # of a later key; float32 adds to it no score that a network has
LEAST_SCORE = -1e29  # a key that is seen scores more


def unseen(config: TransformerConfig) -> Tensor:
    """What is added to the scores [seq, seq] of keys behind a query."""
    return Tensor(np.triu(np.full((config.seq_length, config.seq_length), UNSEEN_SCORE, np.float32), k=1))


class Indexer(nn.Cell):
    """x [tokens, hidden] and the narrow query of attention [tokens, query_rank] -> bool [batch, 1, seq, seq], true where a query
    does not see a key: it sees those of the `keys` highest scores among itself and what is before it, the last one's equals too.

    A score is the sum over heads of relu(query key^T), each weighted by the token of the query; factors alike for all keys are
    left out. No gradient comes back from a choice: DeepSeek trains these weights by a loss of their own, here they are frozen.
    """

    def __init__(self, config: TransformerConfig, tables: tuple[Tensor, Tensor], unseen: Tensor) -> None:
        super().__init__()
        own, latent = config.of_indexer, config.latent_attention
        assert config.indexer is not None and latent is not None
        self.seq_length, self.heads, self.head_dim = config.seq_length, own.num_heads, own.head_dim
        self.keys = min(config.indexer.keys, config.seq_length)
        self.query = Linear(own, latent.query_rank, own.query_size, False)
        self.key = Linear(own, config.hidden_size, own.head_dim, False)
        self.key_norm = Norm(own, own.head_dim)
        self.head_weight = Linear(own, config.hidden_size, own.num_heads, False)
        self.stop_hidden, self.stop_narrow = ops.StopGradient(), ops.StopGradient()
        self.split_query, self.split_key, self.split_weight = ops.Reshape(), ops.Reshape(), ops.Reshape()
        self.rotate_query, self.rotate_key = RotaryEmbedding(own, tables), RotaryEmbedding(own, tables)
        self.transpose_query, self.transpose_key, self.transpose_weight = (ops.Transpose() for _ in range(3))
        self.score, self.relu, self.weigh = ops.BatchMatMul(transpose_b=True), ops.ReLU(), ops.Mul()
        self.sum_heads, self.cast_score = ops.ReduceSum(keep_dims=True), ops.Cast()
        self.unseen, self.add_unseen = unseen, ops.Add()
        self.top_k, self.last_chosen = ops.TopK(), ops.ReduceMin(keep_dims=True)
        self.least, self.at_least, self.is_hidden = Tensor(LEAST_SCORE, ms.float32), ops.Maximum(), ops.Less()

    def construct(self, x: Tensor, narrow: Tensor) -> Tensor:
        batch, seq = x.shape[0] // self.seq_length, self.seq_length
        x, narrow = self.stop_hidden(x), self.stop_narrow(narrow)
        query = self.split_query(self.query(narrow), (batch, seq, self.heads, self.head_dim))
        query = self.transpose_query(self.rotate_query(query), (0, 2, 1, 3))
        key = self.split_key(self.key_norm(self.key(x)), (batch, seq, 1, self.head_dim))
        key = self.transpose_key(self.rotate_key(key), (0, 2, 1, 3))
        weight = self.split_weight(self.head_weight(x), (batch, seq, self.heads, 1))
        weight = self.transpose_weight(weight, (0, 2, 1, 3))
        score = self.sum_heads(self.weigh(self.relu(self.score(query, key)), weight), 1)
        score = self.add_unseen(self.cast_score(score, ms.float32), self.unseen)
        last = self.last_chosen(self.top_k(score, self.keys)[0], -1)
        return self.is_hidden(score, self.at_least(last, self.least))
