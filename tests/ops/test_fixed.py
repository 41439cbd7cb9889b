"""Operators that the user wrote and laid out."""

from dataclasses import replace

import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.cost.explain import explain_step
from ms_symtensor.cost.step import price
from ms_symtensor.errors import InputError, InvalidStrategyError
from ms_symtensor.ops.registry import register, signature
from ms_symtensor.ops.signature import Unit, view
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Phase
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.search.plan import plan
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, Op, OpOutput, Parameter, ParameterRef, TensorType
from ms_symtensor.tensor.graph_file import from_json, to_json
from tests.ops.views import make

LOCAL = TensorType((4, 4), "float32")
ON_2_4 = (2, 4)


def row_linear(ranks=(0, 1, 2, 3)) -> Graph:
    """sum(Morph(x, w)): every device multiplies its slices, and the results of 4 devices are reduced."""
    product = Op(
        "MatMul-op0", "MatMul", (InputRef("x"), InputRef("w"), Constant(False), Constant(False)), (TensorType((4, 8), "float32"),)
    )  # fmt: skip
    reduced = Op("AllReduce-op0", "AllReduce", (OpOutput("MatMul-op0"),), product.outputs, (("ranks", ranks),))
    body = Graph(
        "Morph", (("x", LOCAL), ("w", TensorType((4, 8), "float32"))), (), (product, reduced), OpOutput("AllReduce-op0")
    )
    morph = Op(
        "Morph-op0", "Morph", (InputRef("x"), ParameterRef("w")), (TensorType((8, 8), "float32"),),
        (("in_layout", ((ON_2_4, (1, 0)), (ON_2_4, (0, -1)))), ("out_layout", ((ON_2_4, (1, -1)),))),
        cell=("linear",), primitive="morph", body=body,
    )  # fmt: skip
    total = Op(
        "ReduceSum-op0", "ReduceSum", (OpOutput("Morph-op0"), Constant((0, 1)), Constant(False)), (TensorType((), "float32"),)
    )  # fmt: skip
    weight = Parameter("w", TensorType((16, 8), "float32"))
    return Graph("Net", (("x", TensorType((8, 16), "float32")),), (weight,), (morph, total), OpOutput("ReduceSum-op0"))


def test_its_collectives_and_their_gradients_are_in_the_program():
    program = partition(row_linear(), StagePlan({}, Settings(8)))
    inside = [c for c in program.collectives(5) if "Morph" in c.op and "AllReduce-op0" in c.op]
    assert [(c.kind, c.ranks, c.size_B, c.phase) for c in inside] == [
        ("AllReduce", (4, 5, 6, 7), 4 * 8 * 4, Phase.FORWARD),
        ("AllReduce", (4, 5, 6, 7), 4 * 8 * 4, Phase.BACKWARD),
    ]
    assert program.parameters["w"].slice_shape == (4, 8)
    assert program.parameters["w"].mirror.ranks(5) == (1, 5)


def test_a_planner_has_no_choice_and_the_neighbours_follow():
    graph = row_linear()
    found = plan(graph, load("atlas_800t_a2"), device_num=8, global_batch_size=8, seq_length=1)
    program = partition(graph, found.stage)
    assert price(graph, found.stage, program, load("atlas_800t_a2")).step_time_s == pytest.approx(
        found.prediction.step_time_s
    )
    assert found.search.optimality_gap == 0.0


def test_the_explanation_sums_up_to_the_price():
    graph, cluster = row_linear(), load("atlas_800t_a2")
    found = explain_step(graph, StagePlan({}, Settings(8)), cluster)
    for part in ("compute", "communication", "synchronisation", "optimizer"):
        summed = sum(o.total(part) * len(o.names) for o in found.operators)
        assert summed == pytest.approx(found.cost.time_s[part]), part
    morph = next(o for o in found.operators if o.type == "Morph")
    assert morph.total("parameters") == 4 * 8 * 4


def test_layouts_for_other_devices_are_refused():
    with pytest.raises(InvalidStrategyError, match="its layouts are for 8 devices, not for 4"):
        partition(row_linear(), StagePlan({}, Settings(4)))


def test_a_function_that_returns_other_slices_is_refused():
    graph = row_linear()
    whole = (("in_layout", graph.ops[0].attributes[0][1]), ("out_layout", ((ON_2_4, (-1, -1)),)))
    wrong = replace(graph, ops=(replace(graph.ops[0], attributes=whole), graph.ops[1]))
    with pytest.raises(InvalidStrategyError, match=r"returns \[4, 8\] on a device.*says \[8, 8\]"):
        partition(wrong, StagePlan({}, Settings(8)))


def test_irregular_groups_are_refused():
    with pytest.raises(InputError, match="Morph-op0: the collective AllReduce-op0.*do not lie regularly"):
        partition(row_linear(ranks=(0, 1, 2, 4)), StagePlan({}, Settings(8)))


def test_the_file_keeps_the_body():
    graph = row_linear()
    assert from_json(to_json(graph)) == graph
    assert from_json(to_json(graph)).hash == graph.hash
    other = replace(graph, ops=(replace(graph.ops[0], body=None), graph.ops[1]))
    assert other.hash != graph.hash


def test_a_layout_is_needed_for_every_tensor():
    op = replace(row_linear().ops[0], attributes=(("in_layout", ((ON_2_4, (1, 0)),)), ("out_layout", ())))
    with pytest.raises(InputError, match="1 layouts in in_layout for 2 tensors"):
        signature(view(replace(row_linear(), ops=(op,)), op))


def test_collectives_outside_a_morph_are_refused():
    with pytest.raises(InvalidStrategyError, match=r"accepts no collective \(AllGather\).*ops.Morph"):
        signature(make("AllGather", "float32[4, 4] -> float32[16, 4]"))


def test_sizes_of_run_time_are_an_error_only_where_they_are_needed():
    graph = row_linear()
    unknown = TensorType((-1,), "float32")
    body = graph.ops[0].body
    flat = Op("Reshape-op0", "Reshape", (OpOutput("AllReduce-op0"), Constant((-1,))), (TensorType((32,), "float32"),))
    sent = Op("AlltoAllV-op0", "AlltoAllV", (OpOutput("Reshape-op0"),), (unknown,), (("ranks", (0, 1, 2, 3)),))
    back = Op("Reshape-op1", "Reshape", (OpOutput("AlltoAllV-op0"), Constant((4, 8))), (TensorType((4, 8), "float32"),))
    longer = replace(body, ops=(*body.ops, flat, sent, back), output=OpOutput("Reshape-op1"))
    graph = replace(graph, ops=(replace(graph.ops[0], body=longer), graph.ops[1]))
    program = partition(graph, StagePlan({}, Settings(8)))
    assert not program.is_known
    assert [c.size_B for c in program.collectives() if c.kind == "AlltoAllV"] == [-1, -1]
    with pytest.raises(InputError, match="known at run time only"):
        price(graph, StagePlan({}, Settings(8)), program, load("atlas_800t_a2"))
    with pytest.raises(InputError, match="Morph-op0.*known at run time only"):
        plan(graph, load("atlas_800t_a2"), device_num=8, global_batch_size=8, seq_length=1)


def test_users_can_register_their_own_operators():
    register("TestedScale", "b s h, h -> b s h", keeps_inputs=(0, 1), bilinear=True)
    sig = signature(make("TestedScale", "float16[8, 4, 2], float16[2] -> float16[8, 4, 2]"))
    assert sig.cuttable == ("b", "s", "h")
    assert (sig.keeps_inputs, sig.unit) == ((0, 1), Unit.VECTOR)
    register("TestedScale", "b s h, h -> b s h", keeps_inputs=(0, 1), bilinear=True)  # a file that is run twice
    with pytest.raises(InputError, match="'TestedScale' has a signature already"):
        register("TestedScale", "b -> b")
    with pytest.raises(InputError, match="'MatMul' has a signature already"):
        register("MatMul", "m k, k n -> m n")
