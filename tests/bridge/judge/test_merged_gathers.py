"""Which AllGathers of one operator's outputs MindSpore merges before it differentiates: predicted and compiled alike."""

from dataclasses import replace

import mindspore
import pytest

from benchmarks.exactness import line, run
from benchmarks.exactness_cases import Case
from benchmarks.pipeline_cases import PipelineCase, micro_config
from benchmarks.pipelines import run as run_stages
from model_zoo.megatron import megatron_strategy
from model_zoo.network import build
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.pipeline import Pipeline, runs_of
from ms_symtensor.program.settings import Settings, StagePlan
from tests.bridge.networks import TwoReaders, empty

CUTS = {
    "w": ((4, 1), (4, 1)),
    "split": ((4, 1),),
    "sum": ((2, 2),),
    "div": ((1, 2), (1, 1)),
    "add": ((1, 2), (1, 2)),
    "square": ((2, 1),),
    "mean": ((1, 2),),
}
"""The sum and the quotient read the first half of the columns, rows cut in 4, and begin with the same AllGather."""


@pytest.mark.parametrize("also", ["nothing", "other half", "cast"])
def test_what_is_gathered_beside_keeps_equal_gathers_apart(also: str) -> None:
    net, x = TwoReaders(also), empty(64, 8, dtype=mindspore.float32)
    graph = capture(net, x)
    strategies = {op.name: OpStrategy(CUTS[op.primitive]) for op in graph.ops if op.primitive in CUTS}
    result = run(net, (x,), graph, Case("two readers", "random", 0, StagePlan(strategies, Settings(8)), rank=0))
    assert result["accepted"] and not result["differences"], line(result)


@pytest.mark.parametrize("runs", [runs_of((2, 2)), runs_of((1,) * 4, 2)])
def test_what_blocks_gather_of_each_other_stays_apart_in_model_chunks_alone(
    runs: tuple[tuple[range, ...], ...],
) -> None:
    """Query, key and value read what the block before made, whose rows lie on four ranks."""
    config = replace(micro_config("llama2_7b", small=True), branch_norm="after")
    cell, inputs = build(config)
    graph = capture(cell, *inputs)
    cuts = megatron_strategy(graph, config, 1, 4, True)
    stage = StagePlan({name: OpStrategy(*cut) for name, cut in cuts.items()}, Settings(4))
    result = run_stages(cell, inputs, graph, PipelineCase("", "megatron", 0, (stage, stage), Pipeline(runs, 2)))
    assert not result["differences"] and result["sums"], result
