"""A network under many configurations: its places, how many of each lie on every pipeline stage, and their parameters."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ms_symtensor.cost.configuration import Configuration
from ms_symtensor.cost.shapes import Array, Shapes
from ms_symtensor.cost.transformer import dense_block, embedding, expert_block, head
from ms_symtensor.cost.work import Place


@dataclass(frozen=True)
class Elements:
    """Parameters of a place on one device: those that all data-parallel ranks share, and those of the experts it holds."""

    shared: Array
    of_experts: Array


@dataclass(frozen=True)
class Network:
    """Places in their order and `counts` [places, configurations, stages] of each; stages that do not exist have none."""

    shapes: Shapes

    @cached_property
    def stages(self) -> int:
        return max(c.pipeline_stages for c in self.shapes.of)

    @cached_property
    def exists(self) -> Array:
        """1 where a stage exists: [configurations, stages]."""
        return (np.arange(self.stages)[None, :] < self.shapes.pp[:, None]).astype(float)

    @cached_property
    def places(self) -> tuple[Place, ...]:
        s = self.shapes
        return (embedding(s), dense_block(s), expert_block(s), head(s))

    @cached_property
    def counts(self) -> Array:
        found = np.zeros((4, len(self.shapes.of), self.stages))
        known: dict[tuple, Array] = {}
        for row, c in enumerate(self.shapes.of):
            model = c.model
            dense = model.num_layers if model.experts is None else model.experts.dense_blocks
            key = (c.stage_layers, dense, model.mtp_blocks, c.head_stage, c.pipeline_stages)
            if key not in known:
                known[key] = _counts(c, dense, self.stages)
            found[:, row] = known[key]
        return found

    @cached_property
    def elements(self) -> tuple[Elements, ...]:
        """By place; the embedding's table is held twice where it is tied and embedding and head lie on two stages."""
        s = self.shapes
        nothing = np.zeros(len(s.of))
        table = s.vocabulary * s.hidden
        positions = s.where(lambda c: c.model.position == "learned") * s.sequence * s.hidden
        alone = s.where(lambda c: c.model.tied_embeddings and c.pipeline_stages == 1)
        norm = _norm_elements(s)
        attention = _attention_elements(s) + 2 * norm
        dense = attention + _feed_forward_elements(s, s.width)
        router = s.hidden * s.column(lambda c: c.model.experts.num_experts if c.model.experts else 0)
        local = s.column(lambda c: c.model.experts.num_experts / c.expert_parallel if c.model.experts else 0)
        width = s.column(lambda c: c.model.experts.intermediate_size / c.model_parallel if c.model.experts else 0)
        beside = s.column(lambda c: c.model.experts.shared_experts if c.model.experts else 0)
        shared = attention + router + beside * _feed_forward_elements(s, width)
        return (
            Elements(table + positions, nothing),
            Elements(dense, nothing),
            Elements(shared, local * _feed_forward_elements(s, width)),
            Elements(norm + (1 - alone) * table, nothing),
        )

    def on_stages(self, each: tuple[Array, ...]) -> Array:
        """The sum over places of `each`, an array per place with one entry per configuration: [configurations, stages]."""
        total: Array = np.einsum("prs,pr->rs", self.counts, np.stack(each))
        return total


def _counts(c: Configuration, dense_blocks: int, stages: int) -> Array:
    found = np.zeros((4, stages))
    found[0, 0] = 1
    before = 0
    for stage, blocks in enumerate(c.stage_layers):
        dense = max(0, min(dense_blocks - before, blocks))
        found[1, stage], found[2, stage] = dense, blocks - dense
        before += blocks
    last = c.pipeline_stages - 1 if c.head_stage == -1 else c.head_stage
    found[3, last] = 1
    # Multi-token prediction: one more block and head each, on the last stage.
    found[2 if c.model.experts else 1, last] += c.model.mtp_blocks
    found[3, last] += c.model.mtp_blocks
    return found


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
