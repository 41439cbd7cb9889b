"""The zoo's networks once more, from the papers' definitions, in numpy and float64: an oracle for small sizes."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_zoo.config import BlockKind, TransformerConfig

Array = NDArray[np.float64]


class Reference:
    """`weights`: float64 by the names that the cells give their parameters."""

    def __init__(self, config: TransformerConfig, weights: dict[str, Array]):
        self.config, self.weights = config, weights
        self.chosen: NDArray[np.bool_] = np.zeros(0, bool)

    def loss(self, input_ids: NDArray[np.int32], *rest: NDArray[Any]) -> float:
        """Masked mean cross entropy; the inputs are those of the network."""
        c, w = self.config, self.weights
        second = rest[-2:] if c.second_token_weight else ()
        *extra, labels, loss_mask = rest[: len(rest) - len(second)]
        x = w["word_embedding.table"][input_ids]
        for name, ids in zip(("position_embedding", "type_embedding"), extra, strict=False):
            x = x + w[f"{name}.table"][ids]
        x = x * c.embedding_scale
        x = self._norm("embedding_norm", x) if c.embedding_norm else x
        x = x if c.causal else self._norm("norm", x)
        for layer in range(c.num_layers):
            x = self._layer(f"layers.{layer}", x, c.kind(layer))
        hidden = x
        last = ("norm", x) if c.causal else ("transform.norm", _gelu(self._linear("transform.dense", x)))
        x = self._norm(*last)
        loss = self._cross_entropy(x, labels, loss_mask)
        if second:
            name, embedded = "second_token", w["word_embedding.table"][labels]
            parts = [self._norm(f"{name}.embedding_norm", embedded), self._norm(f"{name}.hidden_norm", hidden)]
            x = self._layer(
                f"{name}.block", self._linear(f"{name}.project", np.concatenate(parts, axis=-1)), c.second_token_kind
            )
            loss += c.second_token_weight * self._cross_entropy(self._norm(f"{name}.norm", x), *second)
        return loss

    def _cross_entropy(self, x: Array, labels: NDArray[Any], loss_mask: NDArray[Any]) -> float:
        w = self.weights
        table = w["word_embedding.table"] if self.config.tied_embeddings else w["output_table"]
        if self.config.normed_head:
            table = table / np.sqrt((table**2).sum(-1, keepdims=True))
        logits = self.config.logit_scale * (x @ table.T + w.get("head.bias", 0.0))
        logits = _capped(logits, self.config.logit_cap)
        picked = np.take_along_axis(_log_softmax(logits), labels[..., None], axis=-1)[..., 0]
        return float(-(picked * loss_mask).sum() / loss_mask.sum())

    def _layer(self, name: str, x: Array, kind: BlockKind) -> Array:
        if self.config.causal:
            if kind.only:
                return x + self._branch(name, self._norm(f"{name}.{kind.only}_norm", x), kind)
            branches = self.config.branch_norm
            branches = "before" if branches == "after" and kind.linear else branches
            before, after = branches != "after", branches in ("after", "both")
            y = shared = self._norm(f"{name}.attention_norm", x) if before else x
            y = self._mixed(f"{name}.attention", y, kind)
            block, scale = x, self.config.branch_scale
            x = x + scale * (self._norm(f"{name}.attended_norm", y) if after else y)
            y = block if branches == "beside" else x
            y = shared if branches == "shared" else self._norm(f"{name}.feed_forward_norm", y) if before else y
            y = self._fed(f"{name}.feed_forward", y, kind)
            return x + scale * (self._norm(f"{name}.fed_forward_norm", y) if after else y)
        x = self._norm(f"{name}.attention_norm", x + self._attention(f"{name}.attention", x, kind))
        return self._norm(f"{name}.feed_forward_norm", x + self._feed_forward(f"{name}.feed_forward", x))

    def _branch(self, name: str, x: Array, kind: BlockKind) -> Array:
        return (self._mixed if kind.only == "attention" else self._fed)(f"{name}.{kind.only}", x, kind)

    def _mixed(self, name: str, x: Array, kind: BlockKind) -> Array:
        if kind.linear:
            return (gated_delta_result if self.config.delta else state_space_result)(self, name, x)
        return (self._latent_attention if self.config.latent_attention else self._attention)(name, x, kind)

    def _fed(self, name: str, x: Array, kind: BlockKind) -> Array:
        return experts_result(self, name, x) if kind.experts else self._feed_forward(name, x)

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
        return x * self.weights.get(f"{name}.gamma", 1.0) + self.weights.get(f"{name}.beta", 0.0)

    def _attention(self, name: str, x: Array, kind: BlockKind) -> Array:
        c = self.config
        batch, seq, _ = x.shape
        out = np.zeros((batch, seq, c.query_size))
        query, key, value = (self._linear(f"{name}.{part}", x) for part in ("query", "key", "value"))
        if c.qk_norm == "projection":
            query, key = self._norm(f"{name}.query_norm", query), self._norm(f"{name}.key_norm", key)
        for head in range(c.num_heads):
            mine = slice(head * c.head_dim, (head + 1) * c.head_dim)
            kv_head = head // (c.num_heads // c.n_kv_heads)
            shared = slice(kv_head * c.head_dim, (kv_head + 1) * c.head_dim)
            q, k = query[..., mine], key[..., shared]
            if c.qk_norm == "head":
                q, k = self._norm(f"{name}.query_norm", q), self._norm(f"{name}.key_norm", k)
            if c.position == "rotary" and kind.rotary:
                q, k = self._rotated(q, kind.rotary_base), self._rotated(k, kind.rotary_base)
            if c.qk_norm == "rotated_head":
                q, k = self._norm(f"{name}.query_norm", q), self._norm(f"{name}.key_norm", k)
            score = _capped(q @ k.transpose(0, 2, 1) / math.sqrt(c.score_size or c.head_dim), c.score_cap)
            if c.qk_norm == "rotated" and kind.rotary:
                q, k = _normed(q, c.norm_epsilon), _normed(k, c.norm_epsilon)
                score = q @ k.transpose(0, 2, 1) / math.sqrt(c.head_dim)
            if c.position == "distance":  # as the paper writes it, of 2^n heads and of those behind them
                whole = 2 ** int(math.log2(c.num_heads))
                own, of = (head + 1, whole) if head < whole else (2 * (head - whole) + 1, 2 * whole)
                score = score - 2.0 ** (-8.0 * own / of) * (np.arange(seq)[:, None] - np.arange(seq))
            if c.causal:
                back = np.arange(seq)[:, None] - np.arange(seq)
                score = np.where((back >= 0) & (back < (kind.window or seq)), score, -np.inf)
            if c.sinks:
                sink = np.full((batch, seq, 1), self.weights[f"{name}.core.softmax.sink"][head])
                score = np.concatenate([score, sink], -1)
            out[..., mine] = np.exp(_log_softmax(score))[..., :seq] @ value[..., shared]
        if c.attention_gate:
            out = out * _sigmoid(self._linear(f"{name}.gate", x))
        return self._linear(f"{name}.output", out)

    def _latent_attention(self, name: str, x: Array, kind: BlockKind) -> Array:
        """As the paper writes it, head by head."""
        c, sizes = self.config, self.config.latent_attention
        assert sizes is not None
        plain, rotary, value = c.head_dim - sizes.rotary_head_dim, sizes.rotary_head_dim, sizes.value_head_dim
        queries = x
        if sizes.query_rank:
            queries = self._norm(f"{name}.query_norm", self._linear(f"{name}.query_down", x))
        latent = self._norm(f"{name}.key_value_norm", self._linear(f"{name}.key_value_down", x))

        def rotated(part: Array) -> Array:
            return self._rotated(part) if kind.rotary else part

        turned = rotated(self._linear(f"{name}.key_rotary", x))
        seq = x.shape[1]
        seen = np.tril(np.ones((seq, seq), bool))
        if c.indexer:
            self.chosen = self.chosen if kind.shares_choice else self._chosen(f"{name}.indexer", x, queries)
            seen = seen & self.chosen
        out = []
        for head in range(c.num_heads):

            def part(which: str, source: Array, size: int, head: int = head) -> Array:
                return source @ self.weights[f"{name}.{which}.weight"][head * size : (head + 1) * size].T

            q = np.concatenate([part("query", queries, plain), rotated(part("query_rotary", queries, rotary))], -1)
            k = np.concatenate([part("key", latent, plain), turned], -1)
            score = np.where(seen, q @ k.transpose(0, 2, 1) / math.sqrt(c.head_dim), -np.inf)
            out.append(np.exp(_log_softmax(score)) @ part("value", latent, value))
        return self._linear(f"{name}.output", np.concatenate(out, -1))

    def _chosen(self, name: str, x: Array, narrow: Array) -> NDArray[np.bool_]:
        """Query by query, the keys that the indexer chooses among those up to it [batch, seq, seq]."""
        sizes, latent, w = self.config.indexer, self.config.latent_attention, self.weights
        assert sizes is not None and latent is not None
        key = self._linear(f"{name}.key", x)
        key = (key - key.mean(-1, keepdims=True)) / np.sqrt(key.var(-1, keepdims=True) + 1e-6)
        key = self._rotated(key * w[f"{name}.key_norm.gamma"] + w[f"{name}.key_norm.beta"], size=latent.rotary_head_dim)
        times = self._linear(f"{name}.head_weight", x) / math.sqrt(sizes.heads)
        scores = np.zeros((*x.shape[:2], x.shape[1]))
        for head, rows in enumerate(np.split(w[f"{name}.query.weight"], sizes.heads)):
            query = self._rotated(narrow @ rows.T, size=latent.rotary_head_dim)
            both = query @ key.transpose(0, 2, 1) / math.sqrt(sizes.head_dim)
            scores += times[..., head : head + 1] * np.maximum(both, 0.0)
        chosen = np.zeros(scores.shape, bool)
        for sample, position in np.ndindex(*x.shape[:2]):
            best = np.argsort(-scores[sample, position, : position + 1])[: sizes.keys]
            chosen[sample, position, best] = True
        return chosen

    def _rotated(self, x: Array, base: float = 0.0, size: int = 0) -> Array:
        """Dims i and i + half as the parts of a complex number, turned by position / base^(i / half); what is behind stays."""
        size = size or self.config.rotated_size or x.shape[-1]
        half = size // 2
        angle = np.outer(np.arange(x.shape[1]), (base or self.config.rotary_base) ** -(np.arange(half) / half))
        turned = (x[..., :half] + 1j * x[..., half:size]) * np.exp(1j * angle)
        return np.concatenate([turned.real, turned.imag, x[..., size:]], axis=-1)

    def _feed_forward(self, name: str, x: Array) -> Array:
        if self.config.is_gated:
            gate = self._linear(f"{name}.gate", x)
            gate = _gelu(gate) if self.config.activation == "geglu" else gate / (1.0 + np.exp(-gate))
            return self._linear(f"{name}.down", gate * self._linear(f"{name}.up", x))
        up = self._linear(f"{name}.up", x)
        if self.config.activation == "xielu":
            return self._linear(f"{name}.down", self._xielu(f"{name}.xielu", up))
        power = {"relu": 1, "relu2": 2}.get(self.config.activation, 0)
        return self._linear(f"{name}.down", np.maximum(up, 0.0) ** power if power else _gelu(up))

    def _xielu(self, name: str, x: Array) -> Array:
        rises, falls = (np.log1p(np.exp(self.weights[f"{name}.{part}"])) for part in ("positive", "negative"))
        return np.where(x > 0, rises * x * x, (falls + 0.5) * (np.exp(np.minimum(x, 0)) - 1 - x)) + 0.5 * x


def gated_delta_result(of: Reference, name: str, x: Array) -> Array:
    """Head by head and token by token: a state fades, loses what it has for the token's key, and gets the token's value."""
    c, d, w = of.config, of.config.delta, of.weights
    assert d is not None
    batch, seq, _ = x.shape
    times, core = d.value_heads // d.key_heads, f"{name}.core"
    groups = of._linear(f"{name}.mixed", x).reshape(batch, seq, d.key_heads, -1)
    rates = of._linear(f"{name}.rates", x).reshape(batch, seq, d.value_heads, -1)
    beta, step, gates = d.largest_beta * _sigmoid(rates[..., 0]), rates[..., 1:], np.zeros(0)
    if d.channel_rank:
        step, gates = (
            of._linear(f"{name}.{part}", of._linear(f"{name}.{part}_down", x)).reshape(batch, seq, d.value_heads, -1)
            for part in ("step", "gate")
        )
    step = np.log1p(np.exp(step + w[f"{core}.decay.bias"].reshape(d.value_heads, -1)))
    fades = np.exp(-np.exp(w[f"{core}.decay.log_decay"])[:, None] * step)
    out = np.zeros((batch, seq, d.value_heads, d.value_size))
    for head in range(d.value_heads):
        weights, number = w[f"{core}.convolution.weight"][:, head // times, 0], head % times
        mixed = np.concatenate(
            [np.zeros((batch, d.kernel - 1, d.group_size)), groups[:, :, head // times, : d.group_size]], 1
        )
        mixed = sum(weights[tap] * mixed[:, tap : tap + seq] for tap in range(d.kernel))
        query, key, values = np.split(_silu(mixed), [d.key_size, 2 * d.key_size], axis=-1)
        query, key = (part / np.sqrt((part**2).sum(-1, keepdims=True) + 1e-6) for part in (query, key))
        value = values[..., number * d.value_size : (number + 1) * d.value_size]
        gate = groups[:, :, head // times, d.group_size + number * d.value_size :][..., : d.value_size]
        state = np.zeros((batch, d.key_size, d.value_size))
        for t in range(seq):
            state = state * fades[:, t, head, :, None]
            known = (key[:, t, None] @ state)[:, 0]
            state = state + key[:, t, :, None] * (beta[:, t, head, None] * (value[:, t] - known))[:, None]
            read = (query[:, t, None] @ state)[:, 0] / math.sqrt(d.key_size)
            read = _normed(read, d.norm_epsilon or c.norm_epsilon) * w[f"{core}.norm.gamma"]
            out[:, t, head] = read * (_sigmoid(gates[:, t, head]) if d.channel_rank else _silu(gate[:, t]))
    return of._linear(f"{name}.output", out.reshape(batch, seq, -1))


def state_space_result(of: Reference, name: str, x: Array) -> Array:
    """Head by head and token by token: a state fades, and gets the token's key times its value; what is read of it is gated, and
    normalised over the heads of a group.
    """
    c, sizes, w = of.config, of.config.state_space, of.weights
    assert sizes is not None
    batch, seq, _ = x.shape
    core, times, size = f"{name}.core", sizes.heads // sizes.groups, sizes.state_size

    def convolved(part: str, convolution: str, heads: int) -> Array:
        mixed = of._linear(f"{name}.{part}", x)
        mixed = np.concatenate([np.zeros((batch, sizes.kernel - 1, mixed.shape[-1])), mixed], 1)
        weights = w[f"{core}.{convolution}.weight"].reshape(sizes.kernel, -1)
        mixed = sum(weights[tap] * mixed[:, tap : tap + seq] for tap in range(sizes.kernel))
        mixed = mixed + np.reshape(w.get(f"{core}.{convolution}.bias", 0.0), -1)
        return _silu(mixed).reshape(batch, seq, heads, -1)

    keys, values = convolved("key", "key_convolution", sizes.groups), convolved("value", "convolution", sizes.heads)
    steps = np.log1p(np.exp(of._linear(f"{name}.step", x) + w[f"{core}.decay.bias"]))
    steps = np.maximum(steps, sizes.least_step)
    out = np.zeros(values.shape)
    for head in range(sizes.heads):
        query, key = keys[:, :, head // times, :size], keys[:, :, head // times, size:]
        state = np.zeros((batch, size, sizes.head_size))
        for t in range(seq):
            step = steps[:, t, head, None, None]
            state = state * np.exp(-np.exp(w[f"{core}.decay.log_decay"][head]) * step)
            state = state + step * key[:, t, :, None] * values[:, t, head, None]
            out[:, t, head] = (query[:, t, None] @ state)[:, 0] + w[f"{core}.skip"][head] * values[:, t, head]
    gated = (out.reshape(batch, seq, -1) * _silu(of._linear(f"{name}.gate", x))).reshape(batch, seq, sizes.groups, -1)
    normed = _normed(gated, c.norm_epsilon).reshape(batch, seq, -1) * w[f"{name}.norm.gamma"]
    return of._linear(f"{name}.output", normed)


def experts_result(of: Reference, name: str, x: Array) -> Array:
    """Token by token: the results of its experts that have a place left, weighted, and the shared expert's."""
    experts = of.config.experts
    assert experts is not None
    out = np.zeros_like(x)
    for sample, tokens in enumerate(x):
        length = len(tokens) // experts.token_groups
        for position, token in enumerate(tokens):
            if position % length == 0:
                taken = np.zeros(experts.number, int)
            for expert, weight in _choices(of, f"{name}.router", token):
                taken[expert] += 1
                if taken[expert] < experts.places(length):  # one place stays empty
                    read, times = (token * weight, 1.0) if experts.scales_input else (token, weight)
                    out[sample, position] += times * _expert(of, f"{name}.experts", expert, read)
    if not experts.shared_size:
        return out
    shared = of._feed_forward(f"{name}.shared", x)
    if experts.shared_gate:
        shared = shared / (1.0 + np.exp(-of._linear(f"{name}.shared_gate", x)))
    return out + shared


def _expert(of: Reference, name: str, expert: int, x: Array) -> Array:
    experts, w = of.config.experts, of.weights
    assert experts is not None

    def product(part: str, x: Array) -> Array:
        return x @ w[f"{name}.{part}"][expert] + (w[f"{name}.{part}_bias"][expert, 0] if experts.bias else 0.0)

    if not of.config.is_gated:
        return product("down", np.maximum(product("up", x), 0.0) ** 2)
    gate, up = product("gate", x), product("up", x)
    if experts.clamp:  # as gpt-oss has it
        gate, up = np.minimum(gate, experts.clamp), np.clip(up, -experts.clamp, experts.clamp)
        return product("down", (up + 1.0) * gate / (1.0 + np.exp(-experts.clamp_slope * gate)))
    return product("down", gate / (1.0 + np.exp(-gate)) * up)


def _normed(x: Array, epsilon: float) -> Array:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)


def _choices(of: Reference, name: str, token: Array) -> list[tuple[int, float]]:
    """The experts of a token, best first, with their weights."""
    experts, logits = of.config.experts, of.weights[f"{name}.scores.weight"] @ token
    logits = logits + of.weights.get(f"{name}.scores.bias", 0.0)
    assert experts is not None
    is_softmax = experts.scoring == "softmax"
    scores = np.exp(_log_softmax(logits)) if is_softmax else 1.0 / (1.0 + np.exp(-logits))
    choice = scores + of.weights[f"{name}.correction"] if experts.is_corrected else scores
    if experts.groups > 1:
        best_of = 1 if is_softmax else 2
        grouped = np.sort(choice.reshape(experts.groups, -1), axis=-1)[:, -best_of:].sum(-1)
        best = np.argsort(-grouped)[: experts.groups_per_token]
        choice = choice * np.repeat(np.isin(np.arange(experts.groups), best), experts.number // experts.groups)
    chosen = np.argsort(-choice)[: experts.per_token]
    total = scores[chosen].sum() if experts.normalised else 1.0
    return [(int(e), float(experts.scale * scores[e] / total)) for e in chosen]


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def _silu(x: Array) -> Array:
    return x * _sigmoid(x)


def _capped(x: Array, cap: float) -> Array:
    return cap * np.tanh(x / cap) if cap else x


def _gelu(x: Array) -> Array:
    """The tanh form, which MindSpore's GeLU computes."""
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _log_softmax(x: Array) -> Array:
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
