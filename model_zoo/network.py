"""Whole networks with their loss, built without weights, and their optimizer."""

from typing import Any

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Zero
from mindspore.nn.utils import no_init_parameters

from model_zoo.block import Constants, block_class, constants
from model_zoo.config import TransformerConfig
from model_zoo.head import CrossEntropy, VocabularyHead
from model_zoo.layers import Linear, Norm, dtype_of, weight
from model_zoo.second_token import SecondToken


class Embedding(nn.Cell):
    """Rows of table [rows, hidden] by ids [batch, seq] -> [batch, seq, hidden] in the table's type."""

    def __init__(self, config: TransformerConfig, rows: int) -> None:
        super().__init__()
        self.table = weight((rows, config.hidden_size), config, trains=config.trains_vocabulary)
        self.gather = ops.Gather()

    def construct(self, ids: Tensor) -> Tensor:
        return self.gather(self.table, ids, 0)


class MaskedTokenTransform(nn.Cell):
    """BERT's norm(gelu(dense(x))) between the last layer and the vocabulary."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.dense = Linear(config, config.hidden_size, config.hidden_size, config.linear_bias)
        self.gelu = ops.GeLU()
        self.norm = Norm(config, config.hidden_size)

    def construct(self, x: Tensor) -> Tensor:
        return self.norm(self.gelu(self.dense(x)))


class Transformer(nn.Cell):
    """What decoders and encoders have in common; the children differ in their inputs."""

    def __init__(self, config: TransformerConfig, shared: Constants | None = None) -> None:
        super().__init__()
        self.hidden_size, self.compute_dtype = config.hidden_size, dtype_of(config.compute_dtype)
        self.tied_embeddings = config.tied_embeddings
        self.word_embedding = Embedding(config, config.vocab_size)
        self.cast_embedding, self.flatten_embedding = ops.Cast(), ops.Reshape()
        self.is_scaled = config.embedding_scale != 1.0
        if self.is_scaled:
            self.scale, self.mul_scale = Tensor(config.embedding_scale, self.compute_dtype), ops.Mul()
        self.passes_choice = config.passes_choice
        self.shared, self.block = shared or constants(config), block_class(config)
        self.layers = nn.CellList([self.block(config, self.shared, config.kind(i)) for i in range(config.num_layers)])
        self.norms_embedding = config.embedding_norm
        if self.norms_embedding:
            self.embedding_norm = Norm(config, config.hidden_size)
        self.norm = Norm(config, config.hidden_size)
        self.head = VocabularyHead(config, has_bias=config.head_bias or not config.causal)
        if not config.tied_embeddings:
            self.output_table = weight((config.vocab_size, config.hidden_size), config, trains=config.trains_vocabulary)
        self.flatten_labels, self.flatten_mask = ops.Reshape(), ops.Reshape()
        self.loss = CrossEntropy(config)

    def flat(self, embedded: Tensor) -> Tensor:
        """[batch, seq, hidden] -> [tokens, hidden] in the compute type."""
        batch, seq, _ = embedded.shape
        embedded = self.cast_embedding(embedded, self.compute_dtype)
        x = self.flatten_embedding(embedded, (batch * seq, self.hidden_size))
        x = self.mul_scale(x, self.scale) if self.is_scaled else x
        return self.embedding_norm(x) if self.norms_embedding else x

    def run_layers(self, x: Tensor) -> Tensor:
        if not self.passes_choice:
            for layer in self.layers:
                x = layer(x)
            return x
        hidden = None
        for layer in self.layers:
            x, hidden = layer(x, hidden) if layer.shares_choice else layer(x)
        return x

    def loss_of(self, x: Tensor, labels: Tensor, loss_mask: Tensor) -> Tensor:
        """The loss of the final hidden state x [tokens, hidden]; labels and loss_mask are [batch, seq]."""
        tokens = x.shape[0]
        table = self.word_embedding.table if self.tied_embeddings else self.output_table
        logits = self.head(x, table)
        return self.loss(logits, self.flatten_labels(labels, (tokens,)), self.flatten_mask(loss_mask, (tokens, 1)))


class RotaryDecoder(Transformer):
    """LLaMA and its kind: positions enter by rotation of query and key, or as biases of their scores (Bloom)."""

    def construct(self, input_ids: Tensor, labels: Tensor, loss_mask: Tensor) -> Tensor:
        x = self.flat(self.word_embedding(input_ids))
        return self.loss_of(self.norm(self.run_layers(x)), labels, loss_mask)


class SecondTokenDecoder(Transformer):
    """DeepSeek-V3: a rotary decoder that learns to predict the token after the next as well.

    `labels` is the next token also where `loss_mask` is 0: its embedding is read. `second_labels` is the token after it.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.second_token = SecondToken(config, self.shared, self.block)
        self.add_loss = ops.Add()

    def construct(
        self, input_ids: Tensor, labels: Tensor, loss_mask: Tensor, second_labels: Tensor, second_loss_mask: Tensor
    ) -> Tensor:
        x = self.run_layers(self.flat(self.word_embedding(input_ids)))
        second = self.second_token(
            x, labels, second_labels, second_loss_mask, self.word_embedding.table, self.output_table
        )
        return self.add_loss(self.loss_of(self.norm(x), labels, loss_mask), second)


class LearnedPositionDecoder(Transformer):
    """GPT-2 and its kind: a learned vector for every position."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.position_embedding = Embedding(config, config.max_position_embeddings)
        self.add_position = ops.Add()

    def construct(self, input_ids: Tensor, position_ids: Tensor, labels: Tensor, loss_mask: Tensor) -> Tensor:
        x = self.flat(self.add_position(self.word_embedding(input_ids), self.position_embedding(position_ids)))
        return self.loss_of(self.norm(self.run_layers(x)), labels, loss_mask)


class MaskedEncoder(Transformer):
    """BERT with its masked-token loss (no next-sentence loss); samples are packed, so nothing masks padding."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.position_embedding = Embedding(config, config.max_position_embeddings)
        self.type_embedding = Embedding(config, config.type_vocab_size)
        self.add_position, self.add_type = ops.Add(), ops.Add()
        self.transform = MaskedTokenTransform(config)

    def construct(
        self, input_ids: Tensor, position_ids: Tensor, token_type_ids: Tensor, labels: Tensor, loss_mask: Tensor
    ) -> Tensor:
        x = self.add_position(self.word_embedding(input_ids), self.position_embedding(position_ids))
        x = self.norm(self.flat(self.add_type(x, self.type_embedding(token_type_ids))))
        return self.loss_of(self.transform(self.run_layers(x)), labels, loss_mask)


_NETWORKS: dict[str, type[Transformer]] = {
    network.__name__: network for network in (RotaryDecoder, SecondTokenDecoder, LearnedPositionDecoder, MaskedEncoder)
}


def build(config: TransformerConfig) -> tuple[nn.Cell, tuple[Tensor, ...]]:
    """The forward network with its scalar float32 loss, and its inputs; weights and inputs have shapes but no values.

    Inputs have the global batch: int32 input_ids (then position_ids where positions are learned, then token_type_ids
    for BERT), int32 labels and float32 loss_mask, the same two again for a second token; all [batch_size, seq_length]. A
    mask has 1 where a token counts. A phase of serving: see `phase_network.build_phase`.
    """
    if config.phase is not None:
        from model_zoo.phase_network import build_phase

        return build_phase(config)
    with no_init_parameters():
        cell = _NETWORKS[config.network](config)
    cell.set_train()
    ids_num = 1 + (config.position == "learned") + (config.type_vocab_size > 0)
    shape = (config.batch_size, config.seq_length)
    targets_num = 2 if config.second_token_weight else 1
    dtypes = [ms.int32] * ids_num + [ms.int32, ms.float32] * targets_num
    return cell, tuple(Tensor(shape=shape, dtype=dtype, init=Zero()) for dtype in dtypes)


def optimizer(params: list[Parameter], learning_rate: float = 1e-4, weight_decay: float = 0.1) -> Any:
    """AdamW with float32 states; norms and biases are not decayed. `params`: the network's trainable_params()."""
    decayed = [p for p in params if len(p.shape) > 1]
    others = [p for p in params if len(p.shape) <= 1]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    with no_init_parameters():
        return nn.AdamWeightDecay(groups, learning_rate=learning_rate, beta1=0.9, beta2=0.95, eps=1e-8)
