"""Saved graphs: nothing is lost, and nothing damaged is accepted."""

import json
import math
from dataclasses import replace

import pytest

from ms_symtensor.errors import InputError
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
from ms_symtensor.tensor.graph_file import from_json, load, save, to_json

X = TensorType((8, 16), "bfloat16")


@pytest.fixture
def graph() -> Graph:
    first = Op(
        "Default/layers-CellList/0-Block/MatMul-op0",
        "MatMul",
        (InputRef("x"), ParameterRef("w"), Constant(None), Constant((1, (2.5, "a", True))), Constant(tensor=X)),
        (X, TensorType((), "float32")),
        (("axis", -1), ("sizes", (1, 2)), ("limit", math.inf)),
        ("layers", "0"),
        "matmul",
        "layers.0",
    )
    second = Op("last", "AddN", (TupleInput((OpOutput(first.name, 1), OpOutput(first.name))),), (X,))
    parameters = (Parameter("w", X, requires_grad=False),)
    return Graph("net", (("x", X),), parameters, (first, second), OpOutput("last"), (("seq_length", 8),))


def test_round_trip(graph, tmp_path):
    path = tmp_path / "deep" / "graph.json"
    save(graph, path)
    assert load(path) == graph
    assert load(path).hash == graph.hash
    assert [p.name for p in path.parent.iterdir()] == ["graph.json"]


def test_text_is_deterministic_and_plain(graph, tmp_path):
    save(graph, tmp_path / "a")
    save(load(tmp_path / "a"), tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert json.loads((tmp_path / "a").read_text())["format"] == "symtensor-graph"


def test_arguments_in_another_order_are_named(graph, tmp_path):
    with pytest.raises(InputError, match=r"save_graph takes \(graph, path\), and was given \(PosixPath, Graph\)"):
        save(tmp_path / "graph.json", graph)


def test_truncated_file(graph, tmp_path):
    path = tmp_path / "graph.json"
    save(graph, path)
    text = path.read_text()
    for length in (0, 1, len(text) // 2, len(text) - 3):
        path.write_text(text[:length])
        with pytest.raises(InputError, match="truncated or not JSON") as caught:
            load(path)
        assert "\n" not in str(caught.value)
        assert str(path) in str(caught.value)


def test_foreign_files(tmp_path):
    for content in ("[]", "{}", '{"format": "other"}', "3"):
        (tmp_path / "f").write_text(content)
        with pytest.raises(InputError, match="is not a graph of ms_symtensor"):
            load(tmp_path / "f")
    (tmp_path / "f").write_text("9" * 6000)
    with pytest.raises(InputError, match=r"is not a graph of ms_symtensor \(a number in it is too long\)"):
        load(tmp_path / "f")
    (tmp_path / "f").write_bytes(b"\x80\x81\xff")
    with pytest.raises(InputError, match="is not a graph of ms_symtensor"):
        load(tmp_path / "f")


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match="cannot read the graph"):
        load(tmp_path / "none")


def test_what_is_no_path_is_told():
    with pytest.raises(InputError, match="load_graph takes the path of a file, and was given None"):
        load(None)


def test_newer_version_asks_for_an_upgrade(graph):
    with pytest.raises(InputError, match="version 2, this ms_symtensor reads 1: upgrade"):
        from_json(to_json(graph) | {"version": 2})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.pop("ops"), "'ops' is missing"),
        (lambda data: data["ops"].reverse(), "used before it exists"),
        (lambda data: data["ops"].append(data["ops"][0]), "two operators are named"),
        (lambda data: data["parameters"].clear(), "parameter 'w' does not exist"),
        (lambda data: data["inputs"].clear(), "input 'x' does not exist"),
        (lambda data: data["inputs"][0].update(type=["float16", ["8"]]), "expected a whole number"),
        (lambda data: data["output"].update(index=5), "output 5 of 'last'"),
    ],
)
def test_damaged_content(graph, change, message):
    data = json.loads(json.dumps(to_json(graph)))
    change(data)
    with pytest.raises(InputError, match=message):
        from_json(data, "graph.json")


def test_flags_of_parameters_are_kept_and_usual_ones_not_written():
    plain = Parameter("w", TensorType((4,), "float32"))
    special = replace(plain, name="v", requires_grad=False, optimizer_shards=False, in_shared_block=True)
    graph = Graph("Net", (), (plain, special), (), ParameterRef("w"))
    data = to_json(graph)
    assert from_json(data) == graph
    assert set(data["parameters"][0]) == {"name", "type", "requires_grad"}
