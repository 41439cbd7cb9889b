"""What gradients read."""

from dataclasses import replace

import pytest

from benchmarks.small_networks import Network
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import view
from ms_symtensor.program.gradients import differentiable_sources, kept_outputs, read_outside
from ms_symtensor.program.meanings import meanings
from ms_symtensor.tensor.graph import BPROP, BPROP_INPUTS, BPROP_OUTPUTS, Constant, Graph, ParameterRef, TensorType


def network(*reads: str, result_read: bool = False) -> Graph:
    """SiLU, Exp, Log and SiLU in a row; the two between form a cell with its own backward pass, which `reads` so much of what it
    is given. With `result_read` the last one reads Exp's result in place of Log's.
    """
    net = Network()
    x = net.unary("SiLU", net.matmul(net.input(8, 8), 8))
    exp = net.unary("Exp", x)
    log = net.unary("Log", exp)
    plain = net.graph(net.total(net.unary("SiLU", exp if result_read else log)))
    own = ((BPROP, "cell"), *((name, True) for name in reads))
    return replace(
        plain, ops=tuple(replace(op, attributes=own) if op.type in ("Exp", "Log") else op for op in plain.ops)
    )


def kept(graph: Graph) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    found = {op.type: read_outside(graph, op, signature(view(graph, op))) for op in graph.ops}
    return {
        kind: (sig.keeps_inputs, sig.keeps_outputs) for kind, sig in found.items() if kind in ("SiLU", "Exp", "Log")
    }


@pytest.mark.parametrize(
    ("reads", "exp", "log"),
    [
        ((), ((), ()), ((), ())),
        ((BPROP_INPUTS,), ((0,), ()), ((), ())),
        ((BPROP_OUTPUTS,), ((), ()), ((), (0,))),
    ],
)
def test_a_cell_with_its_own_backward_pass_keeps_what_that_reads_of_what_goes_in_and_comes_out(reads, exp, log):
    assert kept(network(*reads)) == {"SiLU": ((0,), ()), "Exp": exp, "Log": log}


def test_what_is_read_outside_comes_out():
    assert kept(network(BPROP_OUTPUTS, result_read=True))["Exp"] == ((), (0,))


def test_a_gradient_goes_back_through_complex_numbers():
    net = Network()
    x = net.matmul(net.input(8, 8, dtype="float32"), 8, "float32")
    (waves,) = net.op("FFT", "fft", (x, Constant(None), Constant(-1), Constant(None)), TensorType((8, 8), "complex64"))
    (real,) = net.op("Real", "real", (waves,), x.type)
    graph = net.graph(net.total(real))
    signatures = {name: sig for name, (_, sig) in meanings(graph).items()}
    assert ParameterRef(graph.parameters[0].name) in differentiable_sources(graph, signatures)


@pytest.mark.parametrize(("by_weight", "kept"), [(False, ()), (True, (0,))])
def test_a_quotient_is_kept_where_its_divisor_has_a_gradient(by_weight, kept):
    net = Network()
    x = net.matmul(net.input(8, 8), 8)
    divisor = net.weight(8, 8) if by_weight else net.emit.input("count", (8, 8), x.dtype)
    graph = net.graph(net.total(net.binary("Div", x, divisor)))
    signatures = {name: sig for name, (_, sig) in meanings(graph).items()}
    (op,) = (op for op in graph.ops if op.type == "Div")
    assert kept_outputs(graph, signatures[op.name], differentiable_sources(graph, signatures), op) == kept
