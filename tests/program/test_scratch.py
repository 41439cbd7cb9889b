"""What is there only while an operator's gradient is computed."""

import pytest

from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.liveness import activation_peak_B, live_B, lives, program_steps
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Phase, Program
from ms_symtensor.program.scratch import scratch
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, Op, OpOutput, Parameter, ParameterRef, TensorType


def product_with(shape: tuple[int, ...]) -> Program:
    """The program of mean(x · w) on one device, x [8, 4] and w of `shape`."""
    x, w = TensorType((8, 4), "float32"), TensorType(shape, "float32")
    ops = (
        Op("mul", "Mul", (InputRef("x"), ParameterRef("w")), (x,), primitive="mul"),
        Op("mean", "ReduceMean", (OpOutput("mul"),), (TensorType((), "float32"),), primitive="mean"),
    )
    graph = Graph("net", (("x", x),), (Parameter("w", w),), ops, OpOutput("mean"))
    strategies = {"mul": OpStrategy(((1, 1), (1,) * len(shape))), "mean": OpStrategy(((1, 1),))}
    return partition(graph, StagePlan(strategies, Settings(1)))


def test_the_gradient_of_what_was_broadcast_is_summed_from_a_whole_product():
    program = product_with((4,))
    (place,) = (i for i, n in enumerate(program.nodes) if n.op == "mul" and n.phase is Phase.BACKWARD)
    beside = program.nodes[place].scratch
    assert program.tensors[beside].element_num == 8 * 4
    assert lives(program_steps(program), program.kept)[beside] == (place, place)


def test_a_product_of_equal_shapes_needs_none():
    assert all(node.scratch is None for node in product_with((8, 4)).nodes if node.op == "mul")


X, W, MATRIX, RESULT = (8, 4, 16, 64), (4, 64, 32), (64, 32), (8, 4, 16, 32)


@pytest.mark.parametrize(
    ("kind", "position", "inputs", "result", "elements"),
    [
        ("BatchMatMul", 0, (X, W), RESULT, 0),
        ("BatchMatMul", 1, (X, W), RESULT, 8 * 4 * 64 * 32),
        ("BatchMatMul", 1, (X, MATRIX), RESULT, 8 * 4 * 64 * 32),
        ("BatchMatMulExt", 1, ((8, 16, 64), (8, 64, 32)), (8, 16, 32), 8 * 16 * 64),
        ("MatMulExt", 0, (X, W), RESULT, 4 * 64 * 32),
        ("MatMulExt", 1, (X, W), RESULT, 8 * 4 * 64 * 32 + (8 * 4 * 16 * 64 - 4 * 64 * 32)),
        ("MatMulExt", 1, (X, MATRIX), RESULT, 8 * 4 * 16 * 64),
        ("MatMulExt", 0, ((16, 64), (8, 64, 32)), (8, 16, 32), 8 * 64 * 32 + 8 * 16 * 32),
        ("MatMulExt", 1, ((16, 64), MATRIX), (16, 32), 16 * 64),
        ("MatMul", 1, ((16, 64), MATRIX), (16, 32), 0),
        ("Mm", 0, ((16, 64), MATRIX), (16, 32), 64 * 32),
        ("Dense", 1, (X, (32, 64)), RESULT, 2 * 8 * 4 * 16 * 64 - 32 * 64),
        ("Dense", 1, ((16, 64), (128, 64)), (16, 128), 128 * 64),
        ("Dense", 1, (X, (32, 64), (32,)), RESULT, 0),
        ("Dense", 0, (X, (32, 64)), RESULT, 0),
        ("VarMean", 0, ((8, 4),), (8,), 2 * 8 * 4),
        ("Sub", 1, ((8, 4), (4,)), (8, 4), 8 * 4),
        ("Sub", 0, ((4,), (8, 4)), (8, 4), 0),
        ("ReduceMean", 0, ((8, 4),), (8,), 8 * 4),
        ("Gather", 0, ((8, 4), (2,)), (8, 2), 8 * 4),
        ("Gather", 0, ((8, 4), (2,)), (2, 4), 0),
        ("Maximum", 0, ((8, 4), ()), (8, 4), 2 * 32 + 2 * 32 // 4),
    ],
)
def test_gradients_have_copies_and_are_computed_before_they_are_summed_up(kind, position, inputs, result, elements):
    """As `Grad_MatMulExt` and the like are compiled: the Transpose and the SumExt in them."""
    assert scratch(kind, position, inputs, result).elements == elements


def test_the_gradient_of_a_linear_weight_comes_transposed():
    """As `Grad_Dense` is compiled: what is transposed of the input, the product, and the product transposed."""
    beside = scratch("Dense", 1, ((16, 64), (128, 64)), (16, 128), is_weight=True)
    assert beside == (16 * 64 + 128 * 64, True)


@pytest.mark.parametrize(
    ("kind", "inputs", "tensors"), [("Sin", ((8, 4),), 1), ("Mish", ((8, 4),), 2), ("Select", ((8, 4),) * 3, 1)]
)
def test_factors_of_a_gradient_lie_beside_it(kind, inputs, tensors):
    """As `Grad_Sin` and the like are compiled: the Cos in it."""
    assert [scratch(kind, n, inputs, (8, 4)).elements for n in range(len(inputs))] == [tensors * 32] * len(inputs)


@pytest.mark.parametrize(("kind", "tensors"), [("Sin", 3), ("Mish", 5)])
def test_what_factors_are_made_of_is_gone_before_the_gradient_is_there(kind, tensors):
    """The incoming gradient, the cosine and the gradient; those of Mish are made one after the other, of all."""
    x = TensorType((8, 4), "float32")
    ops = (
        Op("mul", "Mul", (InputRef("x"), ParameterRef("w")), (x,), primitive="mul"),
        Op("function", kind, (OpOutput("mul"),), (x,), primitive="function"),
        Op("sum", "ReduceSum", (OpOutput("function"),), (TensorType((), "float32"),), primitive="sum"),
    )
    graph = Graph("net", (("x", x),), (Parameter("w", x),), ops, OpOutput("sum"))
    one = (1, 1)
    strategies = {"mul": OpStrategy((one, one)), "function": OpStrategy((one,)), "sum": OpStrategy((one,))}
    assert activation_peak_B(partition(graph, StagePlan(strategies, Settings(1)))) == tensors * x.size_B


@pytest.mark.parametrize("first", ["mul", "sigmoid"])
def test_of_x_times_a_function_of_x_the_gradient_of_the_function_comes_first(first):
    """As `x * ops.sigmoid(x)` is compiled: the sigmoid's gradient goes on while that of x waits for it."""
    x = TensorType((8, 4), "float32")
    second = "sigmoid" if first == "mul" else "mul"
    ops = (
        Op("mul", "Mul", (InputRef("x"), ParameterRef("w")), (x,), primitive="mul"),
        Op("sigmoid", "Sigmoid", (OpOutput("mul"),), (x,), primitive="sigmoid"),
        Op("product", "Mul", (OpOutput(first), OpOutput(second)), (x,), primitive="product"),
        Op("sum", "ReduceSum", (OpOutput("product"),), (TensorType((), "float32"),), primitive="sum"),
    )
    graph = Graph("net", (("x", x),), (Parameter("w", x),), ops, OpOutput("sum"))
    one = (1, 1)
    strategies = {name: OpStrategy((one, one)) for name in ("mul", "product")} | {
        name: OpStrategy((one,)) for name in ("sigmoid", "sum")
    }
    program = partition(graph, StagePlan(strategies, Settings(1)))
    made = {t: n.op for n in program.nodes for t in n.outputs if n.phase is Phase.FORWARD}
    read = [made[n.inputs[1]] for n in program.nodes if n.op == "product" and n.phase is Phase.BACKWARD]
    assert read == ["mul", "sigmoid"]


@pytest.mark.parametrize(("rows", "elements"), [(32, 32 + 64), (8, 32 + 32)])
def test_of_a_look_up_in_cut_rows_the_incoming_gradient_is_masked_and_then_added_up(rows, elements):
    """As `Grad_Mul` and `UnsortedSegmentSum` are compiled: 8 vectors of 4, and a table's slice of `rows` / 2 of them."""
    table, ids, found = TensorType((rows, 4), "float32"), TensorType((8,), "int32"), TensorType((8, 4), "float32")
    ops = (
        Op("neg", "Neg", (ParameterRef("table"),), (table,), primitive="neg"),
        Op("gather", "Gather", (OpOutput("neg"), InputRef("ids"), Constant(0)), (found,), primitive="gather"),
        Op("sum", "ReduceSum", (OpOutput("gather"),), (TensorType((), "float32"),), primitive="sum"),
    )
    graph = Graph("net", (("ids", ids),), (Parameter("table", table),), ops, OpOutput("sum"))
    strategies = {"neg": OpStrategy(((2, 1),)), "gather": OpStrategy(((2, 1), (1,))), "sum": OpStrategy(((1, 1),))}
    program = partition(graph, StagePlan(strategies, Settings(2)))
    (place,) = (i for i, n in enumerate(program.nodes) if n.kind == "GatherGrad")
    alive = live_B(
        lives(program_steps(program), program.kept),
        dict(enumerate(t.size_B for t in program.tensors)),
        len(program.nodes),
    )
    assert alive[place] == 4 * elements
