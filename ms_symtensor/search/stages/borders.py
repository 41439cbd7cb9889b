"""What stages send each other.

With v virtual stages a micro-batch passes every stage v times, forward and back: a stage between two others sends 2 v times for
it, the first and the last one 2 v - 1 times. Nobody hides these sends.
"""

import math

from ms_symtensor.cost.move import message_s
from ms_symtensor.search.space.step_layouts import StepLayout
from ms_symtensor.search.stages.layout_candidates import Candidate
from ms_symtensor.search.tables.tensors import layouts_at, maker_of
from ms_symtensor.tensor.dtype import size_B


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
