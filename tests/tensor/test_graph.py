"""The operator graph as data."""

import pytest

from ms_symtensor.tensor.graph import (
    Constant,
    Graph,
    InputRef,
    Op,
    OpOutput,
    Parameter,
    ParameterRef,
    TensorType,
    TupleInput,
)

X = TensorType((8, 16), "float16")
W = TensorType((32, 16), "float16")
Y = TensorType((8, 32), "float16")


@pytest.fixture
def graph() -> Graph:
    matmul = Op("matmul", "MatMul", (InputRef("x"), ParameterRef("w"), Constant(False), Constant(True)), (Y,))
    split = Op("split", "Split", (OpOutput("matmul"), Constant(1), Constant(2)), (X, X), (("axis", 1),))
    concat = Op("concat", "Concat", (TupleInput((OpOutput("split", 1), OpOutput("split"))), Constant(1)), (Y,))
    return Graph("net", (("x", X),), (Parameter("w", W),), (matmul, split, concat), OpOutput("concat"))


def test_sizes():
    assert W.element_num == 512
    assert W.size_B == 1024
    assert str(W) == "float16[32, 16]"


def test_type_of_every_source(graph):
    assert graph.type_of(InputRef("x")) == X
    assert graph.type_of(ParameterRef("w")) == W
    assert graph.type_of(OpOutput("split", 1)) == X
    assert graph.type_of(Constant(tensor=Y)) == Y
    assert graph.type_of(Constant(3)) is None


def test_tensor_inputs_open_tuples_and_leave_out_scalars(graph):
    concat = graph.op_by_name["concat"]
    assert graph.tensor_inputs(concat) == (OpOutput("split", 1), OpOutput("split", 0))
    assert graph.tensor_inputs(graph.op_by_name["matmul"]) == (InputRef("x"), ParameterRef("w"))


def test_users_tell_operator_and_position(graph):
    assert [(op.name, position) for op, position in graph.users[OpOutput("split", 0)]] == [("concat", 1)]
    assert [(op.name, position) for op, position in graph.users[ParameterRef("w")]] == [("matmul", 1)]


def test_hash_names_the_graph(graph):
    other = Graph("net", graph.inputs, (Parameter("w", W, requires_grad=False),), graph.ops, graph.output)
    same = Graph("net", graph.inputs, graph.parameters, graph.ops, graph.output)
    assert graph.hash == same.hash
    assert graph.hash != other.hash
    assert len(graph.hash) == 64
