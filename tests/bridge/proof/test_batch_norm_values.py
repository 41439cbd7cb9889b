"""Values of a proof behind BatchNorm."""

from ms_symtensor.bridge.proof.batch_norm import offsets
from ms_symtensor.bridge.proof.values import parameter_value
from ms_symtensor.tensor.graph import Graph, InputRef, Op, OpOutput, Parameter, ParameterRef, TensorType

ROW = TensorType((8,), "float32")
IMAGE = TensorType((4, 8, 2, 2), "float32")


def test_what_batch_norm_adds_lies_far_from_the_kink_of_a_relu():
    sources = InputRef("x"), *(ParameterRef(name) for name in ("gamma", "beta", "mean", "variance"))
    op = Op("BatchNorm-op0", "BatchNorm", sources, (IMAGE, ROW, ROW, ROW, ROW), cell=("norm",), primitive="norm")
    weights = tuple(Parameter(name, ROW) for name in ("gamma", "beta", "mean", "variance"))
    graph = Graph("Net", (("x", IMAGE),), weights, (op,), OpOutput(op.name))
    assert offsets(graph) == {"beta"}
    scale, offset = parameter_value("gamma", ROW), parameter_value("beta", ROW, lifted=True)
    assert offset.min() >= 6 * scale.max()
