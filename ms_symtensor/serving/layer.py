"""The kernels and collectives of a decoder layer on one device, as arrays over the numbers of tokens.

Priced as a training step's: `cost.kernel` and the cluster's collectives. Products of 8-bit weights run in 8 bit at twice
the rate (Ascend's cube unit and tensor cores alike), those of 4-bit ones in 16 bit. Dispatch and combine take what is faster of
AlltoAll and one-sided writes, which leave at once: one latency, and the port's bandwidth (CANN's MoeDistributeDispatch, DeepEP).
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_zoo.config import BlockKind
from ms_symtensor.cluster.collective_time import collective_time
from ms_symtensor.cost.kernel import Kernel, attention_s, pass_s, product_s, vector_s
from ms_symtensor.serving.memory import ELEMENT_B, Weights, index_key_B, key_value_B, slots, state_B, weights_of
from ms_symtensor.serving.request import WEIGHT_BITS, Request
from ms_symtensor.serving.strategy import Strategy

Array = NDArray[np.float64]
SILU = 5
"""Operations of the vector unit for an element of SiLU (exp, add, divide, two products: as `ops` has it)."""
DELTA_STEP = 7
"""Those for an element of a state: it fades, is read by the key, and written to; the query reads it (arXiv:2412.06464)."""
SCORE = 3
"""Those for a key and a head of an indexer: cut at zero, weighted, added (arXiv:2512.02556)."""


@dataclass(frozen=True)
class Step:
    """A forward pass: every `dp` rank has `tokens` tokens (an array), of `requests` requests, that see `keys` keys each.

    `is_decode`: one token of a request, whose keys come from the cache. `imbalance`: tokens of the fullest rank over the mean;
    `attended`: that of what they attend to. `context`: keys of a rank's prompts that earlier passes left in the cache.
    """

    tokens: Array
    requests: Array
    keys: float
    is_decode: bool
    imbalance: float | Array = 1.0
    attended: float | Array = 1.0
    context: float | Array = 0.0


class Layer:
    """Seconds of a layer of `request.config` under `one`, for the tokens of `step`; `parts` collects them by name."""

    def __init__(self, request: Request, one: Strategy, step: Step) -> None:
        self.request, self.one, self.step = request, one, step
        self.config, self.cluster = request.config, request.cluster
        self.weights: Weights = weights_of(self.config, one)
        self.flops = 1.0 if WEIGHT_BITS[request.weights] == 8 else 2.0
        self.parts: dict[str, Any] = defaultdict(lambda: np.zeros_like(step.tokens))
        self.stage = tuple(range(one.stage_devices))
        self.tensor = tuple(range(one.tp))
        self.keys = step.keys

    def attention(self, kind: BlockKind) -> None:
        """Norm, projections, cache, attention, output, its sum over `tp`, of a layer of `kind`."""
        c, m = self.config, self.step.tokens
        self.keys = self._seen(c.indexer.keys if c.indexer is not None else kind.window)
        heads = c.num_heads / self.one.tp
        self._pass("norm", 3 * m * c.hidden_size)
        if kind.linear:
            self._linear_attention()
        elif c.latent_attention is None:
            kv_heads = max(c.n_kv_heads / self.one.tp, 1)
            width = (heads + 2 * kv_heads) * c.head_dim
            self._product("attention", m, width + c.attention_gate * heads * c.head_dim, c.hidden_size)
            self._pass("attention", 2 * m * width)  # rotation, and into the cache
            keys_B = self.step.requests * self.keys * key_value_B(self.request, self.one)
            self._attention(heads, c.head_dim, keys_B, 2 * heads * c.head_dim)
            if c.attention_gate:
                self._gate("attention", m * heads * c.head_dim)
            self._product("attention", m, c.hidden_size, heads * c.head_dim)
        else:
            if c.indexer is not None and not kind.shares_choice:
                self._choice()
            self._latent_attention(heads)
        if self.one.tp > 1:
            self._collective("AllReduce", self.tensor, m * c.hidden_size * ELEMENT_B)

    def dense(self) -> None:
        """Norm, the feed-forward, and the sum over its slices."""
        c, m = self.config, self.step.tokens
        self._pass("norm", 3 * m * c.hidden_size)
        together = m
        if self.one.ffn_tp > self.one.tp:  # tokens of all requests of a stage
            together = m * self.one.dp
            self._collective(
                "AllGather", tuple(range(0, len(self.stage), self.one.tp)), together * c.hidden_size * ELEMENT_B
            )
        self._feed_forward("feed_forward", together, c.intermediate_size / self.one.ffn_tp)
        if self.one.ffn_tp > self.one.tp:
            self._collective("ReduceScatter", self.stage, together * c.hidden_size * ELEMENT_B)
            if self.one.tp > 1:
                self._collective("AllGather", self.tensor, m * c.hidden_size * ELEMENT_B)
        elif self.one.tp > 1:
            self._collective("AllReduce", self.tensor, m * c.hidden_size * ELEMENT_B)

    def experts(self) -> None:
        """Norm, router, dispatch, the experts that tokens meet, combine; the shared expert."""
        c, m, one = self.config, self.step.tokens, self.one
        e = c.experts
        assert e is not None
        self._pass("norm", 3 * m * c.hidden_size)
        own = m / one.tp if one.ep > 1 else m  # devices of tp dispatch a share each
        self._product("experts", own, e.number, c.hidden_size, ELEMENT_B)
        self._pass("experts", own * e.number * 4)
        if e.shared_size:
            self._feed_forward("shared_expert", own, e.shared_size)
            if e.shared_gate:
                self._product("shared_expert", own, 1, c.hidden_size, ELEMENT_B)
                self._gate("shared_expert", own * c.hidden_size)
        everybody = m * one.dp
        met = 1 - (1 - e.per_token / e.number) ** everybody
        rows = everybody * e.per_token / one.ep * e.load_imbalance
        sent = own * e.per_token * c.hidden_size
        if one.ep > 1:
            self._dispatch(sent * (1 if WEIGHT_BITS[self.request.weights] == 8 else ELEMENT_B))
        elif one.dp > 1:
            groups = tuple(range(0, len(self.stage), one.tp))
            self._collective("AllGather", groups, everybody * c.hidden_size * ELEMENT_B)
        self._pass("experts", 2 * rows * c.hidden_size)  # sorted by expert
        width = e.intermediate_size / one.expert_tp
        self._feed_forward("experts", rows, width, slots(c, one) * met)
        if one.ep > 1:
            self._dispatch(sent * ELEMENT_B)
            self._pass("experts", sent + own * c.hidden_size)
            if one.tp > 1:
                self._collective("AllGather", self.tensor, m * c.hidden_size * ELEMENT_B)
        elif len(self.stage) > 1:
            kind = "ReduceScatter" if one.dp > 1 else "AllReduce"
            self._collective(kind, self.stage, everybody * c.hidden_size * ELEMENT_B)

    def head(self, rows: Any) -> None:
        """The embedding of all tokens; logits of `rows` of them, gathered over `tp`."""
        c = self.config
        self._pass("head", 2 * self.step.tokens * c.hidden_size)
        self._pass("head", 3 * rows * c.hidden_size)
        self._product("head", rows, c.vocab_size / self.one.tp, c.hidden_size, ELEMENT_B)
        if self.one.tp > 1:
            self._collective("AllReduce", self.tensor, self.step.tokens * c.hidden_size * ELEMENT_B)
            self._collective("AllGather", self.tensor, rows * c.vocab_size * ELEMENT_B)
        self._pass("head", 2 * rows * c.vocab_size)  # sampling

    def to_next_stage(self) -> None:
        """Hidden states to the next stage's device."""
        if self.one.pp > 1:
            size = self.step.tokens * self.config.hidden_size * ELEMENT_B / self.one.tp
            self._collective("Send", (0, self.one.stage_devices), size)

    def _linear_attention(self) -> None:
        """Gated linear attention. Decode rewrites a state of every request. Prefill takes chunks of tokens at once: their
        triangular systems, what these make of keys and values, and the states between them (arXiv:2406.06484).
        """
        c, m, d = self.config, self.step.tokens, self.config.delta
        assert d is not None
        heads, channels, size = d.value_heads / self.one.tp, d.key_heads * d.group_size / self.one.tp, d.key_size
        state, before = (self.step.requests * each_B for each_B in state_B(self.request, self.one))
        rows = heads * (d.value_size + 2)
        if d.channel_rank:
            rows = heads + 2 * d.channel_rank
            self._product("linear_attention", m, heads * (size + d.value_size), d.channel_rank)
        self._product("linear_attention", m, rows + channels, c.hidden_size)
        self._vector("linear_attention", 2 * m * channels, m * channels * (2 * d.kernel + SILU), 2 * before)
        if self.step.is_decode:
            work = m * heads * DELTA_STEP * size * d.value_size
            self._vector("linear_attention", m * (channels + heads * d.value_size), work, 2 * state)
        else:
            tokens, chunk = m * heads, d.chunk
            faded = tokens * (size if d.channel_rank else chunk)
            self._vector("linear_attention", 2 * faded, faded * SILU, 2 * state)
            within = ((chunk, size), (chunk, size), (chunk, chunk), (size + d.value_size, chunk), (d.value_size, chunk))
            for columns, depth in (*within, (d.value_size, size), (d.value_size, size)):
                self._product("linear_attention", tokens, columns, depth, ELEMENT_B, matrices=0)
            self._product("linear_attention", tokens * size / chunk, d.value_size, chunk, ELEMENT_B, matrices=0)
        self._gate("linear_attention", m * heads * d.value_size)
        self._product("linear_attention", m, c.hidden_size, heads * d.value_size)

    def _choice(self) -> None:
        """An indexer's scores of all keys, and the best of them, on every device of `tp` alike."""
        c, m, own = self.config, self.step.tokens, self.config.indexer
        latent = c.latent_attention
        assert own is not None and latent is not None
        self._product("indexer", m, own.heads * own.head_dim, latent.query_rank)
        self._product("indexer", m, own.head_dim + own.heads, c.hidden_size, ELEMENT_B)
        self._pass("indexer", 2 * m * (own.heads + 1) * own.head_dim)  # norm, rotation, and into the cache
        keys = self.step.keys
        read = self.step.requests * keys if self.step.is_decode else m + self.step.context
        scores = {
            "elements": m * own.heads * keys, "depth": own.head_dim, "flops": min(2.0, self.request.cache_element_B),
            "traffic_B": m * own.heads * own.head_dim * ELEMENT_B, "cold_B": read * index_key_B(self.request),
        }  # fmt: skip
        best = {"traffic_B": m * keys * 4, "operations": m * own.heads * keys * SCORE}
        uneven = self.step.attended / self.step.imbalance
        self._add("indexer", Kernel(product_s, scores), Kernel(vector_s, best), more=uneven)

    def _latent_attention(self, heads: float) -> None:
        """A pass of prefill gathers blocks of the cache, on every device of `tp`, and widens them to keys and values of its heads
        (vLLM's chunked context). Where an indexer chooses keys, it reads them as decode does, each token its own: all but the
        first time out of the L2 cache (vllm-ascend's sparse attention).
        """
        c, m, latent = self.config, self.step.tokens, self.config.latent_attention
        assert latent is not None
        rank, rotary, value = latent.key_value_rank, latent.rotary_head_dim, latent.value_head_dim
        plain = c.head_dim - rotary
        self._product("attention", m, latent.query_rank + rank + rotary, c.hidden_size)
        self._product("attention", m, heads * c.head_dim, latent.query_rank or c.hidden_size)
        self._pass("attention", 2 * m * (heads * rotary + rank + rotary))
        context, each_B = self.step.context, key_value_B(self.request, self.one)
        if self.step.is_decode or c.indexer is not None:  # queries into the latent space, where the cache is, and back
            keys_B = self.step.requests * self.keys * each_B
            if not self.step.is_decode:
                keys_B = (m + context + m * self.keys / self.cluster.device.l2_speedup) * each_B
            self._product("attention", m, heads * rank, plain)
            self._attention(heads, rank + rotary / 2, keys_B, heads * (2 * rank + rotary))
            self._product("attention", m, heads * value, rank)
        else:
            self._pass("attention", 2 * context * (rank + rotary))
            self._product("attention", m + context, heads * (plain + value), rank)
            keys_B = (m + context) * heads * (c.head_dim + value) * ELEMENT_B
            self._attention(heads, (c.head_dim + value) / 2, keys_B, heads * (c.head_dim + value))
        self._product("attention", m, c.hidden_size, heads * value)

    def _seen(self, window: int) -> float:
        """Keys of a token on average; in a prompt the first tokens have fewer than a window."""
        keys = self.step.keys
        if not window:
            return keys
        if self.step.is_decode:
            return min(keys, window)
        return min(keys, window - window**2 / (4 * keys)) if window < 2 * keys else keys

    def _attention(self, heads: float, head_dim: float, keys_B: Any, width: float) -> None:
        """`keys_B`: bytes of keys and values, those of the cache in decode and where an indexer chooses them; `width`: of a
        token's other tensors.
        """
        m, cold = self.step.tokens, 1.0 if self.step.is_decode or self.config.indexer is not None else 0.0
        arguments = {
            "rows": m * heads, "keys": self.keys, "head_dim": head_dim,
            "traffic_B": keys_B * (1 - cold) + m * width * ELEMENT_B, "cold_B": keys_B * cold,
        }  # fmt: skip
        uneven = self.step.attended if self.keys == self.step.keys else self.step.imbalance
        self._add("attention", Kernel(attention_s, arguments), more=uneven / self.step.imbalance)

    def _feed_forward(self, name: str, rows: Any, width: float, matrices: Any = 1.0) -> None:
        """A feed-forward of `width`; `matrices`: how many of its weights are read (experts that tokens meet)."""
        gates = 2 if self.config.is_gated else 1
        h = self.config.hidden_size
        self._product(name, rows, gates * width, h, matrices=matrices)
        self._vector(name, rows * (gates + 1) * width, SILU * rows * width)
        self._product(name, rows, h, width, matrices=matrices)

    def _product(
        self, name: str, rows: Any, columns: float, depth: float, weight_B: float | None = None, matrices: Any = 1.0
    ) -> None:
        """`rows` of `depth` times a weight of `columns`, an element of which has `weight_B` bytes (None: as the layers')."""
        each_B = self.request.weight_B if weight_B is None else weight_B
        arguments = {
            "elements": rows * columns, "depth": depth, "flops": self.flops if weight_B is None else 2.0,
            "traffic_B": rows * (columns + depth) * ELEMENT_B, "cold_B": matrices * columns * depth * each_B,
        }  # fmt: skip
        self._add(name, Kernel(product_s, arguments))

    def _gate(self, name: str, elements: Any) -> None:
        """So many elements are multiplied by a sigmoid or a SiLU of others."""
        self._vector(name, 3 * elements, SILU * elements)

    def _vector(self, name: str, elements: Any, operations: Any, cold_B: Any = 0.0) -> None:
        arguments = {"traffic_B": elements * ELEMENT_B, "operations": operations, "cold_B": cold_B}
        self._add(name, Kernel(vector_s, arguments))

    def _pass(self, name: str, elements: Any) -> None:
        self._add(name, Kernel(pass_s, {"traffic_B": elements * ELEMENT_B}))

    def _add(self, name: str, *kernels: Kernel, more: float | Array = 1.0) -> None:
        """What `kernels` take that run at once, each on a unit of its own."""
        seconds = np.maximum.reduce([kernel.seconds(self.cluster) for kernel in kernels])
        self.parts[name] = self.parts[name] + seconds * self.step.imbalance * more

    def _dispatch(self, size_B: Any) -> None:
        ranks = self.stage
        far = (0, ranks[-1])
        all_to_all = collective_time(self.cluster, "AlltoAll", ranks).array_s(size_B)
        written = collective_time(self.cluster, "Send", far).array_s(size_B * (len(ranks) - 1) / len(ranks))
        self.parts["dispatch"] = (
            self.parts["dispatch"] + np.minimum(all_to_all, written) + self.cluster.device.collective_s
        )

    def _collective(self, kind: str, ranks: tuple[int, ...], size_B: Any) -> None:
        time = collective_time(self.cluster, kind, ranks).array_s(size_B) + self.cluster.device.collective_s
        self.parts["communication"] = self.parts["communication"] + time * self.step.imbalance
