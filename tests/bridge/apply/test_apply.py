from dataclasses import replace

import pytest
from planned import SENS, network, planned, summary

from ms_symtensor.bridge.apply.apply import apply, parallel_config, remove, strategies_of
from ms_symtensor.bridge.apply.training import training_cell
from ms_symtensor.bridge.capture.capture import capture, primitives_of
from ms_symtensor.bridge.compiled.collectives import is_recomputed
from ms_symtensor.bridge.compiler.compile import compile_rank
from ms_symtensor.bridge.compiler.executor import RECOMPUTE_FLAGS
from ms_symtensor.bridge.judge.comparison import compare
from ms_symtensor.errors import InputError, InvalidStrategyError
from ms_symtensor.program.liveness import VIEWS
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Phase, Role
from ms_symtensor.program.settings import OptimizerLevel, Recompute


def test_every_primitive_gets_its_strategy():
    cell, _, graph, plan = planned("llama2_7b", 2, 4, sequence=True)
    apply(cell, graph, plan)
    assert strategies_of(cell, graph) == plan.stage.strategies
    assert cell.layers[1].feed_forward.down.matmul.attrs["out_strategy"] == ((8, 1),)


def test_a_second_plan_replaces_the_first():
    cell, _, graph, plan = planned("llama2_7b", 2, 4, sequence=True)
    apply(cell, graph, plan)
    few = dict(list(plan.stage.strategies.items())[:3])
    apply(cell, graph, replace(plan, stages=(replace(plan.stage, strategies=few),)))
    assert strategies_of(cell, graph) == few


def test_removing_a_plan_leaves_the_network_as_it_was():
    blocks = {"layers.0": Recompute(communication=False), "layers.1": Recompute()}
    cell, inputs, graph, plan = planned("llama2_7b", 2, 4, recompute=blocks)
    apply(cell, graph, plan)
    assert cell.layers[0].attention.query.matmul.attrs["recompute_comm_op"] is False
    apply(cell, graph, plan)
    remove(cell)
    assert strategies_of(cell, graph) == {}
    assert capture(cell, *inputs) == graph
    assert not any(c.__dict__.get("_has_config_recompute") for _, c in cell.cells_and_names())


@pytest.mark.parametrize("communication", [True, False])
def test_recompute_and_the_settings_reach_the_compiler(communication):
    blocks = {"layers.1": Recompute(communication)}
    cell, inputs, graph, plan = planned(
        "llama2_7b", 2, 4, optimizer_level=OptimizerLevel.LEVEL1, recompute=blocks, parallel_optimizer_threshold_KB=0
    )
    apply(cell, graph, plan)
    program = compile_rank(training_cell(cell), *inputs, SENS, device_num=8, parallel=parallel_config(plan))
    recomputation = [node for node in program.nodes if node.attribute("duplicated")]
    assert recomputation and all("/1-TransformerBlock" in node.name for node in recomputation)
    assert any(node.type == "AllReduce" for node in recomputation) == communication
    assert all(layout.optimizer_shard_ranks for layout in program.layouts)


def test_parallel_settings_have_mindspores_names():
    _, _, _, plan = planned("llama2_7b", 2, 4, optimizer_level=OptimizerLevel.LEVEL3, optimizer_weight_shard_size=2)
    assert parallel_config(plan, gradients_mean=True).settings() == {
        "parallel_mode": "semi_auto_parallel",
        "dataset_strategy": "full_batch",
        "enable_parallel_optimizer": True,
        "parallel_optimizer_config": {
            "optimizer_level": "level3",
            "optimizer_weight_shard_size": 2,
            "parallel_optimizer_threshold": 64,
        },
        "enable_alltoall": False,
        "gradients_mean": True,
        "gradient_fp32_sync": True,
    }


def test_strategies_written_by_hand_are_listed():
    cell, _, graph, plan = planned("llama2_7b", 2, 4)
    cell.head.matmul.shard(((8, 1), (1, 1)))
    with pytest.raises(InputError, match="by hand, on head.matmul: .*audit"):
        apply(cell, graph, plan)
    assert cell.norm.norm.attrs.get("in_strategy") is None  # nothing was changed
    assert list(strategies_of(cell, graph)) == ["Default/head-VocabularyHead/MatMul-op0"]
    cell.head.matmul.add_prim_attr("self_define_shard", True)  # with it MindSpore takes Layout objects alone
    remove(cell, by_hand=True)
    apply(cell, graph, plan)
    assert "self_define_shard" not in cell.head.matmul.attrs


@pytest.mark.parametrize("recomputation", ({"layers.0": Recompute()}, {"layers.1": Recompute()}, {}))
def test_recompute_written_by_hand_is_refused_or_replaced(recomputation):
    cell, inputs = network()
    cell.layers[0].recompute()
    by_user = dict(cell.layers[0].get_flags())
    graph = capture(cell, *inputs)
    _, _, _, plan = planned("llama2_7b", 2, 4, recompute=recomputation)
    plan = replace(plan, graph_hash=graph.hash)
    with pytest.raises(InputError, match="layers.0 already has recompute.*replace_shard=True"):
        apply(cell, graph, plan)
    other = replace(plan, graph_hash="another")
    with pytest.raises(InputError):
        apply(cell, graph, other, replace_shard=True)
    assert cell.layers[0].get_flags() == by_user != {}  # nothing was changed
    apply(cell, graph, plan, replace_shard=True)
    apply(cell, graph, plan)  # over a plan of its own it goes as well
    marked = {name for name, owner in cell.cells_and_names() if {*RECOMPUTE_FLAGS} & {*(owner.get_flags() or ())}}
    assert marked == set(recomputation)


def test_a_block_that_is_no_cell_is_refused():
    cell, _, graph, plan = planned("llama2_7b", 2, 4, recompute={"layers.7": Recompute()})
    with pytest.raises(InvalidStrategyError, match="'layers.7'"):
        apply(cell, graph, plan)


def test_a_plan_for_another_network_is_refused():
    _, _, _, plan = planned("llama2_7b", 2, 4)
    cell, _, graph, _ = planned("gpt2_xl", 2, 4)
    with pytest.raises(InputError, match="the plan is for graph"):
        apply(cell, graph, plan)


def test_the_python_code_compiles_to_the_same_collectives():
    from ms_symtensor.strategy.python_code import python_code

    cell, inputs, graph, plan = planned("llama2_7b", 4, 2, sequence=True)
    apply(cell, graph, plan)
    applied = compile_rank(training_cell(cell), *inputs, SENS, device_num=8, parallel=parallel_config(plan))
    other, inputs = network()
    names: dict = {}
    exec(python_code(graph, plan), names)
    names["shard"](other)
    assert strategies_of(other, graph) == plan.stage.strategies
    written = compile_rank(training_cell(other), *inputs, SENS, device_num=8, parallel=parallel_config(plan))
    assert summary(written) == summary(applied)


def test_what_a_block_keeps_is_not_compiled_again():
    kept = ("attention.query.matmul", "feed_forward.up.matmul")
    chosen = Recompute(kept=kept, kept_communication=("attention.output.matmul",))
    cell, inputs, graph, plan = planned("llama2_7b", 2, 4, recompute=dict.fromkeys(("layers.0", "layers.1"), chosen))
    apply(cell, graph, plan)
    program = compile_rank(training_cell(cell), *inputs, SENS, device_num=8, parallel=parallel_config(plan))
    found = compare(graph, partition(graph, plan.stage), program)
    assert found.differences == ()
    assert found.predicted_activations_B == pytest.approx(found.compiled_activations_B, rel=0.05)
    remove(cell)
    assert not any(p.attrs.keys() & {"recompute", "recompute_comm_op"} for p in primitives_of(cell, graph).values())


def test_operators_alone_are_compiled_again():
    only = ("attention_norm.norm", "attention.split_query", "feed_forward.silu", "feed_forward.mul")
    chosen = dict.fromkeys(("layers.0", "layers.1"), Recompute(only=only))
    cell, inputs, graph, plan = planned("llama2_7b", 2, 4, sequence=True, recompute=chosen)
    apply(cell, graph, plan)
    program = compile_rank(training_cell(cell), *inputs, SENS, device_num=8, parallel=parallel_config(plan))
    predicted = partition(graph, plan.stage)
    found = compare(graph, predicted, program)
    assert found.differences == ()
    assert found.predicted_activations_B == pytest.approx(found.compiled_activations_B, rel=0.01)
    recomputation = sorted(
        node.kind for node in predicted.nodes if node.phase is Phase.RECOMPUTE and node.role is Role.WORK
    )
    assert recomputation == sorted(
        node.type for node in program.nodes if is_recomputed(node) and node.type not in VIEWS
    )
    remove(cell)
    assert not any("recompute" in p.attrs for p in primitives_of(cell, graph).values())


def test_a_plan_that_keeps_what_is_no_primitive_is_refused():
    cell, _, graph, plan = planned("llama2_7b", 2, 4, recompute={"layers.1": Recompute(kept=("attention.query",))})
    with pytest.raises(InvalidStrategyError, match="'attention.query' in block 'layers.1'"):
        apply(cell, graph, plan)


def test_recompute_of_a_primitive_by_hand_is_refused():
    cell, _, graph, plan = planned("llama2_7b", 2, 4, recompute={"layers.0": Recompute()})
    cell.layers[0].feed_forward.silu.recompute()
    with pytest.raises(InputError, match="layers.0.feed_forward already has recompute"):
        apply(cell, graph, plan)
