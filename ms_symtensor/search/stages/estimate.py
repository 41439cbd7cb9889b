"""A choice of layouts on stages: which blocks each holds, and what the step then takes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ms_symtensor.search.folded.chain import Chain, Part, Stage
from ms_symtensor.search.folded.places import occurrences
from ms_symtensor.search.space.step_layouts import StepLayout
from ms_symtensor.search.stages.borders import border_s, least_borders_s
from ms_symtensor.search.stages.bounds import least_step_s
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
    return least_step_s(row.shape, occurrences, row.costs) + least_borders_s(row)


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
