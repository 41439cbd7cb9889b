"""What a report says of work that devices repeat."""

from ms_symtensor.cluster.load import load
from ms_symtensor.report.repeated_work import repeated_work_text
from ms_symtensor.search.plan import plan
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, Op, OpOutput, TensorType

WIDE = TensorType((9, 4096, 4096), "float32")


def network(cell: tuple[str, ...], primitive: str) -> Graph:
    """The sum of a product of matrices, which 8 devices could cut along rows or columns, not along their number."""
    product = Op(
        "BatchMatMul-op0", "BatchMatMul", (InputRef("x"), InputRef("x"), Constant(False), Constant(False)), (WIDE,), cell=cell,
        primitive=primitive,
    )  # fmt: skip
    total = Op(
        "ReduceSum-op0", "ReduceSum", (OpOutput(product.name), Constant((0, 1, 2)), Constant(False)),
        (TensorType((), "float32"),),
        cell=("sum",), primitive="sum",
    )  # fmt: skip
    return Graph("Net", (("x", WIDE),), (), (product, total), OpOutput(total.name))


def text_of(graph: Graph) -> str:
    found = plan(graph, load("atlas_800t_a2"), device_num=8, global_batch_size=9, seq_length=1)
    return repeated_work_text(graph, found)


def test_an_operator_on_the_fly_that_every_device_computes_is_named_with_what_it_costs():
    title, line = text_of(network((), "")).splitlines()
    assert title == "Work that devices repeat"
    assert line.startswith("  1 BatchMatMul: every device does all the work, ")
    assert "of the step (" in line and line.endswith("as primitives of their cells they could be cut")


def test_one_that_mindspore_has_no_distributed_form_of_is_named_with_what_to_write():
    rows = TensorType((4096, 4096), "float32")
    unstacked = Op("Unstack-op0", "Unstack", (InputRef("x"), Constant(0)), (rows,) * 9, cell=("unstack",))
    total = Op("ReduceSum-op0", "ReduceSum", (OpOutput("Unstack-op0"), Constant((0, 1))), (TensorType((), "float32"),))
    line = text_of(Graph("Net", (("x", WIDE),), (), (unstacked, total), OpOutput(total.name))).splitlines()[1]
    assert line.endswith("in vain: MindSpore has no distributed form, write ops.Split")


def test_one_that_is_shared_out_is_not():
    assert text_of(network(("product",), "product")) == ""
