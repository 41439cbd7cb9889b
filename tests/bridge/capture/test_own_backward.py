"""What a `bprop` reads, as its source says."""

import pytest

from ms_symtensor.bridge.capture.own_backward import read_by
from ms_symtensor.tensor.graph import BPROP_INPUTS, BPROP_OUTPUTS


class HandsOn:
    def bprop(self, logits, label, _, dout):
        return self.cast(dout[0], F.dtype(logits)), zeros_like(label)  # noqa: F821 - only its source is read


class ReadsInputs:
    def bprop(self, x, y, out, dout):
        gradient = exp(x) - y  # noqa: F821
        return gradient * dout.reshape(out.shape), zeros_like(y)  # noqa: F821


class ReadsResult:
    def bprop(self, x, out, dout):
        return (out[0] * dout,)


class TakesAnything:
    def bprop(self, *arguments):
        return arguments


@pytest.mark.parametrize(
    ("cell", "reads"),
    [
        (HandsOn(), ()),
        (ReadsInputs(), (BPROP_INPUTS,)),
        (ReadsResult(), (BPROP_OUTPUTS,)),
        (TakesAnything(), (BPROP_INPUTS, BPROP_OUTPUTS)),
    ],
)
def test_a_tensor_of_which_only_the_form_is_asked_is_not_read(cell, reads):
    assert read_by(cell.bprop) == reads


def test_what_has_no_source_may_read_everything():
    assert read_by(len) == (BPROP_INPUTS, BPROP_OUTPUTS)
