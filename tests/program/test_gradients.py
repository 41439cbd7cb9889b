"""What gradients read."""

from dataclasses import replace

import pytest

from benchmarks.small_networks import Network
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import view
from ms_symtensor.program.gradients import read_outside
from ms_symtensor.tensor.graph import BPROP, Graph


@pytest.fixture
def graph() -> Graph:
    """SiLU, Exp, Log and SiLU in a row; the ones between form a cell with a backward pass of its own."""
    net = Network()
    x = net.matmul(net.input(8, 8), 8)
    for kind in ("SiLU", "Exp", "Log", "SiLU"):
        x = net.unary(kind, x)
    plain = net.graph(net.total(x))
    own = ((BPROP, "cell"),)
    return replace(
        plain, ops=tuple(replace(op, attributes=own) if op.type in ("Exp", "Log") else op for op in plain.ops)
    )


def kept(graph: Graph) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    found = [(op.type, read_outside(graph, op, signature(view(graph, op)))) for op in graph.ops if op.type != "MatMul"]
    return [(kind, sig.keeps_inputs, sig.keeps_outputs) for kind, sig in found[:4]]


def test_a_cell_with_its_own_backward_pass_keeps_nothing_but_what_goes_in_and_comes_out(graph):
    assert kept(graph) == [("SiLU", (0,), ()), ("Exp", (), ()), ("Log", (), ()), ("SiLU", (0,), ())]


def test_what_an_operator_outside_reads_is_kept(graph):
    """The result of Exp, where another operator reads it."""
    ops = [op for op in graph.ops]
    exp = next(op for op in ops if op.type == "Exp")
    last = max(number for number, op in enumerate(ops) if op.type == "SiLU")
    ops[last] = replace(ops[last], inputs=exp.results)
    assert kept(replace(graph, ops=tuple(ops)))[1:3] == [("Exp", (), (0,)), ("Log", (0,), ())]
