"""Which node of a rank's program takes how long: the same seconds as its bill, in the order of the program."""

from typing import NamedTuple

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.bill import Key, Work, Written, entries_of, work_s
from ms_symtensor.program.program import Node


class NodeTime(NamedTuple):
    """`node`, number `position` of its program, takes `time_s` seconds for `key`, all that stands in one entry of the bill
    together: the gradients of an operator at the first of them.
    """

    position: int
    node: Node
    key: Key
    time_s: float


def node_times(of: Written, cluster: Cluster) -> tuple[NodeTime, ...]:
    """The nodes of a program that take time, in its order."""
    priced_s: dict[Work, float] = {}
    found = []
    for entry in entries_of(of):
        if entry.work not in priced_s:
            priced_s[entry.work] = work_s(entry.work, cluster)
        if entry.node >= 0:
            node = of.program.nodes[entry.node]
            found.append(NodeTime(entry.node, node, entry.key, entry.often * priced_s[entry.work]))
    return tuple(sorted(found, key=lambda one: one.position))
