"""Bytes of an instance on its fullest device: weights, cache of a token, buffers of a step."""

import math
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
LATENT_GROUP, INDEX_SCALE_B = 128, 2
"""In 8 bits a latent cache has a float32 scale for so many elements, beside its rotated key in 16 bits; an indexer's key has a
scale of 16 bits (vllm-ascend, enable_sparse_sfa_c8 and enable_sparse_li_c8).
"""


@dataclass(frozen=True)
class Weights:
    """Elements of a layer's weights on one device: attention, linear attention in its place, its indexer and that one's keys (in
    16 bit as the router is), a dense feed-forward, one expert, the shared one, router.
    """

    attention: float
    linear: float
    indexer: float
    index_keys: float
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
        attention = h * d * ((3 if config.attention_gate else 2) * heads + 2 * kv_heads)
    else:
        heads = config.num_heads / one.tp
        down = h * (latent.query_rank + latent.key_value_rank + latent.rotary_head_dim)
        up = (latent.query_rank or h) * d + latent.key_value_rank * (d - latent.rotary_head_dim + latent.value_head_dim)
        attention = down + heads * (up + latent.value_head_dim * h)
    delta, indexer = config.delta, config.indexer
    linear, chooses, keys = 0.0, 0, 0
    if delta is not None:
        values, rank = delta.key_heads * delta.group_values, delta.channel_rank
        rows = delta.key_heads * delta.group_size + values + delta.value_heads  # what is convolved, the output, beta
        rows += 0 if rank else values + delta.value_heads  # gates and decays; of channels from a narrow vector each
        narrow = rank * (delta.key_heads * delta.key_size + values)
        linear = (h * rows + narrow + delta.kernel * delta.key_heads * delta.group_size) / one.tp + 2 * h * rank
    if indexer is not None and latent is not None:
        chooses, keys = latent.query_rank * indexer.heads * indexer.head_dim, h * (indexer.head_dim + indexer.heads)
    return Weights(
        attention=attention,
        linear=linear,
        indexer=chooses,
        index_keys=keys,
        dense=gates * h * config.intermediate_size / one.ffn_tp,
        expert=gates * h * experts.intermediate_size / one.expert_tp if experts is not None else 0,
        shared=gates * h * experts.shared_size + h * experts.shared_gate if experts is not None else 0,
        router=h * experts.number if experts is not None else 0,
        table=config.vocab_size * h / one.tp,
    )


def slots(config: TransformerConfig, one: Strategy) -> int:
    """Experts of a layer on a device; where there are more devices than experts, some have a copy."""
    return -(-config.experts.number // one.ep) if config.experts is not None else 0


def layers_of(request: Request, one: Strategy) -> Mapping[BlockKind, float]:
    """How many layers of a stage are of each kind; stages are as full as the fullest."""
    layers = request.config.num_layers
    full = math.ceil(layers / one.pp) / layers
    return {kind: count * full for kind, count in request.layers_of_kinds.items()}


def weights_B(request: Request, one: Strategy) -> int:
    """Bytes of the weights on a device of the last stage, or of the first, which have a table each (both, where they are one)."""
    config, per = request.config, weights_of(request.config, one)
    layers, whole = 0.0, per.table * (1 if config.tied_embeddings or one.pp > 1 else 2)
    for kind, count in layers_of(request, one).items():
        chooses = not kind.shares_choice
        layers += count * (per.linear if kind.linear else per.attention + chooses * per.indexer)
        layers += count * (slots(config, one) * per.expert + per.shared if kind.experts else per.dense)
        whole += count * (kind.experts * per.router + chooses * per.index_keys)
    return int(layers * request.weight_B + whole * ELEMENT_B)


def resident_B(request: Request, one: Strategy) -> int:
    """Bytes of the weights, and of the buffers of communicators of `tp` and of `dp`."""
    return weights_B(request, one) + HCCL_BUFFER_B * ((one.tp > 1) + (one.dp > 1))


def cache_B(request: Request, one: Strategy) -> int:
    """Bytes of one token's cache on a device: the mean over the tokens of a request at its longest. Of a network with linear
    attention all layers have blocks of one size, and a state takes one: room for it twice, and for what the convolution sees.
    """
    whole = request_tokens(request, one)
    if request.config.delta is None:
        return math.ceil(held_B(request, one, whole) / whole)
    block = block_tokens(request, one)
    block_B = block * key_value_B(request, one) + state_B(request, one)[1]
    blocks = sum(n * (1 if kind.linear else whole / block) for kind, n in layers_of(request, one).items())
    return math.ceil(blocks * block_B / whole)


def held_B(request: Request, one: Strategy, tokens: float) -> float:
    """Bytes of what so many tokens of one request leave on a device, in all layers of a stage."""
    return sum(n * layer_B(request, one, kind, tokens) for kind, n in layers_of(request, one).items())


def layer_B(request: Request, one: Strategy, kind: BlockKind, tokens: float) -> float:
    """Those of a layer of `kind`: of all tokens or of a window, or a state of one size."""
    if kind.linear:
        return sum(state_B(request, one))
    each_B = key_value_B(request, one) + (0.0 if kind.shares_choice else index_key_B(request))
    return min(kind.window or tokens, tokens) * each_B


def key_value_B(request: Request, one: Strategy) -> float:
    """Bytes of a token's keys and values in a layer: its heads, or the latent vector, which every device of `tp` has whole."""
    config, element_B = request.config, request.cache_element_B
    latent = config.latent_attention
    if latent is None:
        return max(config.n_kv_heads // one.tp, 1) * 2 * config.head_dim * element_B
    if config.indexer is not None and element_B < ELEMENT_B:
        scales = math.ceil(latent.key_value_rank / LATENT_GROUP)
        return latent.key_value_rank * element_B + latent.rotary_head_dim * ELEMENT_B + scales * 4
    return (latent.key_value_rank + latent.rotary_head_dim) * element_B


def index_key_B(request: Request) -> float:
    """Bytes of the key that a token has for a layer's indexer."""
    indexer, element_B = request.config.indexer, request.cache_element_B
    if indexer is None:
        return 0.0
    return indexer.head_dim * element_B + (INDEX_SCALE_B if element_B < ELEMENT_B else 0)


def state_B(request: Request, one: Strategy) -> tuple[float, float]:
    """Bytes of a request's state in a layer of linear attention, and of the tokens that the convolution sees next."""
    delta = request.config.delta
    if delta is None:
        return 0.0, 0.0
    element_B = 4 if delta.state_dtype == "float32" else ELEMENT_B
    state = delta.value_heads * delta.key_size * delta.value_size * element_B
    return state / one.tp, (delta.kernel - 1) * delta.key_heads * delta.group_size * ELEMENT_B / one.tp


def block_tokens(request: Request, one: Strategy) -> int:
    """Tokens of a block of the cache: beside linear attention so many that their keys take what a state does (vllm-ascend)."""
    return BLOCK_TOKENS * max(1, math.ceil(state_B(request, one)[0] / key_B(request, one) / BLOCK_TOKENS))


def key_B(request: Request, one: Strategy) -> float:
    """Bytes of a token's keys in a layer, without its values, or of its latent vector without what is rotated."""
    latent = request.config.latent_attention
    return key_value_B(request, one) / 2 if latent is None else latent.key_value_rank * request.cache_element_B


def buffers_B(config: TransformerConfig, one: Strategy, tokens: int, rows: int) -> int:
    """Bytes of a step with so many tokens of a `dp` rank, of which `rows` get logits: the widest tensors, two at once, and what
    is dispatched to experts.
    """
    wide = max(config.intermediate_size * 2 / one.ffn_tp, 3 * config.query_size / one.tp, config.hidden_size)
    experts, delta, indexer = config.experts, config.delta, config.indexer
    if delta is not None:  # what is projected; the states before every chunk
        states = delta.value_heads * delta.key_size * delta.value_size / delta.chunk
        wide = max(wide, delta.key_heads * (delta.group_size + delta.group_values) / one.tp, states / one.tp)
    if indexer is not None:
        wide = max(wide, indexer.heads * indexer.head_dim)
    dispatched = 2 * experts.per_token * config.hidden_size / one.tp if experts is not None else 0
    return int(tokens * (2 * config.hidden_size + 2 * wide + dispatched) * ELEMENT_B + rows * config.vocab_size * 4)


def cache_tokens(request: Request, one: Strategy, tokens: int, rows: int) -> int:
    """Tokens that the cache of a `dp` rank has room for beside weights and a step's buffers; negative if these do not fit."""
    left = request.limit_B - resident_B(request, one) - buffers_B(request.config, one, tokens, rows)
    return left // cache_B(request, one)


def request_tokens(request: Request, one: Strategy) -> int:
    """Tokens of the cache that a request holds at its longest, whole blocks."""
    block = block_tokens(request, one)
    return -(-request.tokens.whole // block) * block
