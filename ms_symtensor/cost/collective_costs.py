"""Which operator causes which collectives in a step, and what they cost."""

from collections import Counter
from dataclasses import dataclass

from ms_symtensor.cluster.collective_time import collective_time_s
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.move import priced_as
from ms_symtensor.program.program import UNKNOWN_B, Program
from ms_symtensor.program.stage_program import StageProgram


@dataclass(frozen=True)
class CollectiveCost:
    """Equal collectives that one operator (or parameter) causes on a rank in a step: bytes of one, seconds of all.

    Where bytes are known at run time only, `size_B` is UNKNOWN_B and `time_s` 0.
    """

    operator: str
    kind: str
    phase: str
    ranks: tuple[int, ...]
    count: int
    size_B: int
    time_s: float


def collective_costs(program: Program | StageProgram, cluster: Cluster, rank: int = 0) -> tuple[CollectiveCost, ...]:
    """The collectives of `rank`, equal ones of one operator together, the most expensive first."""
    counts = Counter((c.op, c.kind, c.phase.value, c.ranks, c.size_B) for c in program.collectives(rank))
    costs = []
    for (operator, kind, phase, ranks, size_B), count in counts.items():
        one_s = 0.0 if size_B == UNKNOWN_B else collective_time_s(cluster, priced_as(kind), ranks, size_B)
        costs.append(CollectiveCost(operator, kind, phase, ranks, count, size_B, count * one_s))
    return tuple(sorted(costs, key=lambda c: (-c.time_s, c.operator, c.phase, c.kind)))
