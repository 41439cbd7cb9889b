import json
from dataclasses import replace

import pytest
from plans import hand_written, plan_of, small_graph

from ms_symtensor.errors import InputError
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import view
from ms_symtensor.strategy.operator_json import (
    STEPS,
    operator_strategy,
    operator_strategy_text,
    pipeline_operator_strategy,
    training_scope,
)
from ms_symtensor.strategy.stages import pipeline_stages
from ms_symtensor.targets.exporter import CannotSayError, Planned
from ms_symtensor.targets.formats.operator_strategy import EXPORTER


@pytest.fixture(scope="module")
def written():
    graph, plan = hand_written("llama2_7b", 2, 4, sequence=True, attention="self")
    return graph, plan, operator_strategy(graph, plan.stage)


def test_every_operator_that_mindspore_distributes_is_listed(written):
    graph, _, data = written
    listed = data["parallel_strategy_item"]
    for op in graph.ops:
        is_listed = op.type == "Reshape" or signature(view(graph, op)).shardable
        for step in STEPS:
            name = f"Default/{step}/network-RotaryDecoder" + op.name.removeprefix("Default")
            assert (name in listed) == is_listed, name
    assert listed["Default/_VirtualDataset-op0"] == {"parallel_strategy": [[1, 1]] * 3, "stage": 0}


def test_strategies_and_output_strategies_are_those_of_the_plan(written):
    _, _, data = written
    name = (
        training_scope(written[0], "network-TrainOneStepCell")
        + "/layers-CellList/1-TransformerBlock/feed_forward-GatedFeedForward/down-Linear/MatMul-op0"
    )
    assert data["parallel_strategy_item"][name] == {"parallel_strategy": [[2, 4], [1, 4]], "stage": 0}
    assert data["parallel_out_strategy_item"][name] == {"parallel_strategy": [[8, 1]], "stage": 0}
    assert len(data["parallel_out_strategy_item"]) == 4 * len(STEPS)


def test_no_section_for_output_strategies_where_there_are_none():
    graph, plan = hand_written("llama2_7b", 8, 1, attention="self")
    assert "parallel_out_strategy_item" not in operator_strategy(graph, plan.stage)


def test_the_step_can_be_chosen():
    graph, plan = hand_written("gpt2_xl", 2, 4, attention="self")
    data = operator_strategy(graph, plan.stage, ["net-MyStep"])
    names = [n for n in data["parallel_strategy_item"] if "_VirtualDataset" not in n]
    assert names and all(name.startswith(f"Default/net-MyStep/network-{graph.name}/") for name in names)


def test_operators_of_recomputed_blocks_carry_their_mark():
    graph, plan = hand_written("llama2_7b", 2, 4, recompute=True, attention="self")
    for name in operator_strategy(graph, plan.stage)["parallel_strategy_item"]:
        assert name.startswith("recompute_Default/") == ("/layers-CellList/" in name)


def test_an_operator_without_a_strategy_gets_what_mindspore_gives_it():
    graph = small_graph("llama2_7b", attention="self")
    listed = operator_strategy(graph, plan_of(graph, {}, 8).stage)["parallel_strategy_item"]
    name = training_scope(graph, "network-GradientStep") + "/norm-Norm/RmsNorm-op0"
    assert listed[name]["parallel_strategy"] == [[8, 1], [1]]


def test_the_text_is_json(written):
    graph, plan, data = written
    assert json.loads(operator_strategy_text(graph, plan)) == data


@pytest.mark.parametrize(("stage_num", "of_norm"), [(2, 1), (1, 3)])
def test_copies_for_micro_batches_are_listed(written, stage_num, of_norm):
    """On one stage MindSpore copies every operator for every micro-batch, on several those outside all cells only."""
    graph, plan, _ = written
    stages, pipeline = pipeline_stages(
        graph, (2 // stage_num,) * stage_num, [plan.strategies] * stage_num, plan.settings, 3
    )
    plan = replace(plan, stages=stages, pipeline=pipeline)
    listed = pipeline_operator_strategy(graph, plan, ["network-Step"])["parallel_strategy_item"]
    around = f"Default/network-Step/network-{pipeline.wrapper}"
    scope = f"{around}/network-RotaryDecoder"
    assert sum(name.startswith(f"{scope}/norm-Norm/RmsNorm-op") for name in listed) == of_norm
    assert sum(name.startswith(f"{scope}/Reshape-op") for name in listed) == 9
    assert sum(name.startswith(f"{around}/micro_inputs-CellList/") for name in listed) == 3 * len(graph.inputs)
    assert [name for name in listed if name.startswith(f"{around}/Add")] == [f"{around}/Add-op0", f"{around}/Add-op1"]


def test_there_is_no_file_for_interleaved_stages():
    graph = small_graph("llama2_7b", attention="self", num_layers=4)
    plan = plan_of(graph, {}, 8)
    stages, pipeline = pipeline_stages(graph, (1, 1, 1, 1), [plan.strategies] * 2, plan.settings, 4, interleave=2)
    with pytest.raises(InputError, match="no file for interleaved stages"):
        pipeline_operator_strategy(graph, replace(plan, stages=stages, pipeline=pipeline))


def test_there_is_no_file_for_more_micro_batches_than_can_be_listed(written):
    graph, plan, _ = written
    stages, pipeline = pipeline_stages(graph, (2,), [plan.strategies], plan.settings, 1 << 20)
    with pytest.raises(CannotSayError, match="operators of every micro-batch, and there are 1048576, more than 4096"):
        EXPORTER.files(Planned(replace(plan, stages=stages, pipeline=pipeline), graph, ()))
