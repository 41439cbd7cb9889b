"""What float32 cannot tell, in a proof."""

from dataclasses import replace

import numpy
import pytest

from ms_symtensor.bridge.proof.batch_norm import offsets
from ms_symtensor.bridge.proof.comparison import Difference
from ms_symtensor.bridge.proof.prove import Proof
from ms_symtensor.bridge.proof.values import last_bits_changed, parameter_value
from ms_symtensor.report.proof_report import proof_json, proof_text
from ms_symtensor.tensor.graph import Graph, InputRef, Op, OpOutput, Parameter, ParameterRef, TensorType

ROW = TensorType((8,), "float32")
IMAGE = TensorType((4, 8, 2, 2), "float32")


@pytest.mark.parametrize(
    ("error", "rounding", "equal", "is_rounding"),
    [
        (9e-6, 0.0, True, False),
        (9e-6, 1e-3, True, False),
        (2e-5, 0.0, False, False),
        (2e-5, 1e-3, True, True),
        (2e-3, 1e-3, False, False),
        (2e-2, 0.5, False, False),
    ],
)
def test_an_error_is_rounding_up_to_what_one_process_differs_by_itself(error, rounding, equal, is_rounding):
    found = Difference("weight", error, (), rounding)
    assert (found.equal, found.is_rounding) == (equal, is_rounding)


def test_it_is_told():
    exact, rounded = Difference("one", 1e-7, ()), Difference("two", 3e-5, (0,), 2e-3)
    proof = Proof(2, 0, (Difference("loss", 0.0, ()),), (exact, rounded), (), 1.0)
    assert proof.equal and proof_json(proof)["within_float32"] == ["two"]
    text = proof_text(proof)
    assert "1 of them above 1e-05, at most 3.0e-05 (two)" in text and "by itself is 2.0e-03 off" in text
    assert "proved equal (relative error at most 1e-05, or as far as float32 tells)" in text
    plain = replace(proof, parameters=(exact,))
    assert "within_float32" not in proof_json(plain) and "float32" not in proof_text(plain)


def test_last_bits_are_changed_and_nothing_else():
    value = parameter_value("weight", TensorType((64, 64), "float32"))
    first, second = (last_bits_changed(value, draw) for draw in (0, 1))
    assert (first != value).all() and (first != second).any()
    assert numpy.allclose(first, value, rtol=1.3e-7, atol=0.0)
    labels = numpy.arange(4, dtype=numpy.int32)
    assert last_bits_changed(labels, 0) is labels


def test_what_batch_norm_adds_lies_far_from_the_kink_of_a_relu():
    sources = InputRef("x"), *(ParameterRef(name) for name in ("gamma", "beta", "mean", "variance"))
    op = Op("BatchNorm-op0", "BatchNorm", sources, (IMAGE, ROW, ROW, ROW, ROW), cell=("norm",), primitive="norm")
    weights = tuple(Parameter(name, ROW) for name in ("gamma", "beta", "mean", "variance"))
    graph = Graph("Net", (("x", IMAGE),), weights, (op,), OpOutput(op.name))
    assert offsets(graph) == {"beta"}
    scale, offset = parameter_value("gamma", ROW), parameter_value("beta", ROW, lifted=True)
    assert offset.min() >= 6 * scale.max()
