"""A network under many configurations: its places, how many of each lie on every pipeline stage, and their parameters."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ms_symtensor.cost.configuration import Configuration
from ms_symtensor.cost.elements import Elements, elements_of
from ms_symtensor.cost.shapes import Array, Shapes
from ms_symtensor.cost.transformer import dense_block, embedding, expert_block, head
from ms_symtensor.cost.work import Place


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
        """Parameters of every place."""
        return elements_of(self.shapes)

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
