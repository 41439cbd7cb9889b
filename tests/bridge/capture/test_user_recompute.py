"""recompute() as users write it by hand, on primitives and cells inside a block, as it is read and as it is compiled."""

from dataclasses import replace

import pytest
from planned import SENS, planned

from ms_symtensor.bridge.apply.apply import apply, parallel_config
from ms_symtensor.bridge.apply.training import training_cell
from ms_symtensor.bridge.capture.user_recompute import recomputed_by_user
from ms_symtensor.bridge.compiler.compile import compile_rank
from ms_symtensor.bridge.judge.comparison import compare
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Phase
from ms_symtensor.program.settings import Recompute, StagePlan
from ms_symtensor.tensor.graph import OpOutput


@pytest.fixture(scope="module")
def network():
    return planned("llama2_7b", 2, 4, sequence=True)


def test_whole_blocks_are_read_as_such(network):
    cell, _, graph, _ = planned("llama2_7b", 2, 4)
    assert recomputed_by_user(cell, graph) == {}
    cell.layers[0].recompute()
    cell.layers[1].recompute(mp_comm_recompute=False)
    assert recomputed_by_user(cell, graph) == {"layers.0": Recompute(is_marked=False), "layers.1": Recompute(False)}


@pytest.mark.matrix
def test_what_a_block_without_marks_delivers_is_not_moved_again_for_others():
    """`recompute()` alone leaves operators without marks: the all-gather before the last norm is none of the block."""
    cell, inputs, graph, plan = planned("llama2_7b", 2, 4, sequence=True)
    norm = next(op for op in graph.ops if op.cell == ("norm",))
    whole = {name: s for name, s in plan.stage.strategies.items() if name != norm.name}
    stage = StagePlan({**whole, norm.name: OpStrategy(((2, 1), (1,)))}, plan.settings)
    apply(cell, graph, replace(plan, stages=(stage,)))
    cell.layers[1].recompute()
    settings = replace(plan.settings, recompute=recomputed_by_user(cell, graph))
    program = compile_rank(training_cell(cell), *inputs, SENS, device_num=8, parallel=parallel_config(plan))
    compared = compare(graph, partition(graph, StagePlan(stage.strategies, settings)), program)
    assert compared.differences == ()


def test_what_stands_in_the_scope_of_another_cell_belongs_to_its_block():
    """Functional operators may: MindSpore shares their primitives between cells."""
    cell, _, graph, _ = planned("llama2_7b", 2, 4)
    cast = next(op for op in graph.ops if op.name.endswith("1-TransformerBlock/feed_forward_norm-Norm/Cast-op1"))
    place, elsewhere = OpOutput(cast.name), OpOutput("Default/Cast-op9")
    ops = (replace(op, inputs=tuple(elsewhere if i == place else i for i in op.inputs)) for op in graph.ops)
    ops = tuple(replace(op, name=elsewhere.op) if op.name == cast.name else op for op in ops)
    cell.layers[1].recompute()
    assert recomputed_by_user(cell, replace(graph, ops=ops)) == {"layers.1": Recompute(is_marked=False)}


def test_operators_left_out_of_a_block_are_kept():
    cell, _, graph, _ = planned("llama2_7b", 2, 4)
    cell.layers[0].recompute(mp_comm_recompute=True)
    cell.layers[0].attention.query.matmul.recompute(False)
    cell.layers[0].attention.output.matmul.add_prim_attr("recompute_comm_op", False)
    expected = Recompute(True, ("attention.query.matmul",), ("attention.output.matmul",))
    assert recomputed_by_user(cell, graph) == {"layers.0": expected}


@pytest.mark.matrix
def test_what_is_moved_before_a_reshape_comes_with_its_mark():
    cell, inputs, graph, plan = planned("llama2_7b", 2, 4, sequence=True)
    apply(cell, graph, plan)
    cell.layers[1].attention.merge_heads.recompute()
    cell.layers[1].attention.output.matmul.recompute()
    found = recomputed_by_user(cell, graph)
    settings = replace(plan.settings, recompute=found)
    program = compile_rank(training_cell(cell), *inputs, SENS, device_num=8, parallel=parallel_config(plan))
    compared = compare(graph, partition(graph, StagePlan(plan.stage.strategies, settings)), program)
    assert compared.differences == ()
    assert compared.predicted_activations_B == pytest.approx(compared.compiled_activations_B, rel=0.01)


def test_selections_as_mindformers_writes_them_are_compiled_as_predicted(network):
    """select_recompute: [feed_forward.mul, feed_forward.silu, the norms]; select_comm_recompute: the norms."""
    cell, inputs, graph, plan = network
    apply(cell, graph, plan)
    block = cell.layers[1]
    block.feed_forward.mul.recompute()
    block.feed_forward.silu.recompute()
    for norm in (block.attention_norm, block.feed_forward_norm):
        norm.recompute()
        norm.norm.add_prim_attr("recompute_comm_op", True)
    found = recomputed_by_user(cell, graph)
    assert list(found) == ["layers.1"] and "feed_forward.up.matmul" in found["layers.1"].kept
    assert not {"feed_forward.mul", "feed_forward.silu"} & {*found["layers.1"].kept}
    settings = replace(plan.settings, recompute=found)
    program = compile_rank(training_cell(cell), *inputs, SENS, device_num=8, parallel=parallel_config(plan))
    compared = compare(graph, partition(graph, StagePlan(plan.stage.strategies, settings)), program)
    assert compared.differences == ()
    assert compared.predicted_activations_B == pytest.approx(compared.compiled_activations_B, rel=0.05)


@pytest.mark.parametrize(
    ("sequence", "communication", "chosen"),
    [
        (False, True, (0, 1, 2)),
        pytest.param(False, False, (0, 1, 2), marks=pytest.mark.matrix),
        pytest.param(False, None, (0, 2), marks=pytest.mark.matrix),
        pytest.param(True, True, (0, 1, 2), marks=pytest.mark.matrix),
    ],
)
def test_what_blocks_keep_in_slices_is_gathered_as_compiled(sequence, communication, chosen):
    """A block that reads what a marked block delivers gathers it, unless every rank has its own part of the tokens."""
    cell, inputs, graph, plan = planned("llama2_7b", 2, 4, sequence=sequence, num_layers=3)
    apply(cell, graph, plan)
    moved = {} if communication is None else {"mp_comm_recompute": communication}
    for number in chosen:
        cell.layers[number].recompute(recompute_slice_activation=True, **moved)
    settings = replace(plan.settings, recompute=recomputed_by_user(cell, graph))
    predicted = partition(graph, StagePlan(plan.stage.strategies, settings))
    program = compile_rank(training_cell(cell), *inputs, SENS, device_num=8, parallel=parallel_config(plan))
    compared = compare(graph, predicted, program)
    assert compared.differences == ()
    assert compared.predicted_activations_B == pytest.approx(compared.compiled_activations_B, rel=0.01)
    gathers = [c for c in predicted.collectives() if c.kind == "AllGather" and c.phase is Phase.RECOMPUTE]
    if not sequence:
        assert len(gathers) == (2 if chosen == (0, 1, 2) else 0)
