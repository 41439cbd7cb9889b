"""What the search may choose from."""

from dataclasses import replace

import pytest

from benchmarks.small_networks import Network
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.tensor.graph import Constant, Graph, TensorType
from tests.search.problems import problem

A2 = load("atlas_800t_a2")


def largest_of_columns(on_the_fly: bool) -> Graph:
    net = Network()
    x = net.matmul(net.input(8, 8), 8)
    (largest,) = net.op("ReduceMax", "max", (x, Constant((0,)), Constant(False)), TensorType((8,), x.dtype))
    graph = net.graph(net.total(largest))
    return replace(
        graph, ops=tuple(replace(op, primitive="") if on_the_fly and op.type == "ReduceMax" else op for op in graph.ops)
    )


def test_the_largest_is_taken_along_a_whole_dim() -> None:
    of = problem(largest_of_columns(on_the_fly=False), A2, (2, 2))
    (item,) = (item for item in of.known.items if item.op.type == "ReduceMax")
    assert {strategy.inputs[0][0] for strategy in item.strategies} == {1}


def test_without_a_primitive_mindspore_would_cut_it() -> None:
    with pytest.raises(InvalidStrategyError, match=r"cuts dim d0 of .*make it a primitive of its cell"):
        problem(largest_of_columns(on_the_fly=True), A2, (2, 2))
