import json

import pytest
from plans import hand_written, plan_of, small_graph

from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import view
from ms_symtensor.strategy.operator_json import operator_strategy, operator_strategy_text, training_scope


@pytest.fixture(scope="module")
def written():
    graph, plan = hand_written("llama2_7b", 2, 4, sequence=True, attention="self")
    return graph, plan, operator_strategy(graph, plan.stage)


def test_every_operator_that_mindspore_distributes_is_listed(written):
    graph, _, data = written
    listed = data["parallel_strategy_item"]
    scope = "Default/network-GradientStep/network-RotaryDecoder"
    for op in graph.ops:
        name = scope + op.name.removeprefix("Default")
        assert (name in listed) == (op.type == "Reshape" or signature(view(graph, op)).shardable), name
    assert listed["Default/_VirtualDataset-op0"] == {"parallel_strategy": [[1, 1]] * 3, "stage": 0}


def test_strategies_and_output_strategies_are_those_of_the_plan(written):
    _, _, data = written
    name = (
        training_scope(written[0])
        + "/layers-CellList/1-TransformerBlock/feed_forward-GatedFeedForward/down-Linear/MatMul-op0"
    )
    assert data["parallel_strategy_item"][name] == {"parallel_strategy": [[2, 4], [1, 4]], "stage": 0}
    assert data["parallel_out_strategy_item"][name] == {"parallel_strategy": [[8, 1]], "stage": 0}
    assert len(data["parallel_out_strategy_item"]) == 4


def test_no_section_for_output_strategies_where_there_are_none():
    graph, plan = hand_written("llama2_7b", 8, 1, attention="self")
    assert "parallel_out_strategy_item" not in operator_strategy(graph, plan.stage)


def test_the_scope_can_be_chosen():
    graph, plan = hand_written("gpt2_xl", 2, 4, attention="self")
    data = operator_strategy(graph, plan.stage, scope="Default/network-MyStep/net-GPT")
    names = [n for n in data["parallel_strategy_item"] if "_VirtualDataset" not in n]
    assert names and all(name.startswith("Default/network-MyStep/net-GPT/") for name in names)


def test_operators_of_recomputed_blocks_carry_their_mark():
    graph, plan = hand_written("llama2_7b", 2, 4, recompute=True, attention="self")
    for name in operator_strategy(graph, plan.stage)["parallel_strategy_item"]:
        assert name.startswith("recompute_Default/") == ("/layers-CellList/" in name)


def test_an_operator_without_a_strategy_gets_what_mindspore_gives_it():
    graph = small_graph("llama2_7b", attention="self")
    listed = operator_strategy(graph, plan_of(graph, {}, 8).stage, scope="Default")["parallel_strategy_item"]
    assert listed["Default/norm-Norm/RmsNorm-op0"]["parallel_strategy"] == [[8, 1], [8]]


def test_the_text_is_json_and_the_same_every_time(written):
    graph, plan, data = written
    assert json.loads(operator_strategy_text(graph, plan.stage)) == data
    assert operator_strategy_text(graph, plan.stage) == operator_strategy_text(graph, plan.stage)
