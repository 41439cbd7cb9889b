"""The price of a rank's program: time of one training step and peak memory, by what they are spent on.

    T = T_compute + T_communication + T_synchronisation + T_optimizer

No overlap of communication and computation is assumed: MindSpore's collectives of tensor parallelism wait for their
operator, and what of the gradients' is hidden depends on the run-time's schedule. The peak is

    M = parameters + gradients + optimizer states + peak of live activations + communication buffers
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.inner import work_inside
from ms_symtensor.cost.move import MoveCost, local_time_s, node_cost
from ms_symtensor.cost.operator import evaluate
from ms_symtensor.cost.parameter import adding_s, parameter_cost, updating_B
from ms_symtensor.ops.placement import OpStrategy, cuts_of
from ms_symtensor.ops.signature import OpView, Signature
from ms_symtensor.program.liveness import activation_peak_B
from ms_symtensor.program.meanings import Meanings, default_strategy, meanings
from ms_symtensor.program.program import COLLECTIVES, Node, ParameterPlacement, Phase, Program, Role
from ms_symtensor.program.settings import OptimizerLevel, Settings, StagePlan
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
    time = dict.fromkeys(TIMES, 0.0)
    time["compute"] += _work_s(graph, plan, program, cluster, meanings(graph) if known is None else known, times)
    for node in program.nodes:
        if node.role is Role.WORK:
            continue
        cost = node_cost(cluster, node.kind, node.group, *traffic_B(program, node))
        kind = "synchronisation" if node.role is Role.SYNC else "communication"
        count = times.get(node.block or "", 1)
        time[kind] += count * cost.communication_s
        time["compute"] += count * cost.local_s
    memory = dict.fromkeys(MEMORIES, 0)
    for placement, count in _placements(graph, program, times):
        of = parameter_cost(cluster, placement, plan.settings, placement.dtype)
        memory["parameters"] += count * of.weight_B
        if placement.owner is not None:  # another stage adds its gradients up, and updates it
            continue
        time["optimizer"] += count * of.update_s
        memory["gradients"] += count * of.gradient_B
        memory["optimizer_states"] += count * of.states_B
    memory["activations"] = activation_peak_B(program)
    if plan.settings.swap_optimizer:
        memory["activations"] = max(memory["activations"], updating_B(program.parameters))
    memory["buffers"] = buffers_B(program)
    return StepCost(time, memory)


def _placements(graph: Graph, program: Program, times: Mapping[str, int]) -> Iterator[tuple[ParameterPlacement, int]]:
    """Every parameter, and how many it stands for."""
    block_of = {s.name: op.block or "" for op in graph.ops for s in op.inputs if isinstance(s, ParameterRef)}
    for name, placement in program.parameters.items():
        yield placement, times.get(block_of.get(name, ""), 1)


def accumulation_s(
    graph: Graph, program: Program, settings: Settings, cluster: Cluster, times: Mapping[str, int]
) -> float:
    """Seconds in which the gradients of one of several micro-batches are added to those before; `times` as of `price`."""
    scatters_each = settings.optimizer_level is OptimizerLevel.LEVEL2
    return math.fsum(
        count * adding_s(cluster, placement, scatters_each)
        for placement, count in _placements(graph, program, times)
        if placement.requires_grad
    )


def cost_of(
    program: Program, cluster: Cluster, wanted: Callable[[Node], bool], times: Mapping[str, int] = MappingProxyType({})
) -> MoveCost:
    """What the nodes that are `wanted`, none of them an operator's own work, take of the step that `price` prices."""
    local_s = communication_s = 0.0
    for node in program.nodes:
        if node.role is not Role.WORK and wanted(node):
            cost = node_cost(cluster, node.kind, node.group, *traffic_B(program, node))
            count = times.get(node.block or "", 1)
            local_s, communication_s = local_s + count * cost.local_s, communication_s + count * cost.communication_s
    return MoveCost(communication_s, local_s)


def buffers_B(program: Program) -> int:
    """Bytes of the buffers of all communicators of a rank."""
    groups = {n.group.ranks() for n in program.nodes if n.group is not None and n.kind in COLLECTIVES}
    return HCCL_BUFFER_B * len(groups)


def traffic_B(program: Program, node: Node) -> tuple[int, int]:
    """Bytes that `node` reads and writes."""
    return sum(program.tensors[t].size_B for t in node.inputs), sum(program.tensors[t].size_B for t in node.outputs)


def _work_s(
    graph: Graph,
    plan: StagePlan,
    program: Program,
    cluster: Cluster,
    known: Meanings,
    times: Mapping[str, int],
) -> float:
    """Seconds of the operators' own work. Equal operators under equal cuts are priced once."""
    products: Counter[str] = Counter()
    recomputed: Counter[str] = Counter()
    total = 0.0
    local: list[Node] = []
    for node in program.nodes:
        if node.role is not Role.WORK:
            continue
        if node.phase is Phase.BACKWARD:
            products[node.op] += len(node.outputs)
        elif node.phase is Phase.RECOMPUTE:
            recomputed[node.op] += 1
        local.append(node)
    priced: dict[tuple, tuple[float, float]] = {}
    transparent = set()
    for block, name, seen, sig, strategy in _works(graph, plan, known):
        if not sig.shardable:
            transparent.add(name)
            continue
        count = products[name]
        key = id(sig), strategy, count  # equal operators share their signature
        if key not in priced:
            cuts = cuts_of(seen, sig, strategy, plan.settings.device_num) if strategy is not None else {}
            priced[key] = _operator_s(seen, sig, cuts, count, cluster)
        forward, backward = priced[key]
        total += times.get(block, 1) * (forward * (1 + recomputed[name]) + backward)
    for node in local:
        if node.op in transparent:
            count = times.get(node.block or "", 1)
            total += count * local_time_s(cluster, node.kind, sum(traffic_B(program, node)))
    return total


def forward_s(
    graph: Graph, plan: StagePlan, program: Program, nodes: Iterable[Node], cluster: Cluster, known: Meanings
) -> list[float]:  # fmt: skip
    """Seconds of each of `nodes`, of the forward pass of `program`, which is `partition(graph, plan)`: as `price` counts them."""
    own: dict[str, float] = {}
    found = []
    for node in nodes:
        of = graph.op_by_name.get(node.op)
        if node.role is Role.WORK and of is not None:
            if of.name not in own:
                seen, sig = known[of.name]
                if sig.shardable:
                    given = plan.strategies.get(of.name) or default_strategy(seen, sig, plan.settings.device_num)
                    own[of.name], _ = _operator_s(
                        seen, sig, cuts_of(seen, sig, given, plan.settings.device_num), 0, cluster
                    )
                else:
                    own[of.name] = local_time_s(cluster, node.kind, sum(traffic_B(program, node)))
            found.append(own[of.name])
        else:
            found.append(node_cost(cluster, node.kind, node.group, *traffic_B(program, node)).time_s)
    return found


def _works(
    graph: Graph, plan: StagePlan, known: Meanings
) -> Iterator[tuple[str, str, OpView, Signature, OpStrategy | None]]:
    """All that does work, by its block and its name in the program; what is inside an operator has local shapes, no strategy."""
    for op in graph.ops:
        seen, sig = known[op.name]
        if op.body is not None:
            yield from ((op.block or "", *inner, None) for inner in work_inside(op, sig))
        else:
            strategy = plan.strategies.get(op.name) or default_strategy(seen, sig, plan.settings.device_num)
            yield op.block or "", op.name, seen, sig, strategy


def _operator_s(
    op: OpView, sig: Signature, cuts: Mapping[str, int], products: int, cluster: Cluster
) -> tuple[float, float]:
    costs = evaluate(op, sig, products, [cuts], cluster)
    return float(costs.forward_s[0]), float(costs.backward_s[0]) if products else 0.0
