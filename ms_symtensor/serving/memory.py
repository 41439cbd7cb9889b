"""Bytes of an instance on its fullest device: weights, cache of a token, buffers of a step."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from model_zoo.config import BlockKind, TransformerConfig
from ms_symtensor.cost.step import HCCL_BUFFER_B
from ms_symtensor.serving.request import Request
from ms_symtensor.serving.strategy import Strategy

ELEMENT_B = 2
"""Activations, norms and tables of the vocabulary are in 16 bit."""
BLOCK_TOKENS = 128
"""Tokens of a block of the paged cache (vllm-ascend's block_size); the last block of a request is half empty on average."""


@dataclass(frozen=True)
class Weights:
    """Elements of a layer's weights on one device: attention, a dense feed-forward, one expert, the shared one, router."""

    attention: float
    dense: float
    expert: float
    shared: float
    router: float
    table: float


def weights_of(config: TransformerConfig, one: Strategy) -> Weights:
    """Elements on a device; what heads cut lies `tp` ways, latent projections and the router whole."""
    h, d, experts = config.hidden_size, config.head_dim, config.experts
    gates = 3 if config.is_gated else 2
    latent = config.latent_attention
    if latent is None:
        heads, kv_heads = config.num_heads / one.tp, max(config.n_kv_heads / one.tp, 1)
        attention = h * d * (2 * heads + 2 * kv_heads)
    else:
        heads = config.num_heads / one.tp
        down = h * (latent.query_rank + latent.key_value_rank + latent.rotary_head_dim)
        up = (latent.query_rank or h) * d + latent.key_value_rank * (d - latent.rotary_head_dim + latent.value_head_dim)
        attention = down + heads * (up + latent.value_head_dim * h)
    return Weights(
        attention=attention,
        dense=gates * h * config.intermediate_size / one.ffn_tp,
        expert=gates * h * experts.intermediate_size / one.expert_tp if experts is not None else 0,
        shared=gates * h * experts.shared_size if experts is not None else 0,
        router=h * experts.number if experts is not None else 0,
        table=config.vocab_size * h / one.tp,
    )


def slots(config: TransformerConfig, one: Strategy) -> int:
    """Experts of a layer on a device; where there are more devices than experts, some have a copy."""
    return -(-config.experts.number // one.ep) if config.experts is not None else 0


def layers_of(config: TransformerConfig, one: Strategy) -> Mapping[BlockKind, float]:
    """How many layers of a stage are of each kind; stages are as full as the fullest."""
    kinds = config.kinds or tuple(config.kind(layer) for layer in range(config.num_layers))
    full = math.ceil(config.num_layers / one.pp) / config.num_layers
    counts = Counter(BlockKind(kind.experts, kind.window) for kind in kinds)
    return {kind: count * full for kind, count in counts.items()}


def weights_B(request: Request, one: Strategy) -> int:
    """Bytes of the weights on a device of the last stage, or of the first, which have a table each (both, where they are one)."""
    config, per = request.config, weights_of(request.config, one)
    sparse = sum(count for kind, count in layers_of(config, one).items() if kind.experts)
    dense = sum(layers_of(config, one).values()) - sparse
    linear = (
        (dense + sparse) * per.attention + dense * per.dense + sparse * (slots(config, one) * per.expert + per.shared)
    )
    tables = per.table * (1 if config.tied_embeddings or one.pp > 1 else 2)
    return int(linear * request.weight_B + (tables + sparse * per.router) * ELEMENT_B)


def resident_B(request: Request, one: Strategy) -> int:
    """Bytes of the weights, and of the buffers of communicators of `tp` and of `dp`."""
    return weights_B(request, one) + HCCL_BUFFER_B * ((one.tp > 1) + (one.dp > 1))


def cache_B(request: Request, one: Strategy) -> int:
    """Bytes of one token's cache on a device: its heads, or the latent vector, which every device of `tp` has whole. Layers with
    a window keep that many tokens of a request; this is the mean over its tokens at its longest.
    """
    config = request.config
    latent = config.latent_attention
    width = max(config.n_kv_heads // one.tp, 1) * 2 * config.head_dim
    if latent is not None:
        width = latent.key_value_rank + latent.rotary_head_dim
    whole = request_tokens(request)
    layers = sum(count * min(kind.window or whole, whole) / whole for kind, count in layers_of(config, one).items())
    return math.ceil(layers * width * request.cache_element_B)


def buffers_B(config: TransformerConfig, one: Strategy, tokens: int, rows: int) -> int:
    """Bytes of a step with so many tokens of a `dp` rank, of which `rows` get logits: the widest tensors, two at once, and what
    is dispatched to experts.
    """
    wide = max(config.intermediate_size * 2 / one.ffn_tp, 3 * config.query_size / one.tp, config.hidden_size)
    experts = config.experts
    dispatched = 2 * experts.per_token * config.hidden_size / one.tp if experts is not None else 0
    return int(tokens * (2 * config.hidden_size + 2 * wide + dispatched) * ELEMENT_B + rows * config.vocab_size * 4)


def cache_tokens(request: Request, one: Strategy, tokens: int, rows: int) -> int:
    """Tokens that the cache of a `dp` rank has room for beside weights and a step's buffers; negative if these do not fit."""
    left = request.limit_B - resident_B(request, one) - buffers_B(request.config, one, tokens, rows)
    return left // cache_B(request, one)


def request_tokens(request: Request) -> int:
    """Tokens of the cache that a request holds at its longest, whole blocks."""
    return -(-request.tokens.whole // BLOCK_TOKENS) * BLOCK_TOKENS
