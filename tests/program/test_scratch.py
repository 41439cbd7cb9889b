"""What is there only while an operator's gradient is computed."""

import pytest

from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.liveness import lives, program_steps
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Phase, Program
from ms_symtensor.program.scratch import scratch_elements
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.tensor.graph import Graph, InputRef, Op, OpOutput, Parameter, ParameterRef, TensorType


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
    scratch = program.nodes[place].scratch
    assert program.tensors[scratch].element_num == 8 * 4
    assert lives(program_steps(program), program.kept)[scratch] == (place, place)


def test_a_product_of_equal_shapes_needs_none():
    assert all(node.scratch is None for node in product_with((8, 4)).nodes)


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
        ("MatMulExt", 1, ((16, 64), MATRIX), (16, 32), 0),
        ("MatMul", 1, ((16, 64), MATRIX), (16, 32), 0),
    ],
)
def test_products_have_copies_transposed_and_gradients_of_matrices_summed_up(kind, position, inputs, result, elements):
    """As `Grad_MatMulExt` and the like are compiled: the Transpose and the SumExt in them."""
    assert scratch_elements(kind, position, inputs, result) == elements


@pytest.mark.parametrize(
    ("kind", "inputs", "tensors"), [("Sin", ((8, 4),), 1), ("Mish", ((8, 4),), 2), ("Maximum", ((8, 4), (4,)), 1)]
)
def test_factors_of_a_gradient_lie_beside_it(kind, inputs, tensors):
    """As `Grad_Sin` and the like are compiled: the Cos in it."""
    assert [scratch_elements(kind, n, inputs, (8, 4)) for n in range(len(inputs))] == [tensors * 32] * len(inputs)
