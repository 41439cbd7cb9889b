"""Plans of one choice of layouts, each with the true peak of its stages.

Screening leaves out what lives only for a moment, and prices many meshes by one. So the programs of stages are written down and
priced on their own mesh, and the blocks are divided again with what the peaks leave for them, until all stages fit.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ms_symtensor.search.folded.folding import fold, unfold
from ms_symtensor.search.folded.mix import Mix
from ms_symtensor.search.folded.stage_peaks import FEW, StagePeaks
from ms_symtensor.search.space.family import Single
from ms_symtensor.search.stages.estimate import Estimate, divided, estimated, sent_B
from ms_symtensor.search.stages.layout_candidates import Candidate, fixed_candidate
from ms_symtensor.search.stages.network import Network
from ms_symtensor.search.stages.stage_layers import laid_out
from ms_symtensor.search.tables.pricing import Pricer
from ms_symtensor.search.tables.problem import problem_of, sample_num
from ms_symtensor.search.tables.variables import variables

ROUNDS = 6
"""So often the blocks of a shape are divided at most, each time with what the last division's true peaks leave for them."""


@dataclass(frozen=True)
class MaterializedPlan:
    """Layouts on stages, and the memory of every stage.

    `mixes`: what the blocks of every stage recompute that are recomputed, and the others; empty: everything, nothing.
    """

    estimate: Estimate
    row: Candidate
    memory_B: tuple[Mapping[str, int], ...]
    mixes: tuple[Mix, ...] = ()


def on_own_mesh(network: Network, row: Candidate) -> Candidate:
    """`row` at the costs of its own mesh and batch: a family prices many by the layouts and moves of one.

    Where sizes do not divide on a member as they do on the representative, MindSpore carries tensors there in another way.

    Errors: InvalidStrategyError for what MindSpore rejects there.
    """
    of = row.problem
    known = of.known
    if isinstance(known.pricer.family, Single) and sample_num(of.graph) == row.shape.batch:
        return row
    short, pricer = network.short(row.shape.batch), Pricer(known.pricer.cluster, Single(row.shape.mesh))
    own = variables(short, fold(short), pricer, known.rules, fixed=row.strategies, limits=known.limits)
    return fixed_candidate(problem_of(short, own, of.recomputation), row.shape, row.level, row.depths)


def made_feasible(network: Network, row: Candidate, limit_B: float) -> MaterializedPlan | None:
    """`row`, at the costs of its own mesh, on stages whose true peaks fit: with as few recomputed blocks as make them; None if
    none do.
    """
    peaks = peaks_of(network, row)
    beyond_B = [0.0] * row.shape.stages
    for _ in range(ROUNDS):
        found = divided(row, [limit_B - more for more in beyond_B])
        if found is None:
            break
        memory_B = peaks.of(found.stages)
        if all(sum(one.values()) <= limit_B for one in memory_B):
            return with_memory(found, row, memory_B)
        known = zip(beyond_B, found.stages, memory_B, strict=True)
        beyond_B = [max(more, sum(one.values()) - stage.peak_B) for more, stage, one in known]
    smallest = smallest_of(network, row, limit_B)
    return smallest if smallest is not None and smallest.estimate.peak_memory_B <= limit_B else None


def smallest_of(network: Network, row: Candidate, limit_B: float) -> MaterializedPlan | None:
    """`row` with as few recomputed blocks on every stage as fit, all where even those do not, on the division that is best where
    memory is free. None if it is pinned how many are recomputed.
    """
    blocks = sum(network.depths[1:-1])
    free = divided(row, math.inf)
    if free is None or row.problem.limits.recomputed(blocks) != (0, blocks):
        return None
    held = tuple(stage.blocks for stage in free.stages)
    return with_fewest(lambda recomputation: as_given(network, row, held, recomputation), held, limit_B)


def with_fewest(
    laid: Callable[[Sequence[int]], MaterializedPlan], layers: Sequence[int], limit_B: float
) -> MaterializedPlan:
    """On every stage as few recomputed blocks as fit, all where even those do not."""
    low, high = [0] * len(layers), list(layers)
    middle = low
    while low != high:
        sizes = [stage.peak_B for stage in laid(middle).estimate.stages]
        for i, size in enumerate(sizes):
            if size <= limit_B:
                high[i] = min(high[i], middle[i])
            else:
                low[i] = min(middle[i] + 1, high[i])
        middle = [(least + most) // 2 for least, most in zip(low, high, strict=True)]
    return laid(high)


def as_given(network: Network, row: Candidate, layers: Sequence[int], recomputed: Sequence[int]) -> MaterializedPlan:
    """`row` on stages of so many blocks, of which each recomputes so many, whether they fit or not."""
    stages = laid_out(row.chain, layers, recomputed, row.shape.schedule)
    return with_memory(estimated(row, stages), row, peaks_of(network, row).of(stages))


def with_memory(found: Estimate, row: Candidate, memory_B: tuple[Mapping[str, int], ...]) -> MaterializedPlan:
    """`found` with the true peaks in the place of screening's."""
    sizes = [float(sum(one.values())) for one in memory_B]
    stages = tuple(replace(stage, peak_B=size) for stage, size in zip(found.stages, sizes, strict=True))
    return MaterializedPlan(replace(found, stages=stages, peak_memory_B=max(sizes)), row, memory_B)


def peaks_of(network: Network, row: Candidate) -> StagePeaks:
    """The memory of stages of `row`: programs that were written down for it are not written again."""
    batch, schedule, strategies = row.shape.batch, row.shape.schedule, row.strategies

    def written() -> StagePeaks:
        few = network.short(batch, FEW)
        named = unfold(fold(few).class_of, network.short(batch), strategies)
        waiting_B = int(sent_B(row)) if schedule.interleave > 1 else 0
        return StagePeaks(few, network.depths, named, row.settings, schedule, row.problem.known.rules, waiting_B)

    swaps = row.problem.settings.swap_optimizer
    return network.peaks((row.shape, row.level, swaps, frozenset(strategies.items())), written)


def host_memory_B(network: Network, found: MaterializedPlan) -> int:
    """Bytes of optimizer states that stay on the host, of a device of the fullest stage: what they would take on the device."""
    if not found.row.settings.swap_optimizer:
        return 0
    on_device = peaks_of(network, found.row).under(replace(found.row.settings, swap_optimizer=False))
    return max(one["optimizer_states"] for one in on_device.of(found.estimate.stages, found.mixes))
