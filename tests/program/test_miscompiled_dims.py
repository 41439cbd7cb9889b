"""Dims that a planner must not cut, for what MindSpore makes of the result or of the gradient."""

from dataclasses import replace

import pytest

from benchmarks.small_networks import Network
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import view
from ms_symtensor.program.gradients import differentiable_sources
from ms_symtensor.program.miscompiled_dims import miscompiled_dims
from ms_symtensor.tensor.graph import BPROP, Graph
from tests.ops.views import make


def miscompiled(graph: Graph, kind: str) -> frozenset[str]:
    """Of the last operator of type `kind`."""
    signatures = {op.name: signature(view(graph, op)) for op in graph.ops}
    gradients = differentiable_sources(graph, signatures)
    return miscompiled_dims(graph, [op for op in graph.ops if op.type == kind][-1], signatures, gradients)


def gated(squared: bool = False, once: bool = False) -> Graph:
    """t = silu(x @ w), and its product with t @ v (or with silu(x) @ v: `once`); or the square of t @ v."""
    net = Network()
    x = net.input(8, 8)
    t = net.unary("SiLU", net.matmul(x, 8))
    y = net.matmul(net.unary("SiLU", x) if once else t, 8)
    return net.graph(net.total(net.binary("Mul", y, y) if squared else net.binary("Mul", t, y)))


def test_a_factor_with_another_user_keeps_the_sum_whole():
    assert miscompiled(gated(), "MatMul") == {"k"}


def test_a_square_keeps_the_sum_whole():
    assert miscompiled(gated(squared=True), "MatMul") == {"k"}


def test_a_factor_without_another_user_does_not():
    assert miscompiled(gated(once=True), "MatMul") == frozenset()


def test_nor_does_one_whose_cell_has_its_own_backward_pass():
    graph = gated()
    own = tuple(replace(op, attributes=((BPROP, "cell"),)) if op.type == "Mul" else op for op in graph.ops)
    assert miscompiled(replace(graph, ops=own), "MatMul") == frozenset()


@pytest.mark.parametrize("name", ["ReduceMax", "ReduceMin"])
def test_the_largest_along_a_dim_is_shared_by_equal_ones(name):
    sig = signature(make(name, "float32[4, 8] -> float32[4]", (1,), False))
    assert sig.gradient_miscompiled == {"d1"}
    assert sig.cuttable == ("d0", "d1")  # where no gradient flows


def test_where_the_largest_stands_is_known_to_the_whole_alone():
    sig = signature(make("ArgMaxWithValue", "float32[4, 8] -> int32[4], float32[4]", 1, False))
    assert sig.cuttable == ("d0",)
