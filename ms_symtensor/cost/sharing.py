"""What of a network is computed again, and over how many ranks its optimizer is sharded."""

from collections.abc import Callable

import numpy as np

from ms_symtensor.cost.configuration import Configuration, Part, Recomputation
from ms_symtensor.cost.network import Network
from ms_symtensor.cost.shapes import Array
from ms_symtensor.program.passes import flights


def recomputed_share(network: Network) -> Array:
    """The share of the blocks of every stage that are computed again whole: [configurations, stages]."""
    return _shares(network, lambda again, stage, blocks: again.on_stage(stage, blocks))


def part_share(network: Network, part: Part) -> Array:
    """The share of those that compute only `part` again, beside other parts."""
    return _shares(network, lambda again, stage, blocks: again.part_on_stage(part, stage, blocks))


def _shares(network: Network, count: Callable[[Recomputation, int, int], int]) -> Array:
    found = np.zeros((len(network.shapes.of), network.stages))
    known: dict[tuple, list[float]] = {}
    for row, c in enumerate(network.shapes.of):
        key = c.recomputation, c.stage_layers
        if key not in known:
            known[key] = [count(c.recomputation, i, n) / max(n, 1) for i, n in enumerate(c.stage_layers)]
        found[row, : c.pipeline_stages] = known[key]
    return found


def recomputed_in_flight(network: Network) -> Array:
    """As `recomputed_share`, each block weighted with the micro-batches in flight of its chunk over their mean.

    Blocks of a stage that are fewer than its chunks are taken from the chunks in turn (MindSpeed, should_recompute); when a
    stage begins its first backward pass, the first chunk has most micro-batches in flight.
    """
    whole = recomputed_share(network)
    for row, c in enumerate(network.shapes.of):
        if c.interleave > 1:
            for stage, blocks in enumerate(c.stage_layers):
                whole[row, stage] *= _weight(c, stage, c.recomputation.on_stage(stage, blocks))
    return whole


def _weight(c: Configuration, stage: int, again: int) -> float:
    """Micro-batches in flight of `again` blocks over those of as many blocks of all chunks."""
    chunks = c.interleave
    runs = flights(stage, c.pipeline_stages, c.micro_batch_num, chunks).runs
    weighted = sum(n * (again // chunks + (chunk < again % chunks)) for chunk, n in enumerate(runs))
    return weighted * chunks / (again * sum(runs)) if again else 1.0


def optimizer_shards(network: Network) -> tuple[Array, Array]:
    """Over how many ranks master weights and moments are sharded: of shared parameters, and of experts."""
    s = network.shapes
    level = s.column(lambda c: c.optimizer_level)
    limit = s.column(lambda c: c.optimizer_weight_shard_size)
    copies, expert_copies = s.dp * s.cp, s.tp * s.dp * s.cp / (s.ep * s.etp)
    size = np.where(limit > 0, np.minimum(limit, copies), copies)
    expert_size = np.where(limit > 0, np.minimum(limit, expert_copies), expert_copies)
    # MindSpore shards the first dim of a parameter, which is that of the experts, and only where it divides.
    local = s.column(lambda c: c.model.experts.num_experts / c.expert_parallel if c.model.experts else 1)
    expert_size = np.where((s.mindspore > 0) & (local % expert_size != 0), 1.0, expert_size)
    return np.where(level > 0, size, 1.0), np.where(level > 0, expert_size, 1.0)
