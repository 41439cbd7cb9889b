"""The memory of stages from few blocks, against the programs of all blocks."""

from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from model_zoo.megatron import megatron_strategy
from ms_symtensor.cost.step import HCCL_BUFFER_B, buffers_B
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings
from ms_symtensor.program.stage_memory import stage_activation_peak_B
from ms_symtensor.program.stage_program import partition_stages
from ms_symtensor.search.folded.chain import Stage
from ms_symtensor.search.folded.stage_peaks import FEW, StagePeaks
from ms_symtensor.search.stages.network import network
from ms_symtensor.strategy.stages import pipeline_stages
from ms_symtensor.tensor.graph import TensorType

CASES = (
    ("llama2_7b", (9, 7, 8), (5, 0, 4)),
    ("llama2_7b", (3, 4, 2), (2, 2, 0)),
    ("llama2_7b", (2, 3, 5), (1, 3, 2)),
    ("gpt2_xl", (5, 12, 7), (0, 12, 0)),
    ("deepseek_v3", (5, 10, 9), (4, 1, 0)),
    ("deepseek_v3", (2, 3, 4), (1, 2, 2)),
)
"""Blocks of every stage, and how many of them are recomputed."""


@pytest.mark.parametrize("level", (OptimizerLevel.NONE, OptimizerLevel.LEVEL1))
@pytest.mark.parametrize(("model", "blocks", "recomputed"), CASES)
def test_few_blocks_stand_for_all(model, blocks, recomputed, level):
    config = dimensions_of(model, batch_size=4, seq_length=512, num_layers=sum(blocks))

    def graph_at(batch, layers):
        return build_graph(replace(config, batch_size=batch, num_layers=layers or config.num_layers))

    def strategies(graph):
        cuts = megatron_strategy(graph, config, 2, 2, True)
        return {op.name: OpStrategy(*cuts[op.name]) for op in graph.ops if op.primitive and op.name in cuts}

    graph = graph_at(4, None)
    few = network(graph, graph_at).short(4, FEW)
    depths = network(graph, graph_at).depths
    settings = Settings(4, optimizer_level=level)
    found = StagePeaks(few, depths, strategies(few), settings, PipelineSchedule(6)).of(
        [Stage(n, r, 0.0, 0.0) for n, r in zip(blocks, recomputed, strict=True)]
    )
    names = list(dict.fromkeys(op.block for op in graph.ops if op.block is not None))
    starts = (0, blocks[0], blocks[0] + blocks[1])
    recomputation = [name for start, n in zip(starts, recomputed, strict=True) for name in names[start : start + n]]
    stages, pipeline = pipeline_stages(
        graph,
        blocks,
        [strategies(graph)] * 3,
        replace(settings, recompute=dict.fromkeys(recomputation, Recompute())),
        6,
    )
    for program, memory_B in zip(partition_stages(graph, stages, pipeline), found, strict=True):
        weights = [TensorType(p.slice_shape, p.dtype).size_B for p in program.parameters.values()]
        assert memory_B["activations"] == stage_activation_peak_B(program)
        assert memory_B["buffers"] == buffers_B(program.micro) + HCCL_BUFFER_B
        assert memory_B["parameters"] == sum(weights)
        assert memory_B["optimizer_states"] <= 2 * memory_B["parameters"]
        assert (memory_B["gradients"] > memory_B["parameters"]) == (level is OptimizerLevel.LEVEL1)


def test_one_stage_exchanges_nothing_with_others():
    config = dimensions_of("llama2_7b", batch_size=4, seq_length=512, num_layers=FEW)

    def graph_at(batch, layers):
        return build_graph(replace(config, batch_size=batch, num_layers=layers or config.num_layers))

    graph = graph_at(4, None)
    cuts = megatron_strategy(graph, config, 2, 2, True)
    strategies = {op.name: OpStrategy(*cuts[op.name]) for op in graph.ops if op.primitive and op.name in cuts}
    depths, settings = network(graph, graph_at).depths, Settings(4)
    (memory_B,) = StagePeaks(graph, depths, strategies, settings, PipelineSchedule(6)).of([Stage(FEW, 0, 0.0, 0.0)])
    stages, pipeline = pipeline_stages(graph, (FEW,), [strategies], settings, 6)
    (program,) = partition_stages(graph, stages, pipeline)
    assert memory_B["buffers"] == buffers_B(program.micro) > 0
