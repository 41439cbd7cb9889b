"""The pipeline stages that a user wrote: `pipeline_stage` of cells, the context's number of stages, PipelineCell around all."""

from itertools import groupby
from typing import Any

from ms_symtensor.errors import InputError
from ms_symtensor.program.pipeline import Pipeline, runs_of
from ms_symtensor.tensor.graph import Graph


def stages_of_context() -> int:
    """The pipeline stages that MindSpore's parallel context asks for."""
    from mindspore._c_expression import AutoParallelContext

    return int(AutoParallelContext.get_instance().get_pipeline_stage_split_num())


def without_micro_batches(cell: Any) -> tuple[Any, int]:
    """What `nn.PipelineCell` or `nn.GradAccumulationCell` runs, and on how many micro-batches.

    Another cell is taken as it is: on one batch, or, with pipeline stages, on as many micro-batches as there are stages, the
    fewest that MindSpore takes.
    """
    from mindspore import nn

    if isinstance(cell, nn.PipelineCell | nn.GradAccumulationCell):
        return cell.network, cell.micro_size
    return cell, stages_of_context()


def pipeline_of_user(cell: Any, graph: Graph, micro_batch_num: int) -> Pipeline | None:
    """How the blocks of `graph`, captured from `cell`, lie on the stages; None for one stage and one batch.

    InputError where blocks have no stage, or lie in an order that is no pipeline.
    """
    from mindspore._c_expression import AutoParallelContext

    stage_num, blocks = stages_of_context(), graph.blocks
    if stage_num == 1:
        return None if micro_batch_num == 1 else Pipeline(runs_of((len(blocks),)), micro_batch_num)
    cells = dict(cell.cells_and_names())
    found = [_stage(cells, block) for block in blocks]
    if not found or any(stage is None for stage in found):
        where = next((b for b, stage in zip(blocks, found, strict=True) if stage is None), "the network")
        raise InputError(
            f"the parallel context asks for {stage_num} pipeline stages, but {where} has no pipeline_stage: set it on every"
            " repeated block, or pipeline_stages=1"
        )
    chunks = [(stage, len(list(same))) for stage, same in groupby(found)]
    if [stage for stage, _ in chunks] != [number % stage_num for number in range(len(chunks))]:
        order = [stage for stage, _ in chunks]
        raise InputError(
            f"the repeated blocks lie on the pipeline stages {order} in this order: give stages 0 to {stage_num - 1} in turn"
        )
    counts = tuple(count for _, count in chunks)
    scheduler = AutoParallelContext.get_instance().get_pipeline_scheduler()
    return Pipeline(runs_of(counts, len(counts) // stage_num), micro_batch_num, scheduler=scheduler or "1f1b")


def _stage(cells: dict[str, Any], block: str) -> int | None:
    """The stage of the innermost cell around `block` that has one."""
    path = block.split(".")
    for depth in range(len(path), -1, -1):
        stage = getattr(cells.get(".".join(path[:depth])), "pipeline_stage", -1)
        if isinstance(stage, int) and stage >= 0:
            return stage
    return None
