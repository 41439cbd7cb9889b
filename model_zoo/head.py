"""From the final hidden state to the loss."""

import mindspore as ms
from mindspore import Tensor, nn, ops

from model_zoo.config import TransformerConfig
from model_zoo.layers import Cap, dtype_of, weight

LEAST_SQUARE = 1e-24  # of the length of a row (torch.nn.functional.normalize: 1e-12)


class VocabularyHead(nn.Cell):
    """x [tokens, hidden] @ table [vocab, hidden] transposed (+ bias [vocab]) -> float32 logits [tokens, vocab]. Of a normed head
    each row of the table is divided by its length.
    """

    def __init__(self, config: TransformerConfig, has_bias: bool) -> None:
        super().__init__()
        self.compute_dtype = dtype_of(config.compute_dtype)
        self.has_bias = has_bias
        self.cast_table, self.cast_logits = ops.Cast(), ops.Cast()
        self.matmul = ops.MatMul(transpose_b=True)
        self.is_normed = config.normed_head
        if self.is_normed:
            self.widen_table, self.normalize = ops.Cast(), ops.L2Normalize(axis=1, epsilon=LEAST_SQUARE)
        if has_bias:
            self.bias = weight((config.vocab_size,), config, "zeros", trains=config.trains_vocabulary)
            self.cast_bias, self.add_bias = ops.Cast(), ops.Add()
        self.is_scaled, self.is_capped = config.logit_scale != 1.0, config.logit_cap > 0
        if self.is_scaled:
            self.scale, self.mul_scale = Tensor(config.logit_scale, ms.float32), ops.Mul()
        if self.is_capped:
            self.cap = Cap(config.logit_cap, ms.float32)

    def construct(self, x: Tensor, table: Tensor) -> Tensor:
        if self.is_normed:
            table = self.normalize(self.widen_table(table, ms.float32))
        logits = self.cast_logits(self.matmul(x, self.cast_table(table, self.compute_dtype)), ms.float32)
        if self.has_bias:
            logits = self.add_bias(logits, self.cast_bias(self.bias, ms.float32))
        if self.is_scaled:
            logits = self.mul_scale(logits, self.scale)
        return self.cap(logits) if self.is_capped else logits


class CrossEntropy(nn.Cell):
    """Mean over the tokens with loss_mask 1 of log(sum(exp(logits))) - logits[label].

    logits float32 [tokens, vocab], labels int32 [tokens], loss_mask float32 [tokens, 1] -> float32 scalar. Written from
    reductions over the vocabulary, so that the vocabulary can be cut.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.vocab_size = config.vocab_size
        self.one, self.zero = Tensor(1.0, ms.float32), Tensor(0.0, ms.float32)
        self.max, self.sub_max = ops.ReduceMax(keep_dims=True), ops.Sub()
        self.exp, self.sum_exp, self.log = ops.Exp(), ops.ReduceSum(keep_dims=True), ops.Log()
        self.one_hot, self.mul_one_hot = ops.OneHot(), ops.Mul()
        self.sum_target = ops.ReduceSum(keep_dims=True)
        self.sub_target, self.mul_mask = ops.Sub(), ops.Mul()
        self.sum_loss, self.sum_mask, self.div = ops.ReduceSum(), ops.ReduceSum(), ops.RealDiv()
        self.stop_gradient = ops.StopGradient()

    def construct(self, logits: Tensor, labels: Tensor, loss_mask: Tensor) -> Tensor:
        # The maximum only guards exp against overflow: the loss does not depend on it.
        logits = self.sub_max(logits, self.stop_gradient(self.max(logits, -1)))
        log_sum = self.log(self.sum_exp(self.exp(logits), -1))
        one_hot = self.one_hot(labels, self.vocab_size, self.one, self.zero)
        target = self.sum_target(self.mul_one_hot(logits, one_hot), -1)
        loss = self.mul_mask(self.sub_target(log_sum, target), loss_mask)
        return self.div(self.sum_loss(loss, (0, 1)), self.sum_mask(loss_mask, (0, 1)))
