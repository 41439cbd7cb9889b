"""The parallel settings that a user has made in MindSpore: in its context, and by `recompute()` on blocks."""

from typing import Any

from ms_symtensor.errors import InputError
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings
from ms_symtensor.tensor.graph import Graph

DEFAULT_THRESHOLD_KB = 64
"""MindSpore's own, where the user set none."""


def settings_of_user(cell: Any, graph: Graph, device_num: int) -> Settings:
    """MindSpore's settings in force, for `device_num` devices, and the blocks of `graph` that `cell` recomputes.

    InputError for what is not predicted yet: pipeline stages.
    """
    from mindspore._c_expression import AutoParallelContext

    context = AutoParallelContext.get_instance()
    if (stages := context.get_pipeline_stage_split_num()) > 1:
        raise InputError(
            f"the parallel context asks for {stages} pipeline stages; audit reads one stage: set pipeline_stages=1"
        )
    threshold = context.get_parallel_optimizer_threshold()
    return Settings(
        device_num,
        enable_alltoall=context.get_enable_alltoall(),
        optimizer_level=_level(context),
        optimizer_weight_shard_size=context.get_optimizer_weight_shard_size(),
        parallel_optimizer_threshold_KB=DEFAULT_THRESHOLD_KB if threshold < 0 else threshold,
        gradient_fp32_sync=context.get_gradient_fp32_sync(),
        recompute=_recomputed_blocks(cell, graph),
    )


def _level(context: Any) -> OptimizerLevel:
    if not context.get_enable_parallel_optimizer():
        return OptimizerLevel.NONE
    if context.get_zero3():
        return OptimizerLevel.LEVEL3
    return OptimizerLevel.LEVEL2 if context.get_grad_accumulation_shard() else OptimizerLevel.LEVEL1


def _recomputed_blocks(cell: Any, graph: Graph) -> dict[str, Recompute]:
    cells = dict(cell.cells_and_names())
    found = {}
    for name in dict.fromkeys(op.block for op in graph.ops if op.block is not None):
        block = cells.get(name)
        # Only the cell whose recompute() was called has this flag, not its children.
        if block is not None and "output_recompute" in (block.__dict__.get("_func_graph_flags") or {}):
            found[name] = Recompute(_recomputes_communication(block))
    return found


def _recomputes_communication(block: Any) -> bool:
    primitives = [p for _, c in block.cells_and_names() for p in c.__dict__.get("_primitives", {}).values()]
    return all(p.attrs.get("recompute_comm_op", True) for p in primitives if p is not None)
