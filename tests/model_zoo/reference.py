"""The zoo's networks once more, from the papers' definitions, in numpy and float64: an oracle for small sizes."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_zoo.config import TransformerConfig

Array = NDArray[np.float64]


class Reference:
    """`weights`: float64 by the names that the cells give their parameters."""

    def __init__(self, config: TransformerConfig, weights: dict[str, Array]):
        self.config, self.weights = config, weights

    def loss(self, input_ids: NDArray[np.int32], *rest: NDArray[Any]) -> float:
        """Masked mean cross entropy; the inputs are those of the network."""
        c, w = self.config, self.weights
        *extra, labels, loss_mask = rest
        x = w["word_embedding.table"][input_ids]
        for name, ids in zip(("position_embedding", "type_embedding"), extra, strict=False):
            x = x + w[f"{name}.table"][ids]
        x = x if c.causal else self._norm("norm", x)
        for layer in range(c.num_layers):
            x = self._layer(f"layers.{layer}", x)
        last = ("norm", x) if c.causal else ("transform.norm", _gelu(self._linear("transform.dense", x)))
        x = self._norm(*last)
        table = w["word_embedding.table"] if c.tied_embeddings else w["output_table"]
        logits = x @ table.T + w.get("head.bias", 0.0)
        picked = np.take_along_axis(_log_softmax(logits), labels[..., None], axis=-1)[..., 0]
        return float(-(picked * loss_mask).sum() / loss_mask.sum())

    def _layer(self, name: str, x: Array) -> Array:
        if self.config.causal:
            x = x + self._attention(f"{name}.attention", self._norm(f"{name}.attention_norm", x))
            return x + self._feed_forward(f"{name}.feed_forward", self._norm(f"{name}.feed_forward_norm", x))
        x = self._norm(f"{name}.attention_norm", x + self._attention(f"{name}.attention", x))
        return self._norm(f"{name}.feed_forward_norm", x + self._feed_forward(f"{name}.feed_forward", x))

    def _linear(self, name: str, x: Array) -> Array:
        y = x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0.0)
        if self.config.lora is None:
            return y
        down, up = self.weights[f"{name}.low_rank.down"], self.weights[f"{name}.low_rank.up"]
        return y + self.config.lora.alpha / self.config.lora.rank * (x @ down.T @ up.T)

    def _norm(self, name: str, x: Array) -> Array:
        epsilon = self.config.norm_epsilon
        if self.config.norm == "rms_norm":
            return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * self.weights[f"{name}.gamma"]
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)
        return x * self.weights[f"{name}.gamma"] + self.weights[f"{name}.beta"]

    def _attention(self, name: str, x: Array) -> Array:
        c = self.config
        batch, seq, _ = x.shape
        out = np.zeros((batch, seq, c.query_size))
        query, key, value = (self._linear(f"{name}.{part}", x) for part in ("query", "key", "value"))
        for head in range(c.num_heads):
            mine = slice(head * c.head_dim, (head + 1) * c.head_dim)
            kv_head = head // (c.num_heads // c.n_kv_heads)
            shared = slice(kv_head * c.head_dim, (kv_head + 1) * c.head_dim)
            q, k = query[..., mine], key[..., shared]
            if c.qk_norm:
                q, k = self._norm(f"{name}.query_norm", q), self._norm(f"{name}.key_norm", k)
            if c.position == "rotary":
                q, k = self._rotated(q), self._rotated(k)
            score = q @ k.transpose(0, 2, 1) / math.sqrt(c.head_dim)
            if c.causal:
                score = np.where(np.tril(np.ones((seq, seq), bool)), score, -np.inf)
            out[..., mine] = np.exp(_log_softmax(score)) @ value[..., shared]
        return self._linear(f"{name}.output", out)

    def _rotated(self, x: Array) -> Array:
        """Dims i and i + half as the parts of a complex number, turned by position / base^(i / half)."""
        half = self.config.head_dim // 2
        angle = np.outer(np.arange(x.shape[1]), self.config.rotary_base ** -(np.arange(half) / half))
        turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)
        return np.concatenate([turned.real, turned.imag], axis=-1)

    def _feed_forward(self, name: str, x: Array) -> Array:
        if self.config.activation == "swiglu":
            gate = self._linear(f"{name}.gate", x)
            return self._linear(f"{name}.down", gate / (1.0 + np.exp(-gate)) * self._linear(f"{name}.up", x))
        return self._linear(f"{name}.down", _gelu(self._linear(f"{name}.up", x)))


def _gelu(x: Array) -> Array:
    """The tanh form, which MindSpore's GeLU computes."""
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _log_softmax(x: Array) -> Array:
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
