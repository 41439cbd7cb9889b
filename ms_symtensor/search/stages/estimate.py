"""A choice of layouts on stages: which blocks each holds, and what the step then takes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.folded.chain import Chain, Part, SelectedChain, Stage
from ms_symtensor.search.folded.places import occurrences
from ms_symtensor.search.space.step_layouts import StepLayout
from ms_symtensor.search.stages.borders import border_s, least_borders_s
from ms_symtensor.search.stages.layout_candidates import Candidate
from ms_symtensor.search.stages.stage_layers import divide


@dataclass(frozen=True)
class Estimate:
    """A shape with the best layouts that were found for it, and what they cost.

    `work_s`: a micro-batch's way through all stages without recomputation; `once_s`: what the end of a step takes.
    `border_s`: what a stage sends for a micro-batch.
    """

    shape: StepLayout
    peak_memory_B: float
    stages: tuple[Stage, ...]
    work_s: float
    once_s: float
    border_s: float = 0.0

    @cached_property
    def step_time_s(self) -> float:
        return math.fsum(self.time_s.values())

    @property
    def time_s(self) -> dict[str, float]:
        """T = M · max s + (Σ s - max s) / v + once, s being the stages' times: what an average stage does, and its waiting.

        What is sent between stages counts among them.
        """
        share, turns = self.shape.micro_batch_num / self.shape.stages, self.shape.schedule
        each_s = [s.each_s + self.border_s for s in self.stages]
        total = math.fsum(s.each_s for s in self.stages)
        return {
            "work": share * self.work_s,
            "recompute": max(0.0, share * (total - self.work_s)),  # a sum in another order may be larger by rounding
            "bubble": max(0.0, turns.step_s(each_s, 0.0) - share * total),
            "once": self.once_s,
        }


def divided(row: Candidate, chain: Chain, limit_B: float | Sequence[float]) -> Estimate | None:
    """The stages of `row`, whose parts are `chain`, that fit, and what the step then takes."""
    recomputed = row.problem.limits.recomputed(int(chain.blocks[-1]))
    shape = row.shape
    stages = divide(chain, shape.stages, shape.schedule, limit_B, recomputed)
    return None if stages is None else estimated(row, chain, stages)


def quickest_s(row: Candidate, occurrences: Sequence[int]) -> float:
    """Seconds that no step of `row` is faster than, however its blocks are divided."""
    costs = row.costs
    return least_step_s(row.shape, occurrences, costs.each_s, costs.once_s) + least_borders_s(row)


def least_step_s(
    shape: StepLayout, occurrences: Sequence[int], each_s: NDArray[np.float64], once_s: NDArray[np.float64]
) -> float:
    """Seconds that no step is faster than whose places take so much [places], but for what is sent between runs of a stage.

    The first stage holds a block for each of its runs beside what stands before them, the last one beside what stands after them,
    the fullest one its share of the blocks, rounded up, and the slowest one its share of all.
    """
    each, once, stages = each_s.tolist(), once_s.tolist(), shape.stages
    total_s = math.fsum(n * s for n, s in zip(occurrences, each, strict=True) if n)
    slowest_s = [total_s / stages]
    if stages > 1:
        blocks = occurrences[1:-1]
        fullest = -(-sum(blocks) // stages)
        quickest_block_s = min(s for n, s in zip(blocks, each[1:-1], strict=True) if n)
        others_s = (shape.interleave - 1) * quickest_block_s
        slowest_s += [each[0] + each[1] + others_s, each[-2] + each[-1] + others_s, fullest * quickest_block_s]
    ending_s = math.fsum(n * s for n, s in zip(occurrences, once, strict=True) if n) / stages
    return shape.schedule.of_slowest_s(max(slowest_s), total_s, ending_s)


def chain_of(row: Candidate, depths: tuple[int, ...], levels: NDArray[np.float64] | None = None) -> Chain:
    """What stands before the blocks, the blocks, and what stands after them; these make parts again if there are `levels`
    [levels, places, (seconds, bytes saved)].
    """
    c, counts = row.costs, occurrences(depths)
    parts: list[Part] = []
    for place, depth in enumerate(counts):
        is_block = 0 < place < len(c.each_s) - 1
        each_s, recompute_s, kept_B, recompute_B, rest_B, once_s = (
            float(v[place]) for v in (c.each_s, c.recompute_s, c.kept_B, c.kept_recomputed_B, c.at_rest_B, c.once_s)
        )
        parts += [Part(each_s, recompute_s, kept_B, recompute_B, rest_B, is_block, once_s)] * depth
    if levels is None:
        return Chain(parts)
    return SelectedChain(parts, levels, [place for place, depth in enumerate(counts) for _ in range(depth)])


def estimated(row: Candidate, chain: Chain, stages: tuple[Stage, ...]) -> Estimate:
    """What the step takes on `stages` of `chain`: T = M · max s + (Σ s - max s) / v + once."""
    work_s = math.fsum(part.each_s for part in chain.parts)
    peak_B, once_s = max(s.peak_B for s in stages), max(s.once_s for s in stages)
    return Estimate(row.shape, peak_B, stages, work_s, once_s, border_s(row))
