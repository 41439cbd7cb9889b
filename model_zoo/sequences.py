"""Networks of sequences: a language model of LSTM layers, and the translator of arXiv:1706.03762."""

from dataclasses import replace

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import initializer

from model_zoo.block import constants
from model_zoo.config import TransformerConfig
from model_zoo.head import CrossEntropy, VocabularyHead
from model_zoo.layers import FeedForward, Linear, Norm, SelfAttention, core_attention, weight
from model_zoo.network import Embedding


class Gate(nn.Cell):
    """A gate of an LSTM layer before its activation; its steps share their operators, and so their strategies."""

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()
        self.of_input = Parameter(initializer("normal", (width, width)))
        self.of_state = Parameter(initializer("normal", (width, width)))
        self.bias = Parameter(initializer("zeros", (width,)))
        self.width = width
        self.matmul_input, self.add_bias = ops.MatMul(transpose_b=True), ops.Add()
        self.unflatten, self.split, self.squeeze = ops.Reshape(), ops.Split(1, steps), ops.Reshape()
        self.matmul_state, self.add = ops.MatMul(transpose_b=True), ops.Add()

    def of_inputs(self, x: Tensor, steps: int) -> tuple[Tensor, ...]:
        """What the inputs x [batch * steps, width] give to every step."""
        y = self.add_bias(self.matmul_input(x, self.of_input), self.bias)
        batch = x.shape[0] // steps
        found: tuple[Tensor, ...] = ()
        for part in self.split(self.unflatten(y, (batch, steps, self.width))):
            found = (*found, self.squeeze(part, (batch, self.width)))
        return found

    def construct(self, given: Tensor, state: Tensor) -> Tensor:
        return self.add(given, self.matmul_state(state, self.of_state))


class LstmLayer(nn.Cell):
    """[batch, steps, width] -> the same; states begin with zeros. A pipeline can be cut behind what joins them, not behind a
    Reshape.
    """

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()
        self.steps, self.width = steps, width
        self.admit, self.forget, self.candidate, self.release = (Gate(width, steps) for _ in range(4))
        self.sigmoid_admit, self.sigmoid_forget, self.sigmoid_release = ops.Sigmoid(), ops.Sigmoid(), ops.Sigmoid()
        self.tanh_candidate, self.tanh_cell = ops.Tanh(), ops.Tanh()
        self.mul_new, self.mul_old, self.mul_state, self.add = ops.Mul(), ops.Mul(), ops.Mul(), ops.Add()
        self.stack, self.flatten = ops.Stack(1), ops.Reshape()

    def construct(self, x: Tensor) -> Tensor:
        x = self.flatten(x, (x.shape[0] * self.steps, self.width))
        admit, forget = self.admit.of_inputs(x, self.steps), self.forget.of_inputs(x, self.steps)
        candidate, release = self.candidate.of_inputs(x, self.steps), self.release.of_inputs(x, self.steps)
        new = self.mul_new(self.sigmoid_admit(admit[0]), self.tanh_candidate(candidate[0]))
        states: tuple[Tensor, ...] = (self.mul_state(self.sigmoid_release(release[0]), self.tanh_cell(new)),)
        for n in range(1, self.steps):
            state = states[-1]
            admitted = self.sigmoid_admit(self.admit(admit[n], state))
            kept = self.mul_old(self.sigmoid_forget(self.forget(forget[n], state)), new)
            new = self.add(self.mul_new(admitted, self.tanh_candidate(self.candidate(candidate[n], state))), kept)
            released = self.sigmoid_release(self.release(release[n], state))
            states = (*states, self.mul_state(released, self.tanh_cell(new)))
        return self.stack(states)


class LstmModel(nn.Cell):
    """Next words by LSTM layers [batch, steps]; the head's table is its own. Everything is float32."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.width = config.hidden_size
        self.embedding, self.flatten = Embedding(config, config.vocab_size), ops.Reshape()
        self.layers = nn.CellList([LstmLayer(self.width, config.seq_length) for _ in range(config.num_layers)])
        self.table, self.head = weight((config.vocab_size, self.width), config), VocabularyHead(config, has_bias=True)
        self.flatten_labels, self.flatten_mask, self.loss = ops.Reshape(), ops.Reshape(), CrossEntropy(config)

    def construct(self, input_ids: Tensor, labels: Tensor, loss_mask: Tensor) -> Tensor:
        batch, steps = input_ids.shape
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.flatten(x, (batch * steps, self.width)), self.table)
        return self.loss(
            logits, self.flatten_labels(labels, (batch * steps,)), self.flatten_mask(loss_mask, (batch * steps, 1))
        )


class CrossAttention(nn.Cell):
    """Attention of x [target tokens, hidden] to memory [source tokens, hidden]; nothing is hidden."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.heads, self.head_dim, self.width = config.num_heads, config.head_dim, config.hidden_size
        self.seq_length = config.seq_length
        self.query, self.key, self.value, self.output = (
            Linear(config, self.width, self.width, config.linear_bias) for _ in range(4)
        )
        self.split_query, self.split_key, self.split_value = ops.Reshape(), ops.Reshape(), ops.Reshape()
        self.core, self.merge_heads = core_attention(replace(config, causal=False), None), ops.Reshape()

    def construct(self, x: Tensor, memory: Tensor) -> Tensor:
        heads = (x.shape[0] // self.seq_length, self.seq_length, self.heads, self.head_dim)
        query = self.split_query(self.query(x), heads)
        key = self.split_key(self.key(memory), heads)
        value = self.split_value(self.value(memory), heads)
        return self.output(self.merge_heads(self.core(query, key, value), (x.shape[0], self.width)))


class EncoderBlock(nn.Cell):
    """Attention and feed-forward, each with a residual sum and then a norm."""

    def __init__(self, config: TransformerConfig, mask: Tensor | None) -> None:
        super().__init__()
        self.attention, self.feed_forward = (
            SelfAttention(config, None, mask),
            FeedForward(config, config.intermediate_size),
        )
        self.attention_norm, self.feed_forward_norm = (Norm(config, config.hidden_size) for _ in range(2))
        self.add_attention, self.add_feed_forward = ops.Add(), ops.Add()

    def construct(self, x: Tensor) -> Tensor:
        x = self.attention_norm(self.add_attention(x, self.attention(x)))
        return self.feed_forward_norm(self.add_feed_forward(x, self.feed_forward(x)))


class DecoderBlock(EncoderBlock):
    """The same with attention to the encoder's result between the two."""

    def __init__(self, config: TransformerConfig, mask: Tensor | None) -> None:
        super().__init__(config, mask)
        self.cross, self.cross_norm, self.add_cross = (
            CrossAttention(config),
            Norm(config, config.hidden_size),
            ops.Add(),
        )

    def construct(self, x: Tensor, memory: Tensor) -> Tensor:  # type: ignore[override]
        x = self.attention_norm(self.add_attention(x, self.attention(x)))
        x = self.cross_norm(self.add_cross(x, self.cross(x, memory)))
        return self.feed_forward_norm(self.add_feed_forward(x, self.feed_forward(x)))


class Words(nn.Cell):
    """Rows of the tables of words and of positions by their ids [batch, seq], added up -> [batch * seq, hidden]."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.dtype, self.width = getattr(ms, config.compute_dtype), config.hidden_size
        self.positions = weight((config.max_position_embeddings, config.hidden_size), config)
        self.gather_words, self.gather_positions, self.add = ops.Gather(), ops.Gather(), ops.Add()
        self.cast, self.flatten = ops.Cast(), ops.Reshape()

    def construct(self, table: Tensor, ids: Tensor, position_ids: Tensor) -> Tensor:
        x = self.add(self.gather_words(table, ids, 0), self.gather_positions(self.positions, position_ids, 0))
        return self.flatten(self.cast(x, self.dtype), (x.shape[0] * x.shape[1], self.width))


class Translator(nn.Cell):
    """Encoder and decoder of as many layers; words of both languages and the head have one table, positions are learned."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.word_table = weight((config.vocab_size, config.hidden_size), config)
        self.source, self.target = Words(config), Words(config)
        encoder = replace(config, causal=False)
        mask = constants(config).mask[0]
        self.encoder = nn.CellList([EncoderBlock(encoder, None) for _ in range(config.num_layers)])
        self.decoder = nn.CellList([DecoderBlock(config, mask) for _ in range(config.num_layers)])
        self.head, self.loss = VocabularyHead(config, has_bias=False), CrossEntropy(config)
        self.flatten_labels, self.flatten_mask = ops.Reshape(), ops.Reshape()

    def construct(
        self, source_ids: Tensor, target_ids: Tensor, position_ids: Tensor, labels: Tensor, loss_mask: Tensor
    ) -> Tensor:
        memory = self.source(self.word_table, source_ids, position_ids)
        for block in self.encoder:
            memory = block(memory)
        x = self.target(self.word_table, target_ids, position_ids)
        for block in self.decoder:
            x = block(x, memory)
        logits, tokens = self.head(x, self.word_table), x.shape[0]
        return self.loss(logits, self.flatten_labels(labels, (tokens,)), self.flatten_mask(loss_mask, (tokens, 1)))
