"""How many parameters the places of a transformer have on one device."""

from dataclasses import dataclass

import numpy as np

from ms_symtensor.cost.configuration import Configuration
from ms_symtensor.cost.shapes import Array, Shapes


@dataclass(frozen=True)
class Elements:
    """Parameters of a place on one device: those that all data-parallel ranks share, and those of the experts it holds."""

    shared: Array
    of_experts: Array


def elements_of(s: Shapes) -> tuple[Elements, ...]:
    """Of the embedding, a dense block, a block with experts, and the head.

    A tied table is the embedding's; where the head lies on another stage, it is held there once more.
    """
    nothing = np.zeros(len(s.of))
    table = s.vocabulary * s.hidden
    looked_up = table * s.table_copies
    positions = s.where(lambda c: c.model.position == "learned") * s.sequence * s.hidden
    alone = s.where(lambda c: c.model.tied_embeddings and c.pipeline_stages == 1)
    norm = _norm_elements(s)
    attention = _attention_elements(s) + 2 * norm
    router = s.hidden * s.column(lambda c: c.model.experts.num_experts if c.model.experts else 0)
    local = s.column(lambda c: c.model.experts.num_experts / c.expert_parallel if c.model.experts else 0)
    one = np.where(local > 0, s.expert_width, 0.0)
    width = s.column(lambda c: c.model.experts.intermediate_size / c.model_parallel if c.model.experts else 0)
    beside = s.column(lambda c: c.model.experts.shared_experts if c.model.experts else 0)
    shared = attention + router + beside * _feed_forward_elements(s, width)
    return (
        Elements(looked_up + positions, nothing),
        Elements(attention + _feed_forward_elements(s, s.width), nothing),
        Elements(shared, local * _feed_forward_elements(s, one)),
        Elements(norm + (1 - alone) * table, nothing),
    )


def _norm_elements(s: Shapes) -> Array:
    return s.hidden * s.column(lambda c: 2 if c.model.norm == "layer_norm" else 1)


def _attention_elements(s: Shapes) -> Array:
    direct = s.hidden * (s.queries + s.keys + s.values)
    direct = direct + s.where(lambda c: c.model.qkv_bias) * (s.queries + s.keys + s.values)
    latent = np.array([_latent_elements(c) for c in s.of], dtype=float)
    inside = np.where(latent > 0, latent, direct)
    return inside + s.attended * s.hidden + s.where(lambda c: c.model.linear_bias) * s.hidden


def _latent_elements(c: Configuration) -> float:
    """The projections into and out of the low ranks; the first are whole on every tensor rank."""
    latent = c.model.latent_attention
    if latent is None:
        return 0.0
    heads, hidden = c.model.num_heads / c.model_parallel, c.model.hidden_size
    query = latent.nope_head_dim + latent.rope_head_dim
    down = hidden * (latent.query_rank + latent.kv_rank + latent.rope_head_dim) + latent.query_rank + latent.kv_rank
    up = (latent.query_rank or hidden) * heads * query
    return down + up + latent.kv_rank * heads * (latent.nope_head_dim + latent.value_head_dim)


def _feed_forward_elements(s: Shapes, width: Array) -> Array:
    biases = s.where(lambda c: c.model.linear_bias) * (s.branches * width + s.hidden)
    return (s.branches + 1) * s.hidden * width + biases
