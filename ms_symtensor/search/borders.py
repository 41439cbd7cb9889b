"""What interleaved stages send each other beside what others do.

With v runs of blocks per stage a micro-batch passes every stage v times, forward and back, so that a stage sends and receives
v - 1 times more often than otherwise. Sends of one run per stage are taken to be hidden beside another micro-batch's work.
"""

import math

from ms_symtensor.cluster.collective_time import collective_time_s
from ms_symtensor.search.rows import Row
from ms_symtensor.search.tensors import layouts_at, maker_of
from ms_symtensor.tensor.dtype import size_B
from ms_symtensor.tensor.graph import OpOutput


def border_s(row: Row) -> float:
    """Seconds of a micro-batch's further ways from a stage of `row` to the next, and of their gradients' back."""
    further, cluster = row.shape.interleave - 1, row.problem.known.pricer.cluster
    if not further:
        return 0.0
    one_s = (
        collective_time_s(cluster, "Send", (0, math.prod(row.shape.mesh)), sent_B(row)) + cluster.device.op_overhead_s
    )
    return 2.0 * further * float(one_s)


def sent_B(row: Row) -> float:
    """Bytes that a rank sends after a block: its slice of every tensor that the next block reads."""
    of = row.problem
    graph, known = of.graph, of.known
    first, second = of.blocks[:2]
    sent = {
        s: None
        for op in graph.ops
        if op.block == second
        for s in graph.tensor_inputs(op)
        if isinstance(s, OpOutput) and graph.op_by_name[s.op].block == first
    }
    total = 0.0
    for source in sent:
        kind, end = graph.type_of(source), maker_of(graph, known, source)
        if kind is None or end is None:
            continue
        layout = layouts_at(known, end, kind.shape)[row.choice[end[0]]]
        total += float(known.pricer.slices_B([layout], size_B(kind.dtype), known.power_of(source))[row.member, 0])
    return total
