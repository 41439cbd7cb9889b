"""DeepSeek-V3's prediction of one token more (arXiv:2412.19437, section 2.2, one depth)."""

import mindspore as ms
from mindspore import Tensor, nn, ops

from model_zoo.block import Constants, TransformerBlock
from model_zoo.config import TransformerConfig
from model_zoo.head import CrossEntropy, VocabularyHead
from model_zoo.layers import Linear, Norm, dtype_of


class SecondToken(nn.Cell):
    """The loss of the token after the next, from the last block's result and the embedding of the next token.

    hidden [tokens, hidden_size], next_ids [batch, seq], labels [batch, seq], loss_mask [batch, seq] -> float32 scalar times
    `second_token_weight`. Embedding and output table are those of the main network.
    """

    def __init__(self, config: TransformerConfig, shared: Constants, block: type[TransformerBlock]) -> None:
        super().__init__()
        self.hidden_size, self.compute_dtype = config.hidden_size, dtype_of(config.compute_dtype)
        self.gather, self.cast_embedding, self.flatten_embedding = ops.Gather(), ops.Cast(), ops.Reshape()
        self.hidden_norm, self.embedding_norm = Norm(config, self.hidden_size), Norm(config, self.hidden_size)
        self.concat = ops.Concat(axis=-1)
        self.project = Linear(config, 2 * self.hidden_size, self.hidden_size, config.linear_bias)
        self.passes_choice = config.passes_choice
        self.block = block(config, shared, config.second_token_kind)
        self.norm = Norm(config, self.hidden_size)
        self.head = VocabularyHead(config, has_bias=False)
        self.flatten_labels, self.flatten_mask = ops.Reshape(), ops.Reshape()
        self.loss = CrossEntropy(config)
        self.weight = Tensor(config.second_token_weight, ms.float32)
        self.mul_weight = ops.Mul()

    def construct(
        self, hidden: Tensor, next_ids: Tensor, labels: Tensor, loss_mask: Tensor, table: Tensor, output_table: Tensor
    ) -> Tensor:
        tokens = hidden.shape[0]
        embedded = self.cast_embedding(self.gather(table, next_ids, 0), self.compute_dtype)
        embedded = self.flatten_embedding(embedded, (tokens, self.hidden_size))
        x = self.project(self.concat((self.embedding_norm(embedded), self.hidden_norm(hidden))))
        x = self.block(x)[0] if self.passes_choice else self.block(x)
        logits = self.head(self.norm(x), output_table)
        loss = self.loss(logits, self.flatten_labels(labels, (tokens,)), self.flatten_mask(loss_mask, (tokens, 1)))
        return self.mul_weight(loss, self.weight)
