"""Which networks MindSpore does not lay out over stages, by how their weights are read."""

from dataclasses import replace

import pytest

from model_zoo import PUBLISHED, dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.program.one_stage import why_no_accumulation, why_one_stage
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, Op, OpOutput, Parameter, ParameterRef, TensorType

TABLE, ROWS = TensorType((64, 8), "float32"), TensorType((4, 8), "float32")


def op(name, kind, *inputs, cell=(), block=None):
    return Op(name, kind, inputs, (ROWS,), cell=cell, primitive="op" if cell else "", block=block)


def network(*ops, weights=("table",)):
    parameters = tuple(Parameter(name, TABLE) for name in weights)
    return Graph("Net", (("x", TensorType((4,), "int32")),), parameters, ops, OpOutput(ops[-1].name))


EMBEDDING = op("emb/Gather", "Gather", ParameterRef("table"), InputRef("x"), cell=("emb",))
BLOCK = op("0/ReLU", "ReLU", OpOutput("emb/Gather"), cell=("blocks", "0"), block="blocks.0")


def two_blocks(*ops, weights=("table",)):
    second = op("1/ReLU", "ReLU", OpOutput("0/ReLU"), cell=("blocks", "1"), block="blocks.1")
    return network(EMBEDDING, BLOCK, second, *ops, weights=weights)


@pytest.mark.parametrize("name", PUBLISHED)
def test_networks_of_the_zoo_may_have_stages(name):
    assert why_one_stage(build_graph(dimensions_of(name, seq_length=64, batch_size=2))) == ""


def test_a_tied_weight_wants_cells_on_both_sides():
    head = op("head/MatMul", "MatMul", OpOutput("1/ReLU"), ParameterRef("table"), cell=("head",))
    bare = op("MatMul", "MatMul", OpOutput("1/ReLU"), ParameterRef("table"))
    assert why_one_stage(two_blocks(head)) == ""
    assert why_one_stage(two_blocks(bare)).startswith("table is read before and behind blocks, and MatMul")


@pytest.mark.parametrize("kind", ("MatMulExt", "Mm"))
def test_a_product_that_transposes_a_weight_for_a_gradient_keeps_one_stage(kind):
    """As `mint.matmul` and `mint.mm` are compiled on the last stage: "Graph cycle exists"."""

    def reason(kind, source):
        return why_one_stage(two_blocks(op("head", kind, source, ParameterRef("w")), weights=("table", "w")))

    assert f"head ({kind}) multiplies by a weight" in reason(kind, OpOutput("1/ReLU"))
    assert reason("MatMul", OpOutput("1/ReLU")) == reason(kind, InputRef("x")) == ""


@pytest.mark.parametrize("reader, called", (("targets/Gather", "ReLU"), ("decoder/Gather", "decoder.0/ReLU")))
def test_a_tied_weight_wants_another_cell_on_either_side(reader, called):
    """Rows of the table are read for the targets, or for a decoder, by the embedding's cell or another one."""
    own = op(reader, "Gather", ParameterRef("table"), InputRef("x"), cell=(reader.split("/")[0],))
    block = called.split("/")[0] if "/" in called else None
    user = op(called, "Mul", OpOutput("1/ReLU"), OpOutput(reader), block=block)
    assert why_one_stage(two_blocks(own, user)) == ""
    assert why_one_stage(two_blocks(replace(own, cell=("emb",)), user)).startswith(
        "table is read before and behind blocks, and one cell, emb, is called on both sides"
    )


def test_a_transposed_weight_is_read_where_the_result_is():
    transposed = op("Transpose", "Transpose", ParameterRef("table"), Constant((1, 0)))
    head = op("head/MatMul", "MatMul", OpOutput("1/ReLU"), OpOutput("Transpose"), cell=("head",))
    assert "and Transpose (Transpose), which reads it, has no cell" in why_one_stage(two_blocks(transposed, head))


def test_a_cast_is_its_readers():
    cast = op("Cast", "Cast", ParameterRef("table"), Constant("float16"))
    head = op("head/MatMul", "MatMul", OpOutput("1/ReLU"), OpOutput("Cast"), cell=("head",))
    assert why_one_stage(two_blocks(cast, head)) == ""


def test_the_first_weight_wants_a_backward_pass():
    one = op("0/Add", "Add", Constant(1.0), ParameterRef("gamma"), block="blocks.0")
    bare = op("emb/Gather", "Embedding", ParameterRef("table"), InputRef("x"))
    weights = ("table", "gamma")
    assert why_one_stage(network(EMBEDDING, one, BLOCK, weights=weights)) == ""
    assert why_one_stage(network(bare, one, BLOCK, weights=weights)).startswith(
        "0/Add (Add) computes with a weight alone"
    )


@pytest.mark.parametrize("kind, reader, cell, refused", [
    ("RmsNorm", (), (), True), ("RmsNorm", ("emb",), (), False), ("RmsNorm", (), ("blocks", "0"), False), ("Mul", (), (), False),
])  # fmt: skip
def test_functional_norms_do_not_begin_blocks_behind_a_functional_look_up(kind, reader, cell, refused):
    """As `ops.rms_norm` is compiled behind `mint.nn.Embedding` on the last stage: "Graph cycle exists"."""
    table = op("Embedding", "Embedding", InputRef("x"), ParameterRef("table"), cell=reader)
    norm = op("0/norm", kind, OpOutput("Embedding"), ParameterRef("w"), cell=cell, block="blocks.0")
    second = op("1/ReLU", "ReLU", OpOutput("0/norm"), cell=("blocks", "1"), block="blocks.1")
    assert ("0/norm (RmsNorm)" in why_one_stage(network(table, norm, second, weights=("table", "w")))) == refused


@pytest.mark.parametrize(
    "before, block, refused", [((), "blocks.1", True), (("w",), "blocks.1", False), ((), "blocks.0", False)]
)
def test_a_reshape_does_not_read_the_first_weight_of_a_later_block(before, block, refused):
    """As the last stage of 1F1B is compiled: "from shape size must be equal to to shape size", that of what it receives."""
    norms = [op(f"norm{name}", "LayerNorm", OpOutput("0/ReLU"), ParameterRef(name), block=block) for name in before]
    cast = op("Cast", "Cast", ParameterRef("flat"), Constant("bfloat16"), block=block)
    flat = op("Reshape", "Reshape", OpOutput("Cast"), Constant((4, 8)), block=block)
    head = op("MatMul", "MatMul", OpOutput("0/ReLU"), OpOutput("Reshape"), block="blocks.1")
    reason = why_one_stage(network(EMBEDDING, BLOCK, *norms, cast, flat, head, weights=("table", "flat", "w")))
    assert (f"Reshape (Reshape) reads the first weight of {block}" in reason) == refused


@pytest.mark.parametrize("trained, refused", [("table", False), ("w", True)])
def test_the_first_stage_trains_a_weight(trained, refused):
    """As a network whose head alone trains is compiled: "Stage 0 should has at least 1 parameter"."""
    graph = two_blocks(op("head", "MatMul", OpOutput("1/ReLU"), ParameterRef("w")), weights=("table", "w"))
    graph = replace(graph, parameters=tuple(replace(p, requires_grad=p.name == trained) for p in graph.parameters))
    assert why_one_stage(graph).startswith("no weight before blocks.1 trains") == refused


def test_reshapes_of_one_primitive_are_not_in_line_behind_the_first_weight():
    shaped = op("Reshape", "Reshape", ParameterRef("table"), Constant((4, 8)))
    inner = op("0/Reshape", "Reshape", OpOutput("Reshape"), Constant((4, 8)), block="blocks.0")
    border = op("0/ReLU", "ReLU", OpOutput("0/Reshape"), block="blocks.0")
    last = op("1/Reshape", "Reshape", OpOutput("0/ReLU"), Constant((4, 8)), block="blocks.1")
    assert "one primitive with Reshape behind it" in why_one_stage(network(shaped, inner, border, last))
    assert why_one_stage(network(replace(shaped, cell=("emb",), primitive="reshape"), inner, border, last)) == ""
    beside = replace(inner, type="ReLU")
    assert why_one_stage(network(shaped, beside, border, last)) == ""  # the last block is on another stage


def scalar(name, kind, *inputs, block=None):
    return Op(name, kind, inputs, (TensorType((), "float32"),), block=block)


FIRST = scalar("0/mean", "ReduceMean", OpOutput("0/ReLU"), block="blocks.0")


def test_a_scalar_does_not_go_from_block_to_block():
    last = scalar("1/mean", "ReduceMean", OpOutput("1/ReLU"), block="blocks.1")
    total = scalar("total", "Add", OpOutput("0/mean"), OpOutput("1/mean"))
    assert why_one_stage(two_blocks(FIRST, last, total)).startswith(
        "0/mean (ReduceMean) goes from block to block: MindSpore receives a scalar as a number"
    )
    assert why_one_stage(two_blocks(last)) == ""
    kept = op("0/mean", "ReduceMean", OpOutput("0/ReLU"), block="blocks.0")
    assert why_one_stage(two_blocks(kept, op("total", "Add", OpOutput("0/mean"), OpOutput("1/ReLU")))) == ""


def test_a_bool_does_not_go_from_block_to_block():
    chosen = Op("0/less", "Less", (OpOutput("0/ReLU"), Constant(0.0)), (TensorType((4, 8), "bool"),), block="blocks.0")
    behind = op("1/where", "Select", OpOutput("0/less"), OpOutput("1/ReLU"), OpOutput("1/ReLU"), block="blocks.1")
    assert why_one_stage(two_blocks(chosen, behind)) == (
        "0/less (Less) goes from block to block: MindSpore sends no bool from stage to stage"
    )
    assert why_one_stage(two_blocks(chosen)) == ""


def test_a_reshape_is_no_border():
    inside = op("0/flat", "Reshape", OpOutput("0/ReLU"), block="blocks.0")
    assert why_one_stage(two_blocks(inside)) == ""
    behind = op("total", "Add", OpOutput("0/flat"), OpOutput("1/ReLU"))
    assert why_one_stage(two_blocks(inside, behind)) == (
        "0/flat (Reshape) goes from block to block: MindSpore sends no result of a Reshape from stage to stage; reshape where the"
        " next block begins"
    )


def test_a_scalar_of_inputs_alone_is_made_on_every_stage():
    count = scalar("count", "ReduceSum", InputRef("x"))
    ends = [
        scalar(f"{n}/scaled", "Mul", OpOutput(f"{n}/ReLU"), OpOutput("count"), block=f"blocks.{n}") for n in range(2)
    ]
    assert why_one_stage(two_blocks(count, *ends)) == ""


def test_a_scalar_made_of_weights_is_sent():
    scale = scalar("scale", "ReduceSum", ParameterRef("gamma"))
    own = op("0/scaled", "Mul", OpOutput("0/ReLU"), OpOutput("scale"), block="blocks.0")
    head = op("head/scaled", "Mul", OpOutput("1/ReLU"), OpOutput("scale"))
    assert why_one_stage(two_blocks(scale, own, head, weights=("table", "gamma"))).startswith("scale (ReduceSum) goes")


@pytest.mark.parametrize("trains", (True, False))
@pytest.mark.parametrize("made", ((), ("Cast",), ("Exp", "Cast")))
def test_weights_of_several_blocks_and_what_is_made_of_them(made, trains):
    outside, source = [], ParameterRef("gamma")
    for kind in made:
        outside.append(op(kind, kind, source))
        source = OpOutput(kind)
    ends = [op(f"{n}/Mul", "Mul", OpOutput(f"{n}/ReLU"), source, block=f"blocks.{n}") for n in range(2)]
    network = two_blocks(*outside, *ends, weights=("table", "gamma"))
    network = replace(network, parameters=tuple(replace(p, requires_grad=trains) for p in network.parameters))
    name = f"{made[-1]} ({made[-1]})" if made else "gamma"
    assert why_one_stage(network).startswith(f"{name} is read in blocks.0 and in blocks.1: MindSpore has no weight")


def test_a_weight_of_one_block_or_of_both_ends_is_no_weight_of_several_blocks():
    own = op("0/Mul", "Mul", OpOutput("0/ReLU"), ParameterRef("gamma"), block="blocks.0")
    head = op("head/MatMul", "MatMul", OpOutput("1/ReLU"), ParameterRef("table"), cell=("head",))
    assert why_one_stage(two_blocks(own, head, weights=("table", "gamma"))) == ""


def test_gradients_do_not_add_up_on_one_stage_behind_a_frozen_table():
    """Adapters: MindSpore 2.10.0 raises `Cannot find grad_accumulation border node`."""

    def why(name, **changed):
        return why_no_accumulation(
            build_graph(dimensions_of(name, seq_length=64, batch_size=2, num_layers=1, **changed))
        )

    assert why("llama2_7b") == why("qwen_7b_lora") == ""  # the latter trains its table
    assert "Gather), which reads the first weight, has no gradient" in why("llama2_7b", lora=8)
