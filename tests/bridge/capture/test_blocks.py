"""Which operator belongs to which block, from owners, parameters and scopes."""

from ms_symtensor.bridge.capture.blocks import block_of_ops, block_of_path
from ms_symtensor.bridge.compiler.node_graph import Node
from ms_symtensor.tensor.graph import InputRef, OpOutput, ParameterRef, Source


def node(name: str, *inputs: Source) -> Node:
    return Node(name, name.rpartition("/")[2].split("-")[0], "", inputs, (), ())


def test_path():
    assert block_of_path(("model", "layers", "3", "attention", "query")) == "model.layers.3"
    assert block_of_path(("layers", "12")) == "layers.12"
    assert block_of_path(("layers", "3", "experts", "1", "up")) == "layers.3"
    assert block_of_path(("head",)) is None
    assert block_of_path(()) is None
    assert block_of_path(("0", "weight")) is None


def test_owner_decides():
    first = node("Default/layers-CellList/0-Block/MatMul-op0", InputRef("x"))
    assert block_of_ops([first], {first.name: ("layers", "2")}) == {first.name: "layers.2"}


def test_lagging_scope_follows_the_inputs():
    owned = node("Default/layers-CellList/1-Block/MatMul-op0", InputRef("x"))
    add = node("Default/layers-CellList/0-Block/Add-op1", OpOutput(owned.name), InputRef("x"))
    blocks = block_of_ops([owned, add], {owned.name: ("layers", "1"), add.name: ()})
    assert blocks[add.name] == "layers.1"


def test_parameter_decides_before_scope():
    cast = node("Default/layers-CellList/0-Block/Cast-op3", ParameterRef("layers.2.norm.gamma"))
    assert block_of_ops([cast], {cast.name: ()}) == {cast.name: "layers.2"}


def test_scope_of_a_block_long_left_is_outside():
    blocks = [node(f"Default/layers-CellList/{i}-Block/ReLU-op0", InputRef("x")) for i in range(2)]
    norm = node("Default/norm-Norm/RmsNorm-op0", OpOutput(blocks[1].name))
    add = node("Default/layers-CellList/0-Block/Add-op4", OpOutput(norm.name))
    owners = {blocks[0].name: ("layers", "0"), blocks[1].name: ("layers", "1"), norm.name: ("norm",), add.name: ()}
    assert block_of_ops([*blocks, norm, add], owners)[add.name] is None


def test_scope_is_believed_where_nothing_speaks_against_it():
    cast = node("Default/layers-CellList/0-Block/Cast-op0", InputRef("mask"))
    assert block_of_ops([cast], {cast.name: ()}) == {cast.name: "layers.0"}
