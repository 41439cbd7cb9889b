"""The parallel settings that a user has made in MindSpore: in its context, and by `recompute()` on blocks."""

from collections.abc import Mapping
from typing import Any

from ms_symtensor.bridge.capture.user_recompute import recomputed_by_user
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.settings import OptimizerLevel, Settings
from ms_symtensor.tensor.graph import Graph

DEFAULT_THRESHOLD_KB = 64
"""MindSpore's own, where the user set none."""


def settings_of_user(cell: Any, graph: Graph, device_num: int, rules: Mapping[str, Rule] | None = None) -> Settings:
    """MindSpore's settings in force for the `device_num` devices of a stage, and what `cell` recomputes in blocks of `graph`."""
    from mindspore._c_expression import AutoParallelContext

    context = AutoParallelContext.get_instance()
    threshold = context.get_parallel_optimizer_threshold()
    return Settings(
        device_num,
        enable_alltoall=context.get_enable_alltoall(),
        optimizer_level=_level(context),
        optimizer_weight_shard_size=context.get_optimizer_weight_shard_size(),
        parallel_optimizer_threshold_KB=DEFAULT_THRESHOLD_KB if threshold < 0 else threshold,
        gradient_fp32_sync=context.get_gradient_fp32_sync(),
        recompute=recomputed_by_user(cell, graph, rules),
    )


def _level(context: Any) -> OptimizerLevel:
    if not context.get_enable_parallel_optimizer():
        return OptimizerLevel.NONE
    if context.get_zero3():
        return OptimizerLevel.LEVEL3
    return OptimizerLevel.LEVEL2 if context.get_grad_accumulation_shard() else OptimizerLevel.LEVEL1
