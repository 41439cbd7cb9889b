"""A choice of layouts on stages: which blocks each holds, and what the step then takes.

With v virtual stages a micro-batch passes every stage v times, forward and back: a stage between two others sends 2 v times for
it, the first and the last one 2 v - 1 times. Nobody hides these sends.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ms_symtensor.cost.move import message_s
from ms_symtensor.search.folded.chain import Stage
from ms_symtensor.search.space.step_layouts import StepLayout
from ms_symtensor.search.stages.bounds import least_step_s
from ms_symtensor.search.stages.layout_candidates import Candidate
from ms_symtensor.search.stages.stage_layers import divide
from ms_symtensor.search.tables.tensors import layouts_at, maker_of
from ms_symtensor.tensor.dtype import size_B


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


def divided(row: Candidate, limit_B: float | Sequence[float], cutoff_s: float = math.inf) -> Estimate | None:
    """The stages of `row` that fit, and what the step then takes; None where none do, or none in less than `cutoff_s`."""
    chain = row.chain
    recomputed = row.problem.limits.recomputed(int(chain.blocks[-1]))
    shape = row.shape
    stages = divide(chain, shape.stages, shape.schedule, limit_B, recomputed, cutoff_s - borders_s(row))
    return None if stages is None else estimated(row, stages)


def quickest_s(row: Candidate) -> float:
    """Seconds that no step of `row` is faster than, however its blocks are divided."""
    return least_step_s(row.shape, row.occurrences, row.costs) + least_borders_s(row)


def estimated(row: Candidate, stages: tuple[Stage, ...]) -> Estimate:
    """What the step of `row` takes on `stages`."""
    work_s, sent_s = math.fsum(part.each_s for part in row.chain.parts), border_s(row)
    ending_s = row.shape.schedule.ending_s([s.each_s + sent_s for s in stages], [s.once_s for s in stages])
    return Estimate(row.shape, max(s.peak_B for s in stages), stages, work_s, ending_s, sent_s)


def border_s(row: Candidate) -> float:
    """Seconds that a stage of `row` sends for a micro-batch."""
    shape = row.shape
    if shape.stages == 1:
        return 0.0
    return _times(shape, is_end=shape.stages == 2) * _sent_s(row, sent_B(row))


def borders_s(row: Candidate) -> float:
    """Seconds of a step of `row` that these are."""
    return _of_step_s(row, border_s(row))


def with_borders(row: Candidate) -> Candidate:
    """`row` with a bound that knows what is sent at least."""
    return row.bound_by(row.bound_s + least_borders_s(row))


def least_borders_s(row: Candidate) -> float:
    """Seconds of any step on the shape of `row` that these are at least: every rank sends its share of the tensors between
    blocks.
    """
    shape = row.shape
    if shape.stages == 1:
        return 0.0
    least_B = float(row.problem.sent_B[row.member]) / math.prod(shape.mesh)
    return _of_step_s(row, _times(shape, is_end=True) * _sent_s(row, least_B))


def _times(shape: StepLayout, is_end: bool) -> int:
    """How often a stage sends for a micro-batch."""
    return 2 * shape.interleave - is_end


def _of_step_s(row: Candidate, each_s: float) -> float:
    return row.shape.schedule.of_slowest_s(each_s, row.shape.stages * each_s, 0.0)


def _sent_s(row: Candidate, size_B: float) -> float:
    """Seconds of one Send from a stage to the next."""
    cluster = row.problem.known.pricer.cluster
    return message_s(cluster, "Send", (0, math.prod(row.shape.mesh)), size_B)


def sent_B(row: Candidate) -> float:
    """Bytes that a rank sends after a block: its slice of every tensor that the next block reads."""
    graph, known = row.problem.graph, row.problem.known
    total = 0.0
    for source, kind in row.problem.sent.items():
        end = maker_of(graph, known, source)
        if end is not None and end[0] >= 0:
            layout = layouts_at(known, end, kind.shape)[row.choice[end[0]]]
            sizes_B = known.pricer.slices_B([layout], size_B(kind.dtype), known.power_of(source))
            total += float(sizes_B[row.member, 0])
    return total
