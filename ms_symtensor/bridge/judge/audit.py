"""Audit: what the `shard()` calls that a user wrote cost, and whether MindSpore trains with them what was meant."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ms_symtensor.bridge.apply.apply import strategies_of
from ms_symtensor.bridge.apply.pipeline_network import micro_batch
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.bridge.capture.user_settings import settings_of_user
from ms_symtensor.bridge.capture.user_stages import pipeline_of_user, without_micro_batches
from ms_symtensor.bridge.compiler.host import import_mindspore
from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig
from ms_symtensor.bridge.judge.verify import Verdict, judge, require_compiler, require_rank
from ms_symtensor.bridge.judge.verify_stages import compile_stage, judge_stage
from ms_symtensor.cluster.load import cluster_of
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.collective_costs import CollectiveCost, collective_costs
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.pipeline import Pipeline
from ms_symtensor.program.program import Program
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.program.stage_program import StageProgram, partition_stages
from ms_symtensor.search.constraints.checked import whole_number
from ms_symtensor.search.possible import require_devices
from ms_symtensor.strategy.primitives import context_settings
from ms_symtensor.tensor.graph import Graph


@dataclass(frozen=True)
class Audit:
    """The verdict on hand-written strategies, and their predicted collectives, the most expensive first; none where it is
    rejected or not predicted.

    `without_strategy`: operators that communicate and were given no strategy, so that MindSpore cuts the leading dim of
    their inputs by all devices.
    """

    verdict: Verdict
    cluster: str
    device_num: int
    costs: tuple[CollectiveCost, ...]
    without_strategy: tuple[str, ...]


def audit(
    cell: Any,
    *inputs: Any,
    device_num: int,
    cluster: Cluster | str | os.PathLike[str] = "atlas_800t_a2",
    rank: int = 0,
    rules: Mapping[str, Rule] | None = None,
) -> Audit:
    """Compile `cell(*inputs)`, a forward network with its loss and its own `shard()` calls, and tell what these cost.

    The optimizer's sharding, pipeline stages, enable_alltoall and gradient_fp32_sync are those of MindSpore's parallel context.
    With stages the program of the stage of `rank` is compared.

    Args:
        cell: The forward network with its loss, or `nn.PipelineCell` or `nn.GradAccumulationCell` around it; without these a
            pipeline of n stages has n micro-batches.
        inputs: Global shapes ("full_batch") of a whole step; they may be without values.
        device_num: Number of devices.
        cluster: For which times are predicted: a cluster, its name, or the path of its file.
        rank: Whose program is compiled.
        rules: Signatures of further operators, by primitive name; they come first.

    Returns:
        The verdict of the compiler, and the collectives with their predicted seconds.

    Raises:
        InputError: There is no such rank, or the cluster cannot form so many devices.
        UnknownOperatorError: An operator has no rule.
        CompilerError: MindSpore cannot be driven here at all.
    """
    require_rank(rank, whole_number("device_num", device_num))
    described = cluster_of(cluster)
    require_devices(described, device_num)
    import_mindspore()
    network, micro_batch_num = without_micro_batches(cell)
    micro = micro_batch(inputs, micro_batch_num) if micro_batch_num > 1 else inputs
    graph = capture(network, *micro, lone_blocks=True)
    pipeline = pipeline_of_user(network, graph, micro_batch_num)
    of_stage = device_num // (pipeline.stage_num if pipeline is not None else 1)
    stage = StagePlan(strategies_of(network, graph), settings_of_user(network, graph, of_stage, rules))
    require_compiler(device_num, rank)
    verdict, predicted = _scored(network, micro, graph, stage, pipeline, device_num, rank, rules)
    costs = collective_costs(predicted, described, rank) if predicted is not None else ()
    communicating = {c.operator for c in costs}
    unasked = (
        op for op in graph.ops if op.name in communicating and op.name not in stage.strategies and op.body is None
    )
    return Audit(verdict, described.name, device_num, costs, tuple(op.name for op in unasked))


def _scored(
    network: Any,
    inputs: Sequence[Any],
    graph: Graph,
    stage: StagePlan,
    pipeline: Pipeline | None,
    device_num: int,
    rank: int,
    rules: Mapping[str, Rule] | None,
) -> tuple[Verdict, Program | StageProgram | None]:
    """The verdict on `rank`, and its predicted program if there is one."""
    settings = context_settings(stage.settings, pipeline)
    others = {name: settings.pop(name) for name in ("pipeline_config",) if name in settings}
    parallel = ParallelConfig(**settings.pop("parallel_optimizer_config", {}), **settings, others=others)
    if pipeline is None:
        return judge(network, inputs, graph, stage, parallel, rank, rules)
    compiled = compile_stage(network, inputs, graph, pipeline, parallel, device_num, rank)
    try:
        programs = partition_stages(graph, [stage] * pipeline.stage_num, pipeline, rules)
    except InvalidStrategyError as error:
        if isinstance(compiled, Verdict):
            return replace(compiled, reason=f"{compiled.reason}; {error}"), None
        reason = f"not predicted: {error}"
        return Verdict(rank, compiled.mindspore, compiled.seconds, accepted=True, reason=reason), None
    if isinstance(compiled, Verdict):
        return compiled, None
    program = next(p for p in programs if rank in p.ranks)
    return judge_stage(graph, program, compiled), program
