"""A choice of layouts on stages: which blocks each holds, and what the step then takes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.folded.chain import Chain, Part, Stage
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
        """T = M · max s + (Σ s - max s) / v + `PipelineSchedule.ending_s`, s being the stages' times: what an average stage does,
        and its waiting.

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
    the fullest one its share of the blocks, rounded up, and the slowest one its share of all. The first one hides nothing of what
    it does once per step.
    """
    each, once, stages = each_s.tolist(), once_s.tolist(), shape.stages
    total_s = _of_all(occurrences, each)
    slowest_s, ending_s = [total_s / stages], once[0] + once[1]
    if stages > 1:
        blocks = occurrences[1:-1]
        fullest = -(-sum(blocks) // stages)
        quickest_block_s = min(s for n, s in zip(blocks, each[1:-1], strict=True) if n)
        others_s = (shape.interleave - 1) * quickest_block_s
        slowest_s += [each[0] + each[1] + others_s, each[-2] + each[-1] + others_s, fullest * quickest_block_s]
    held_s = shape.schedule.of_slowest_s(max(slowest_s), total_s, ending_s)
    return max(held_s, total_s / shape.interleave + _wherever_s(shape, occurrences, each, once))


def _wherever_s(shape: StepLayout, occurrences: Sequence[int], each: Sequence[float], once: Sequence[float]) -> float:
    """Seconds that the slowest stage and the end of a step take at least together, wherever blocks lie.

    The slowest stage takes no less than any weighted mean. With weights w on the first stage and w' on all later ones, a block
    counts w t + once there and w' t elsewhere, of which it takes the smaller: weights at which an average block counts the same.
    """
    slowest, stages = shape.schedule.slowest, shape.stages
    if stages == 1:
        return slowest * _of_all(occurrences, each) + _of_all(occurrences, once)
    blocks = [(n, t, e) for n, t, e in zip(occurrences[1:-1], each[1:-1], once[1:-1], strict=True) if n]
    block_s = slowest * math.fsum(n * t for n, t, _ in blocks)
    more = min(math.fsum(n * e for n, _, e in blocks) / block_s if block_s else 0.0, 1 / (stages - 1))
    first, later = slowest * (1 - more * (stages - 1)) / stages, slowest * (1 + more) / stages
    ends = [(occurrences[0], first * each[0] + once[0]), (occurrences[-1], later * each[-1])]
    counted = ends + [(n, min(first * t + e, later * t)) for n, t, e in blocks]
    return math.fsum(n * s for n, s in counted if n)


def hidden_ends_s(row: Candidate, occurrences: Sequence[int]) -> float:
    """What the tables' sum counts at most too much of what stages do once per step, each an equal share: that of later ones runs
    while they wait.
    """
    shape, costs = row.shape, row.costs
    if shape.stages == 1:
        return 0.0
    each, once = costs.each_s.tolist(), costs.once_s.tolist()
    pace_s = shape.schedule.slowest * _of_all(occurrences, each) / shape.stages
    least_s: float = max(pace_s + once[0] + once[1], _wherever_s(shape, occurrences, each, once))
    return max(0.0, pace_s + _of_all(occurrences, once) / shape.stages - least_s)


def _of_all(occurrences: Sequence[int], seconds: Sequence[float]) -> float:
    """Of all places together; one that the network does not have has no seconds."""
    return math.fsum(n * s for n, s in zip(occurrences, seconds, strict=True) if n)


def chain_of(row: Candidate, depths: tuple[int, ...]) -> Chain:
    """What stands before the blocks, the blocks, and what stands after them."""
    c, counts = row.costs, occurrences(depths)
    parts: list[Part] = []
    for place, depth in enumerate(counts):
        is_block = 0 < place < len(c.each_s) - 1
        each_s, recompute_s, kept_B, recompute_B, rest_B, once_s = (
            float(v[place]) for v in (c.each_s, c.recompute_s, c.kept_B, c.kept_recomputed_B, c.at_rest_B, c.once_s)
        )
        parts += [Part(each_s, recompute_s, kept_B, recompute_B, rest_B, is_block, once_s)] * depth
    return Chain(parts)


def estimated(row: Candidate, chain: Chain, stages: tuple[Stage, ...]) -> Estimate:
    """What the step takes on `stages` of `chain`."""
    work_s, sent_s = math.fsum(part.each_s for part in chain.parts), border_s(row)
    ending_s = row.shape.schedule.ending_s([s.each_s + sent_s for s in stages], [s.once_s for s in stages])
    return Estimate(row.shape, max(s.peak_B for s in stages), stages, work_s, ending_s, sent_s)
