"""Copies of weights that lie in memory where gradients add up over micro-batches."""

from dataclasses import replace

import pytest

from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.partition import partition
from ms_symtensor.program.settings import OptimizerLevel, Settings, StagePlan
from ms_symtensor.program.stage_memory import micro_batch
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, Op, OpOutput, Parameter, ParameterRef, TensorType


def test_a_transposed_weight_is_shared_by_all_micro_batches():
    """As `mint.matmul(x * v, w)` is compiled in micro-batches: one Transpose of w, which the backward pass of each reads."""
    x, w, y = TensorType((8, 4), "float32"), TensorType((4, 16), "float32"), TensorType((8, 16), "float32")
    ops = (
        Op("mul", "Mul", (InputRef("x"), ParameterRef("v")), (x,), primitive="mul"),
        Op("product", "MatMulExt", (OpOutput("mul"), ParameterRef("w")), (y,), primitive="product"),
        Op("sum", "ReduceSum", (OpOutput("product"),), (TensorType((), "float32"),), primitive="sum"),
    )
    graph = Graph("net", (("x", x),), (Parameter("v", x), Parameter("w", w)), ops, OpOutput("sum"))
    strategies = {
        "mul": OpStrategy(((2, 1), (2, 1))), "product": OpStrategy(((2, 1), (1, 1))), "sum": OpStrategy(((2, 1),)),
    }  # fmt: skip
    found = micro_batch(partition(graph, StagePlan(strategies, Settings(2))), OptimizerLevel.NONE, interleaved=False)
    assert found.weights_B == found.weights_behind_B == {None: w.size_B}


def test_what_is_made_of_a_weight_alone_is_shared_by_all_micro_batches():
    """As `ops.MatMul()(x * v, w.T)` is compiled in micro-batches: one Transpose of w, which each backward pass reads."""
    x, w, flipped, y = (TensorType(shape, "float32") for shape in ((8, 4), (16, 4), (4, 16), (8, 16)))
    ops = (
        Op("mul", "Mul", (InputRef("x"), ParameterRef("v")), (x,), primitive="mul"),
        Op("flip", "Transpose", (ParameterRef("w"), Constant((1, 0))), (flipped,), primitive="flip"),
        Op("product", "MatMul", (OpOutput("mul"), OpOutput("flip")), (y,), primitive="product"),
        Op("sum", "ReduceSum", (OpOutput("product"),), (TensorType((), "float32"),), primitive="sum"),
    )
    graph = Graph("net", (("x", x),), (Parameter("v", x), Parameter("w", w)), ops, OpOutput("sum"))
    whole = (1, 1)
    strategies = {
        "mul": OpStrategy((whole, whole)), "flip": OpStrategy((whole,)), "product": OpStrategy((whole, whole)),
        "sum": OpStrategy((whole,)),
    }  # fmt: skip
    found = micro_batch(partition(graph, StagePlan(strategies, Settings(1))), OptimizerLevel.NONE, interleaved=False)
    assert found.weights_B == found.weights_behind_B == {None: w.size_B}


def _chunked(kind):
    """`x * v`, the operator that halves it, and, in a block, `mint.nn.Linear`."""
    x, half, w = TensorType((8, 4), "float32"), TensorType((8, 2), "float32"), TensorType((4, 2), "float32")
    ops = (
        Op("mul", "Mul", (InputRef("x"), ParameterRef("v")), (x,), primitive="mul"),
        Op("chunk", kind, (OpOutput("mul"), Constant(2), Constant(1)), (half, half), primitive="chunk"),
        Op("dense", "Dense", (OpOutput("chunk"), ParameterRef("w")), (x,), primitive="dense", block="block"),
        Op("sum", "ReduceSum", (OpOutput("dense"),), (TensorType((), "float32"),), primitive="sum"),
    )
    graph = Graph("net", (("x", x),), (Parameter("v", x), Parameter("w", w)), ops, OpOutput("sum"))
    whole = (1, 1)
    strategies = {
        "mul": OpStrategy((whole, whole)), "chunk": OpStrategy((whole,)), "dense": OpStrategy((whole, whole)),
        "sum": OpStrategy((whole,)),
    }  # fmt: skip
    return partition(graph, StagePlan(strategies, Settings(1)))


@pytest.mark.parametrize("recomputed", [(), ("block",)])
@pytest.mark.parametrize(("kind", "copied_B"), [("ChunkView", 4 * 2 * 4), ("Chunk", 0)])
def test_beside_a_view_every_micro_batch_has_a_copy_of_a_weight_that_is_read_twice(kind, copied_B, recomputed):
    """As a `mint.nn.Linear` behind `mint.chunk` is compiled in micro-batches: the TensorMove of its weight, in a block that is
    recomputed, too.
    """
    program = replace(_chunked(kind), recomputed=frozenset(recomputed))
    found = micro_batch(program, OptimizerLevel.NONE, interleaved=False)
    assert found.kept_B == {"block": 8 * 4 * 4 + 8 * 2 * 4 + copied_B}  # its samples, and a half of the product
