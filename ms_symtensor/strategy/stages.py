"""From strategies, layers per stage and settings to the stages of a plan."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.pipeline import Pipeline, block_names, runs_of, stages_of_ops
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.tensor.graph import Graph


def pipeline_stages(
    graph: Graph,
    layers: Sequence[int],
    strategies: Sequence[Mapping[str, OpStrategy]],
    settings: Settings,
    micro_batch_num: int,
    interleave: int = 1,
) -> tuple[tuple[StagePlan, ...], Pipeline]:
    """`stages` and `pipeline` of a `Plan` for `graph`, the network at the size of one micro-batch.

    `layers`: blocks of every stage, first to last; with `interleave` n of every run, n times round the stages (see
    `runs_of`). `strategies`: one mapping per stage; what names operators of other stages is left out, so that the same
    mapping may stand for all. `settings` are those of one stage, `device_num` the devices of one stage; its `recompute`
    names blocks anywhere in the network.

    Errors: InputError for layers that are not those of the graph (see `Pipeline`).
    """
    pipeline = Pipeline(runs_of(tuple(layers), interleave), micro_batch_num)
    runs_on = stages_of_ops(graph, pipeline)
    stage_of_block = {name: pipeline.stage_of(number) for number, name in enumerate(block_names(graph))}
    stages = tuple(
        StagePlan(
            {op.name: given[op.name] for op in graph.ops if number in runs_on[op.name] and op.name in given},
            replace(
                settings,
                recompute={b: r for b, r in settings.recompute.items() if stage_of_block.get(b) == number},
            ),
        )
        for number, given in enumerate(strategies)
    )
    return stages, pipeline
