"""Lists in which nothing repeats: outside the blocks where they stand before or behind all that repeat."""

from ms_symtensor.bridge.capture.lone_blocks import without_lone_blocks
from ms_symtensor.tensor.graph import Graph, InputRef, Op, OpOutput, TensorType

ROWS = TensorType((4, 8), "float32")


def chain(**kinds):
    """A network of one operator per block, of the types that every list of blocks is given, behind one outside these."""
    ops, last = [Op("stem", "Neg", (InputRef("x"),), (ROWS,))], OpOutput("stem")
    for container, types in kinds.items():
        for number, kind in enumerate(types):
            name = f"{container}.{number}"
            ops.append(Op(name, kind, (last,), (ROWS,), block=name))
            last = OpOutput(name)
    return Graph("Net", (("x", ROWS),), (), tuple(ops), last)


def blocks(**kinds):
    return without_lone_blocks(chain(**kinds)).blocks


def test_a_projection_and_a_head_are_outside():
    assert blocks(first=("Exp", "Abs"), layers=("ReLU",) * 3, head=("LayerNorm", "MatMul")) == (
        "layers.0",
        "layers.1",
        "layers.2",
    )


def test_what_stands_between_repeated_blocks_stays_a_block():
    assert "bridge.0" in blocks(enc=("ReLU",) * 2, bridge=("Exp",), dec=("Abs",) * 2)


def test_a_list_of_repeated_blocks_is_blocks_throughout():
    assert blocks(layers=("Exp", "ReLU", "ReLU", "Abs")) == tuple(f"layers.{n}" for n in range(4))


def test_where_nothing_repeats_all_stay_blocks():
    assert blocks(first=("Exp",), head=("Abs",)) == ("first.0", "head.0")
