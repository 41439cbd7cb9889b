"""Reshapes that MindSpore leaves out: marked, in the shape of what they read."""

import pytest

from benchmarks.small_networks import Network
from ms_symtensor.bridge.capture.idle_reshapes import with_idle_reshapes
from ms_symtensor.tensor.graph import Graph


def network(reads: bool, of_weight: bool = False) -> Graph:
    net = Network()
    product = net.matmul(net.input(128, 64), 128)
    y = net.cast(net.reshape(net.weight(128, 128) if of_weight else product, 4, 32, 128), "float32")
    z = net.unary("Exp", net.reshape(y, 128, 128))
    z = net.binary("Add", z, net.cast(product, "float32"))
    return net.graph(net.binary("Add", net.total(z), net.total(net.unary("Neg", y))) if reads else net.total(z))


def shapes(graph: Graph) -> dict[str, tuple[int, ...]]:
    return {op.name.removeprefix("Default/"): op.outputs[0].shape for op in graph.ops}


def test_a_reshape_that_only_another_one_reads_keeps_its_input_as_it_is():
    before = network(reads=False)
    graph = with_idle_reshapes(before)
    assert [op.primitive for op in graph.ops if op.reshapes] == ["reshape2"]
    assert shapes(before)["Reshape-op0"] == shapes(before)["Cast-op0"] == (4, 32, 128)
    changed = {"Reshape-op0": (128, 128), "Cast-op0": (128, 128)}
    assert shapes(graph) == shapes(before) | changed


@pytest.mark.parametrize(("reads", "of_weight"), [(True, False), (False, True)])
def test_what_an_operator_reads_or_a_weight_delivers_is_reshaped(reads, of_weight):
    graph = network(reads, of_weight)
    assert with_idle_reshapes(graph) is graph
