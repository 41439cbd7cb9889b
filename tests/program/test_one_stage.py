"""Which networks MindSpore does not lay out over stages, by how their weights are read."""

import pytest

from model_zoo import PUBLISHED, dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.program.one_stage import why_one_stage
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, Op, OpOutput, Parameter, ParameterRef, TensorType

TABLE, ROWS = TensorType((64, 8), "float32"), TensorType((4, 8), "float32")


def op(name, kind, *inputs, cell=(), block=None):
    return Op(name, kind, inputs, (ROWS,), cell=cell, primitive="op" if cell else "", block=block)


def network(*ops, weights=("table",)):
    parameters = tuple(Parameter(name, TABLE) for name in weights)
    return Graph("Net", (("x", TensorType((4,), "int32")),), parameters, ops, OpOutput(ops[-1].name))


EMBEDDING = op("emb/Gather", "Gather", ParameterRef("table"), InputRef("x"), cell=("emb",))
BLOCK = op("0/ReLU", "ReLU", OpOutput("emb/Gather"), cell=("blocks", "0"), block="blocks.0")


@pytest.mark.parametrize("name", PUBLISHED)
def test_networks_of_the_zoo_may_have_stages(name):
    assert why_one_stage(build_graph(dimensions_of(name, seq_length=64, batch_size=2))) == ""


def test_a_tied_weight_wants_cells_on_both_sides():
    head = op("head/MatMul", "MatMul", OpOutput("0/ReLU"), ParameterRef("table"), cell=("head",))
    bare = op("MatMul", "MatMul", OpOutput("0/ReLU"), ParameterRef("table"))
    assert why_one_stage(network(EMBEDDING, BLOCK, head)) == ""
    assert why_one_stage(network(EMBEDDING, BLOCK, bare)).startswith(
        "table is read before and behind the blocks, and MatMul"
    )


def test_a_transposed_weight_is_read_where_the_result_is():
    transposed = op("Transpose", "Transpose", ParameterRef("table"), Constant((1, 0)))
    head = op("head/MatMul", "MatMul", OpOutput("0/ReLU"), OpOutput("Transpose"), cell=("head",))
    assert "and Transpose (Transpose), which reads it, has no cell" in why_one_stage(
        network(EMBEDDING, BLOCK, transposed, head)
    )


def test_a_cast_is_its_readers():
    cast = op("Cast", "Cast", ParameterRef("table"), Constant("float16"))
    head = op("head/MatMul", "MatMul", OpOutput("0/ReLU"), OpOutput("Cast"), cell=("head",))
    assert why_one_stage(network(EMBEDDING, BLOCK, cast, head)) == ""


def test_the_first_weight_wants_a_backward_pass():
    one = op("0/Add", "Add", Constant(1.0), ParameterRef("gamma"), block="blocks.0")
    bare = op("emb/Gather", "Embedding", ParameterRef("table"), InputRef("x"))
    weights = ("table", "gamma")
    assert why_one_stage(network(EMBEDDING, one, BLOCK, weights=weights)) == ""
    assert why_one_stage(network(bare, one, BLOCK, weights=weights)).startswith(
        "0/Add (Add) computes with a weight alone"
    )
