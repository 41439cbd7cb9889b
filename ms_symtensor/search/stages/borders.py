"""What interleaved stages send each other beside what others do.

With v runs of blocks per stage a micro-batch passes every stage v times, forward and back, so that a stage sends and receives
v - 1 times more often than otherwise. Sends of one run per stage are taken to be hidden beside another micro-batch's work.
"""

import math

from ms_symtensor.cost.move import message_s
from ms_symtensor.search.stages.rows import Row
from ms_symtensor.search.tables.tensors import layouts_at, maker_of
from ms_symtensor.tensor.dtype import size_B


def border_s(row: Row) -> float:
    """Seconds of a micro-batch's further ways from a stage of `row` to the next, and of their gradients' back."""
    return _further_s(row, sent_B(row)) if row.shape.interleave > 1 else 0.0


def borders_s(row: Row) -> float:
    """Seconds of a step of `row` that these are."""
    return _of_step_s(row, border_s(row))


def with_borders(row: Row) -> Row:
    """`row` with a bound that knows what is sent at least."""
    return row.bound_by(row.bound_s + least_borders_s(row))


def least_borders_s(row: Row) -> float:
    """Seconds of any step on the shape of `row` that these are at least: every rank sends its share of the tensors between
    blocks.
    """
    shape = row.shape
    if shape.interleave == 1:
        return 0.0
    least_B = float(row.problem.sent_B[row.member]) / math.prod(shape.mesh)
    return _of_step_s(row, _further_s(row, least_B))


def _of_step_s(row: Row, each_s: float) -> float:
    return row.shape.turns.of_slowest_s(each_s, row.shape.stages * each_s, 0.0)


def _further_s(row: Row, size_B: float) -> float:
    cluster = row.problem.known.pricer.cluster
    ranks = (0, math.prod(row.shape.mesh))
    one_s = message_s(cluster, "Send", ranks, size_B)
    return 2.0 * (row.shape.interleave - 1) * one_s


def sent_B(row: Row) -> float:
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
