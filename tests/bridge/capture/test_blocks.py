"""Which operator belongs to which block, from owners, parameters and scopes."""

from collections.abc import Mapping, Sequence

from ms_symtensor.bridge.capture.blocks import block_of_ops, block_of_path, in_block_order
from ms_symtensor.bridge.compiler.node_graph import Node
from ms_symtensor.tensor.graph import InputRef, OpOutput, ParameterRef, Source


def blocks_of(nodes: Sequence[Node], owners: Mapping[str, Sequence[str]]) -> dict[str, str | None]:
    """`block_of_ops` where weights are called as the cells are that own them."""
    names = [source.name for one in nodes for source in one.inputs if isinstance(source, ParameterRef)]
    return block_of_ops(nodes, owners, {name: name.split(".")[:-1] for name in names})


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
    assert blocks_of([first], {first.name: ("layers", "2")}) == {first.name: "layers.2"}


def test_lagging_scope_follows_the_inputs():
    owned = node("Default/layers-CellList/1-Block/MatMul-op0", InputRef("x"))
    add = node("Default/layers-CellList/0-Block/Add-op1", OpOutput(owned.name), InputRef("x"))
    blocks = blocks_of([owned, add], {owned.name: ("layers", "1"), add.name: ()})
    assert blocks[add.name] == "layers.1"


def test_parameter_decides_before_scope():
    cast = node("Default/layers-CellList/0-Block/Cast-op3", ParameterRef("layers.2.norm.gamma"))
    assert blocks_of([cast], {cast.name: ()}) == {cast.name: "layers.2"}
    homes = {"layers.2.norm.gamma": ("network", "layers", "1", "norm")}  # called otherwise than its cell
    assert block_of_ops([cast], {cast.name: ()}, homes) == {cast.name: "network.layers.1"}


def test_scope_of_a_block_long_left_is_outside():
    blocks = [node(f"Default/layers-CellList/{i}-Block/ReLU-op0", InputRef("x")) for i in range(2)]
    norm = node("Default/norm-Norm/RmsNorm-op0", OpOutput(blocks[1].name))
    add = node("Default/layers-CellList/0-Block/Add-op4", OpOutput(norm.name))
    owners = {blocks[0].name: ("layers", "0"), blocks[1].name: ("layers", "1"), norm.name: ("norm",), add.name: ()}
    assert blocks_of([*blocks, norm, add], owners)[add.name] is None


def test_scope_is_believed_where_nothing_speaks_against_it():
    cast = node("Default/layers-CellList/0-Block/Cast-op0", InputRef("mask"))
    assert blocks_of([cast], {cast.name: ()}) == {cast.name: "layers.0"}


def chain(*blocks):
    """A weight's product in every block, then a function without a cell, under the scope of the first; and a norm behind."""
    nodes, owners, last = [], {}, InputRef("x")
    for number, block in enumerate(blocks):
        name = block.replace(".", "-CellList/") + "-Block"
        opening = node(f"Default/{blocks[0].split('.')[0]}-CellList/0-Block/Square-op{number}", last)
        product = node(f"Default/{name}/MatMul-op0", OpOutput(opening.name), ParameterRef(f"{block}.weight"))
        inside = node(f"Default/GeluExt-op{number}", OpOutput(product.name))
        second = node(f"Default/{name}/MatMul-op1", OpOutput(inside.name), ParameterRef(f"{block}.other"))
        closing = node(
            f"Default/{blocks[0].split('.')[0]}-CellList/0-Block/Add-op{number}", last, OpOutput(second.name)
        )
        nodes += [opening, product, inside, second, closing]
        last = OpOutput(closing.name)
    behind = node("Default/layers-CellList/0-Block/Square-op9", last)
    norm = node("Default/norm-RMS/Mul-op0", OpOutput(behind.name), ParameterRef("norm.weight"))
    nodes += [behind, norm]
    return nodes, {one.name: owners.get(one.name, ()) for one in nodes}


def test_functions_are_placed_like_those_of_the_first_block():
    nodes, owners = chain("layers.0", "layers.1", "layers.2")
    found = blocks_of(nodes, owners)
    assert [found[one.name] for one in nodes] == ["layers.0"] * 5 + ["layers.1"] * 5 + ["layers.2"] * 5 + [None] * 2


def test_methods_at_the_entry_of_blocks_belong_to_these():
    """`x = x + layer((x - x.mean()) * y.mean())`: MindSpore gives both means the scope of the network."""
    first = node("Default/first-Dense/MatMul-op0", InputRef("x"), ParameterRef("first.weight"))
    nodes, blocks, last = [first], [None], OpOutput(first.name)
    for number in range(3):
        scope, block = "Default/layers-CellList/0-Block", f"layers.{number}"
        mean = node(f"Default/ReduceMean-op{2 * number}", last)
        centred = node(f"{scope}/Sub-op{number}", last, OpOutput(mean.name))
        scale = node(f"Default/ReduceMean-op{2 * number + 1}", OpOutput(centred.name))
        scaled = node(f"{scope}/Mul-op{number}", OpOutput(centred.name), OpOutput(scale.name))
        product = node(f"{scope}/MatMul-op{number}", OpOutput(scaled.name), ParameterRef(f"{block}.weight"))
        closing = node(f"{scope}/Add-op{number}", last, OpOutput(product.name))
        nodes += [mean, centred, scale, scaled, product, closing]
        blocks += [block] * 6
        last = OpOutput(closing.name)
    nodes.append(node("Default/head-Dense/MatMul-op0", last, ParameterRef("head.weight")))
    found = blocks_of(nodes, {one.name: () for one in nodes})
    assert [found[one.name] for one in nodes] == [*blocks, None]


def test_a_method_that_ends_a_block_stays_there():
    """`x = layer(x).relu()`, also before the blocks."""
    nodes, blocks, last = [], [], InputRef("x")
    for number, cell in enumerate(("first", "layers.0", "layers.1", "layers.2")):
        product = node(f"Default/{cell}/MatMul-op{number}", last, ParameterRef(f"{cell}.weight"))
        relu = node(f"Default/ReLU-op{number}", OpOutput(product.name))
        nodes += [product, relu]
        blocks += [cell if number else None] * 2
        last = OpOutput(relu.name)
    nodes.append(node("Default/head-Dense/MatMul-op0", last, ParameterRef("head.weight")))
    found = blocks_of(nodes, {one.name: () for one in nodes})
    assert [found[one.name] for one in nodes] == [*blocks, None]


def test_what_all_blocks_share_is_in_none():
    shared = node("Default/layers-CellList/0-Block/Muls-op0", InputRef("mask"))
    nodes, owners = [shared], {shared.name: ()}
    for number in range(2):
        one = node(f"Default/layers-CellList/{number}-Block/Softmax-op0", InputRef("x"), OpOutput(shared.name))
        nodes, owners = [*nodes, one], {**owners, one.name: ("layers", str(number))}
    assert blocks_of(nodes, owners)[shared.name] is None


def test_a_decoder_comes_behind_the_encoder_that_it_reads():
    first = node("Default/dec-CellList/0-Block/MatMul-op0", InputRef("y"))
    encoder = node("Default/enc-CellList/0-Block/MatMul-op0", InputRef("x"))
    second = node("Default/dec-CellList/0-Block/MatMul-op1", OpOutput(first.name), OpOutput(encoder.name))
    blocks = {first.name: "dec.0", encoder.name: "enc.0", second.name: "dec.0"}
    assert in_block_order([first, encoder, second], blocks) == [encoder, first, second]


def test_blocks_that_need_each_other_stay_as_they_are():
    first = node("Default/a-CellList/0-Block/MatMul-op0", InputRef("y"))
    other = node("Default/b-CellList/0-Block/MatMul-op0", OpOutput(first.name))
    third = node("Default/a-CellList/0-Block/MatMul-op1", OpOutput(other.name))
    blocks = {first.name: "a.0", other.name: "b.0", third.name: "a.0"}
    assert in_block_order([first, other, third], blocks) == [first, other, third]
