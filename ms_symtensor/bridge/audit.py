"""Audit: what the `shard()` calls that a user wrote cost, and whether MindSpore trains with them what was meant."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ms_symtensor.bridge.apply import strategies_of
from ms_symtensor.bridge.capture import capture
from ms_symtensor.bridge.comparison import Comparison, compare
from ms_symtensor.bridge.compile import CompiledProgram
from ms_symtensor.bridge.host import import_mindspore
from ms_symtensor.bridge.parallel_context import ParallelConfig
from ms_symtensor.bridge.scopes import fresh_scopes
from ms_symtensor.bridge.verify import Verdict, compile_step, require_compiler, require_rank
from ms_symtensor.cluster.collective_time import collective_time_s
from ms_symtensor.cluster.load import load as load_cluster
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InputError, InvalidStrategyError
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Program
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings, StagePlan
from ms_symtensor.strategy.primitives import context_settings
from ms_symtensor.tensor.graph import Graph

DEFAULT_THRESHOLD_KB = 64
"""MindSpore's own, where the user set none."""


@dataclass(frozen=True)
class CollectiveCost:
    """Equal collectives that one operator (or parameter) causes on one rank in a step: bytes and seconds of all of them."""

    operator: str
    kind: str
    phase: str
    ranks: tuple[int, ...]
    count: int
    size_B: int
    time_s: float


@dataclass(frozen=True)
class Audit:
    """The verdict on hand-written strategies, and their collectives, the most expensive first.

    `default_strategies`: operators without a strategy of their own that communicate, because MindSpore cuts the
    leading dim of what has no strategy by all devices.
    """

    verdict: Verdict
    cluster: str
    device_num: int
    costs: tuple[CollectiveCost, ...]
    default_strategies: tuple[str, ...]


def audit(cell: Any, *inputs: Any, device_num: int, cluster: str = "atlas_800t_a2", rank: int = 0) -> Audit:
    """Compile `cell(*inputs)`, a forward network with its loss and its own `shard()` calls, and tell what these cost.

    `inputs` have global shapes ("full_batch"); they may be without values. The optimizer's sharding, enable_alltoall and
    gradient_fp32_sync are those of MindSpore's parallel context. Times are predicted for `cluster`.
    Errors: InputError; UnknownOperatorError; CompilerError if MindSpore cannot be driven here at all.
    """
    require_rank(rank, device_num)
    described = load_cluster(cluster)
    import_mindspore()
    settings = context_of_user(device_num)
    require_compiler(device_num, rank)
    with fresh_scopes(cell):
        graph = capture(cell, *inputs)
    plan = StagePlan(strategies_of(cell, graph), settings | _recompute_by_hand(cell, graph))
    compiled = compile_step(cell, inputs, graph, device_num, rank, parallel_config(plan.settings))
    try:
        predicted = partition(graph, plan)
    except InvalidStrategyError as error:
        return Audit(_without_prediction(compiled, rank, error), described.name, device_num, (), ())
    costs = collective_costs(predicted, described, rank)
    communicating = {c.operator for c in costs}
    default = tuple(op.name for op in graph.ops if op.name in communicating and op.name not in plan.strategies)
    verdict = compiled
    if isinstance(compiled, CompiledProgram):
        verdict = Verdict(rank, compiled.mindspore, compiled.seconds, compare(graph, predicted, compiled))
    return Audit(verdict, described.name, device_num, costs, default)
