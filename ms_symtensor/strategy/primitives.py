"""What a plan says to a network: a strategy for each primitive, and MindSpore's parallel settings."""

from collections.abc import Mapping
from typing import Any

from ms_symtensor.errors import InputError, InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.ops.registry import Rule, signature
from ms_symtensor.ops.signature import view
from ms_symtensor.program.meanings import cut_by_default, default_strategy
from ms_symtensor.program.pipeline import Pipeline
from ms_symtensor.program.settings import OptimizerLevel, Settings, StagePlan
from ms_symtensor.tensor.graph import Graph, Op


def strategies_by_primitive(
    graph: Graph, plan: StagePlan, rules: Mapping[str, Rule] | None = None
) -> dict[tuple[str, ...], tuple[Op, OpStrategy]]:
    """The strategy of every primitive, by its path of attributes from the network, in graph order, with its first
    operator.

    Primitives without a strategy do not appear. InvalidStrategyError if operators of one primitive have different
    strategies, or if an operator that is `cut_by_default` has one that MindSpore does not give it anyway.
    """
    users: dict[tuple[str, ...], list[Op]] = {}
    by_default = cut_by_default(graph)
    for op in graph.ops:
        if op.body is not None:
            continue  # it keeps the layouts that it was given
        if op.name not in by_default:
            users.setdefault((*op.cell, op.primitive), []).append(op)
        elif op.name in plan.strategies:
            _require_default(graph, op, plan, rules)
    found = {}
    for path, ops in users.items():
        given = [plan.strategies.get(op.name) for op in ops]
        for op, strategy in zip(ops, given, strict=True):
            require_same(ops[0], given[0], op, strategy, path)
        if given[0] is not None:
            found[path] = ops[0], given[0]
    return found


def require_same(
    first: Op, its: OpStrategy | None, other: Op, strategy: OpStrategy | None, path: tuple[str, ...]
) -> None:
    """InvalidStrategyError unless two operators of the primitive at `path` have the same strategy."""
    if strategy != its:
        raise InvalidStrategyError(
            f"{first.name} and {other.name} use one primitive, {'.'.join(path)}, but need different strategies"
            f" ({_shown(its)} and {_shown(strategy)}): give each its own primitive in the network"
        )


def context_settings(settings: Settings, pipeline: Pipeline | None = None) -> dict[str, Any]:
    """The keyword arguments of `mindspore.set_auto_parallel_context` for a plan, but for the number of devices.

    Args:
        settings: `plan.settings`, or those of a stage.
        pipeline: `plan.pipeline`; None: one stage and one batch.

    Returns:
        Keyword arguments: parallel mode, optimizer sharding, pipeline stages.

    Raises:
        InputError: An argument is of another kind.

    Example:
        >>> settings = ms_symtensor.context_settings(plan.settings, plan.pipeline)
        >>> mindspore.set_auto_parallel_context(device_num=8, **settings)
    """
    if not (isinstance(settings, Settings) and isinstance(pipeline, Pipeline | None)):
        given = ", ".join(type(one).__name__ for one in (settings, pipeline))
        raise InputError(f"context_settings takes (plan.settings, plan.pipeline), and was given ({given})")
    found: dict[str, Any] = {
        "parallel_mode": "semi_auto_parallel",
        "dataset_strategy": "full_batch",
        "enable_alltoall": settings.enable_alltoall,
        "gradient_fp32_sync": settings.gradient_fp32_sync,
        "enable_parallel_optimizer": settings.optimizer_level is not OptimizerLevel.NONE,
    }
    if settings.optimizer_level is not OptimizerLevel.NONE:
        found["parallel_optimizer_config"] = {
            "optimizer_level": f"level{int(settings.optimizer_level)}",
            "optimizer_weight_shard_size": settings.optimizer_weight_shard_size,
            "parallel_optimizer_threshold": settings.parallel_optimizer_threshold_KB,
        }
    if pipeline is not None:
        found["pipeline_stages"] = pipeline.stage_num
        if pipeline.needs_config:
            found["pipeline_config"] = {"pipeline_interleave": True, "pipeline_scheduler": pipeline.scheduler}
    return found


def _require_default(graph: Graph, op: Op, plan: StagePlan, rules: Mapping[str, Rule] | None) -> None:
    strategy, seen = plan.strategies[op.name], view(graph, op)
    if strategy != default_strategy(seen, signature(seen, rules), plan.settings.device_num):
        why = "is functional" if op.is_on_the_fly else f"shares primitive {op.primitive} with operators of other dims"
        raise InvalidStrategyError(
            f"{op.name} ({op.type}) {why} and cannot be given the strategy {_shown(strategy)}: make it a primitive of its cell"
            f" (in __init__: self.{op.type.lower()} = ops.{op.type}()), or plan again without it"
        )


def _shown(strategy: OpStrategy | None) -> str:
    if strategy is None:
        return "none"
    return f"{strategy.inputs} -> {strategy.outputs}" if strategy.outputs else str(strategy.inputs)
