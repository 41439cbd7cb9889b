"""The canonical text is the sorted JSON of a graph: saved plans name graphs by its hash."""

import json

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
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
from ms_symtensor.tensor.graph_file import to_json
from ms_symtensor.tensor.graph_text import canonical_text

X = TensorType((8, 16), "bfloat16")


def text(graph: Graph) -> str:
    return json.dumps(to_json(graph), sort_keys=True)


@pytest.mark.parametrize("model", ["llama2_7b", "deepseek_v3", "bert_large"])
def test_of_a_network(model):
    graph = build_graph(dimensions_of(model, num_layers=5))
    assert canonical_text(graph) == text(graph)


def test_of_what_equals_but_is_written_otherwise():
    inputs = (InputRef("x"), ParameterRef('w "ü"'), Constant((1, (2.5, None, True))), TupleInput((InputRef("x"),)))
    ops = tuple(
        Op(f"op{n}", "Some", (*inputs, OpOutput("op0", n)), (X, X), (("flag", flag),), ("layers", "0"), "p", "layers.0")
        for n, flag in enumerate((True, 1, 1.0, float("inf")))
    )
    bare = Op("bare", "Other", (), (), block="layers.0")
    body = Op("body", "Morph", (), (X,), block="layers.0", body=Graph("b", (), (), ops, InputRef("x")))
    graph = Graph("net", (("x", X),), (Parameter("w", X),), (*ops, bare, body), OpOutput("op0"), (("seq_length", 8),))
    assert canonical_text(graph) == text(graph)
