"""From strategies, layers per stage and settings to the stages of a plan."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.pipeline import Pipeline, runs_of, stages_of_ops
from ms_symtensor.program.schedules import DEFAULT_SCHEDULER
from ms_symtensor.program.settings import Recompute, Settings, StagePlan
from ms_symtensor.tensor.graph import Graph


def pipeline_stages(
    graph: Graph,
    layers: Sequence[int],
    strategies: Sequence[Mapping[str, OpStrategy]],
    settings: Settings,
    micro_batch_num: int,
    interleave: int = 1,
    scheduler: str = DEFAULT_SCHEDULER,
) -> tuple[tuple[StagePlan, ...], Pipeline]:
    """`stages` and `pipeline` of a `Plan` for `graph`, the network at the size of one micro-batch.

    `layers`: blocks of every stage, first to last; with `interleave` n of every run, n times round the stages (see
    `runs_of`). `strategies`: one mapping per stage; what names operators of other stages is left out, so that the same
    mapping may stand for all. `settings` are those of one stage, `device_num` the devices of one stage; its `recompute`
    names blocks anywhere in the network.

    Errors: InputError for layers that are not those of the graph (see `Pipeline`).
    """
    pipeline = Pipeline(runs_of(tuple(layers), interleave), micro_batch_num, scheduler=scheduler)
    runs_on = stages_of_ops(graph, pipeline)
    stage_of_block = {name: pipeline.stage_of(number) for number, name in enumerate(graph.blocks)}
    held: list[dict[str, OpStrategy]] = [{} for _ in strategies]
    for op in graph.ops:
        for number in sorted(runs_on[op.name]):
            if (strategy := strategies[number].get(op.name)) is not None:
                held[number][op.name] = strategy
    recompute: list[dict[str, Recompute]] = [{} for _ in strategies]
    for block, recomputation in settings.recompute.items():
        if (stage := stage_of_block.get(block)) is not None:
            recompute[stage][block] = recomputation
    stages = tuple(
        StagePlan(own, replace(settings, recompute=recomputation))
        for own, recomputation in zip(held, recompute, strict=True)
    )
    return stages, pipeline
