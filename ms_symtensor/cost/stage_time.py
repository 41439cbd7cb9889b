"""The time of a step that passes through pipeline stages, or micro-batch by micro-batch through one, from their programs.

Stage i of P takes s_i for one of M micro-batches, forward and backward, and e_i at the end of the step: casts and gathers of
weights, sums of gradients, updates. The slowest stage sets the pace (1F1B; Narayanan et al. 2021, section 2.2):

    T = M max_i s_i + (Σ_i s_i - max_i s_i) / v + max_i e_i

with v runs of blocks per stage (interleaved: section 2.2 there). What stages send each other is not counted: it runs beside the
work of another micro-batch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.move import node_cost
from ms_symtensor.cost.step import price, traffic_B
from ms_symtensor.program.meanings import Meanings
from ms_symtensor.program.program import Role
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.program.stage_program import StageProgram


@dataclass(frozen=True)
class StageSeconds:
    """Seconds of a stage: of each micro-batch, and once per step."""

    each_s: float
    once_s: float


def stage_seconds(
    program: StageProgram, plan: StagePlan, cluster: Cluster, known: Meanings | None = None
) -> StageSeconds:
    """What a rank of `program`, a stage of `plan`, spends. Errors: as of `price`."""
    inside = replace(program.micro, nodes=tuple(n for n in program.micro.nodes if n.role is not Role.BORDER))
    total = price(program.graph, plan, inside, cluster, known)
    once_s = total.time_s["optimizer"]
    for node in inside.nodes:
        if node.role is not Role.WORK and program.times(node) == 1:
            cost = node_cost(cluster, node.kind, node.group, *traffic_B(inside, node))
            once_s += cost.time_s
    return StageSeconds(total.step_time_s - once_s, once_s)


def pipelined_step_s(stages: Sequence[StageSeconds], micro_batch_num: int, interleave: int = 1) -> float:
    """The step of `stages`, first to last, of so many runs of blocks each."""
    pace_s, all_s = max(stage.each_s for stage in stages), math.fsum(s.each_s for s in stages)
    return (micro_batch_num - 1 / interleave) * pace_s + all_s / interleave + max(s.once_s for s in stages)
