"""The price of a rank's program: time of one training step and peak memory, by what they are spent on.

    T = T_compute + T_communication + T_synchronisation + T_optimizer

Nothing runs beside anything else here: `cost.plan_price` tells what a run-time hides, and how stages wait for each other. The
peak is

    M = parameters + gradients + optimizer states + peak of live activations + communication buffers
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.bill import Part, Written, bill_of, work_s
from ms_symtensor.cost.node_time import node_times
from ms_symtensor.cost.parameter import STATES_B, parameter_cost, updating_B
from ms_symtensor.program.liveness import activation_peak_B
from ms_symtensor.program.meanings import Meanings, meanings
from ms_symtensor.program.program import COLLECTIVES, ParameterPlacement, Program
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.tensor.dtype import size_B
from ms_symtensor.tensor.graph import Graph, ParameterRef

HCCL_BUFFER_B = 2 * 200 * 1024 * 1024
"""Send and receive buffer of one communicator: HCCL_BUFFSIZE, 200 MB each by default (CANN, HCCL user guide)."""

TIMES = ("compute", "communication", "synchronisation", "optimizer")
MEMORIES = ("parameters", "gradients", "optimizer_states", "activations", "buffers")


@dataclass(frozen=True)
class StepCost:
    """`time_s` by TIMES, in seconds; `memory_B` by MEMORIES, in bytes at the peak of one rank."""

    time_s: Mapping[str, float]
    memory_B: Mapping[str, int]

    @property
    def step_time_s(self) -> float:
        return math.fsum(self.time_s.values())

    @property
    def peak_memory_B(self) -> int:
        return sum(self.memory_B.values())


def price(
    graph: Graph,
    plan: StagePlan,
    program: Program,
    cluster: Cluster,
    known: Meanings | None = None,
    times: Mapping[str, int] = MappingProxyType({}),
) -> StepCost:
    """Price of one step of `program`, which is `partition(graph, plan)`, on `cluster`.

    `known`: what the operators mean, where not all of them stand in the registry, or to save finding it again.
    `times`: how many equal blocks some of the blocks stand for. What is alive at the peak is that of `program` alone.
    """
    found = meanings(graph) if known is None else known
    time = dict.fromkeys(TIMES, 0.0)
    for key, works in bill_of(Written(graph, plan, program, found), times).items.items():
        kind = "synchronisation" if key.part is Part.GRADIENTS else "communication"
        for work, count in works.items():
            time["compute" if key.part is Part.COMPUTE else kind] += count * work_s(work, cluster)
    for placement, count in _placements(graph, program, times):
        if placement.owner is None:  # another stage adds its gradients up, and updates it
            time["optimizer"] += count * parameter_cost(cluster, placement, plan.settings, placement.dtype).update_s
    return StepCost(time, memory_B(graph, plan, program, times))


def memory_B(
    graph: Graph, plan: StagePlan, program: Program, times: Mapping[str, int] = MappingProxyType({})
) -> dict[str, int]:
    """Bytes of a rank at its peak, by MEMORIES; `times` as of `price`."""
    placements, swaps = _placements(graph, program, times), plan.settings.swap_optimizer
    return peak_B(program, placements, activation_peak_B(program), swaps)


def peak_B(
    program: Program,
    placements: Iterable[tuple[ParameterPlacement, int]],
    activations_B: int,
    swap_optimizer: bool,
    scatters_gradients: bool | None = None,
) -> dict[str, int]:
    """Bytes of a rank at its peak, by MEMORIES, with the parameters of `program`, each so many times. `swap_optimizer`: optimizer
    states stay on the host. `scatters_gradients`: of gradients that add up over micro-batches, in shares or whole; None: they do
    not.
    """
    memory = dict.fromkeys(MEMORIES, 0)
    for placement, count in placements:
        elements, stored = count * math.prod(placement.slice_shape), size_B(placement.dtype)
        memory["parameters"] += elements * stored
        if not placement.requires_grad:
            continue
        if scatters_gradients is False:
            memory["gradients"] += count * math.prod(placement.layout.slice_shape) * stored
        elif (
            placement.owner is None or scatters_gradients
        ):  # micro-batches: another stage's too: what is sent is their sum
            memory["gradients"] += elements * stored
        if placement.owner is None and not swap_optimizer:
            memory["optimizer_states"] += elements * STATES_B
    memory["activations"] = max(activations_B, updating_B(program.parameters) if swap_optimizer else 0)
    memory["buffers"] = buffers_B(program)
    return memory


def _placements(graph: Graph, program: Program, times: Mapping[str, int]) -> Iterator[tuple[ParameterPlacement, int]]:
    """Every parameter, and how many it stands for."""
    block_of = {s.name: op.block or "" for op in graph.ops for s in op.inputs if isinstance(s, ParameterRef)}
    for name, placement in program.parameters.items():
        yield placement, times.get(block_of.get(name, ""), 1)


def buffers_B(program: Program) -> int:
    """Bytes of the buffers of all communicators of a rank."""
    groups = {n.group.ranks() for n in program.nodes if n.group is not None and n.kind in COLLECTIVES}
    return HCCL_BUFFER_B * len(groups)


def forward_s(graph: Graph, plan: StagePlan, program: Program, cluster: Cluster, known: Meanings) -> dict[int, float]:
    """Seconds of the nodes of `program`, which is `partition(graph, plan)`, by their places: as `price` counts them."""
    return {one.position: one.time_s for one in node_times(Written(graph, plan, program, known), cluster)}
