"""Blocks that MindSpore compiles once for all their calls (`@lazy_inline`): predicted and compiled alike."""

from dataclasses import replace

import pytest

from benchmarks.exactness import is_near, line, passed, run
from benchmarks.exactness_cases import Case, small_config_of
from model_zoo.megatron import megatron_strategy
from model_zoo.network import build
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings, StagePlan


@pytest.mark.parametrize(
    "settings",
    [
        Settings(4, optimizer_level=OptimizerLevel.LEVEL1),
        Settings(4, recompute={"layers.0": Recompute(communication=False), "layers.1": Recompute(communication=False)}),
    ],
    ids=("optimizer sharding", "recompute"),
)
def test_megatron(settings: Settings) -> None:
    config = replace(small_config_of("llama3_8b"), lazy_inline=True)
    cell, inputs = build(config)
    graph = capture(cell, *inputs)
    cuts = megatron_strategy(graph, config, 2, 2, sequence_parallel=True)
    strategies = {op.name: OpStrategy(*cuts[op.name]) for op in graph.ops if op.primitive and op.name in cuts}
    result = run(cell, inputs, graph, Case("llama3_8b", "megatron", 1, StagePlan(strategies, settings), rank=1))
    assert passed([result]) and is_near(result), line(result)
