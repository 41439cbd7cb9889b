"""Which node of a rank's program takes how long: the same seconds as its bill, in the order of the program."""

from collections.abc import Callable
from typing import NamedTuple

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.bill import Key, Work, entries_of, work_s
from ms_symtensor.program.meanings import Meanings
from ms_symtensor.program.program import Node, Program
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.tensor.graph import Graph


class NodeTime(NamedTuple):
    """`node`, number `position` of its program, takes `time_s` seconds for `key`, all that stands in one entry of the bill
    together: the gradients of an operator at the first of them.
    """

    position: int
    node: Node
    key: Key
    time_s: float


def node_times(
    graph: Graph,
    plan: StagePlan,
    program: Program,
    known: Meanings,
    cluster: Cluster,
    is_once: Callable[[Node], bool] = lambda _: False,
    stage: int | None = None,
    fuses: frozenset[str] = frozenset(),
) -> tuple[NodeTime, ...]:
    """The nodes of `program` that take time, in its order; arguments as of `bill_of`."""
    priced_s: dict[Work, float] = {}
    found = []
    for entry in entries_of(graph, plan, program, known, is_once, stage, fuses):
        if entry.work not in priced_s:
            priced_s[entry.work] = work_s(entry.work, cluster)
        if entry.node >= 0:
            found.append(NodeTime(entry.node, program.nodes[entry.node], entry.key, entry.often * priced_s[entry.work]))
    return tuple(sorted(found, key=lambda one: one.position))
