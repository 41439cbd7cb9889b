"""What is to be written in place of an operator has a distributed form, and is there."""

import re

import pytest

from ms_symtensor.ops.instead import INSTEAD, why_on_the_fly, why_undistributed
from ms_symtensor.ops.quirks import NO_QUIRKS
from ms_symtensor.ops.registry import rules, signature
from ms_symtensor.ops.signature import OpView
from ms_symtensor.tensor.graph import TensorType


@pytest.mark.parametrize("name", INSTEAD)
def test_what_takes_its_place_is_distributed(name):
    other, _ = INSTEAD[name]
    assert name in rules() and getattr(rules()[other], "quirks", NO_QUIRKS).instead is None


def test_what_is_written_is_there():
    mindspore = pytest.importorskip("mindspore")
    for _, written in INSTEAD.values():
        names = re.findall(r"(?<![.\w])(ops|nn|mint)\.([\w.]+)", written)
        assert names
        for module, path in names:
            found = getattr(mindspore, module)
            for part in path.split("."):
                found = getattr(found, part)


def test_a_linear_layer_of_mint_has_no_distributed_form():
    shapes = (8, 64), (128, 64), (8, 128)
    x, w, y = (TensorType(shape, "float32") for shape in shapes)
    assert not signature(OpView("Dense", "fc", (x, w), (y,), (), {})).is_distributed
    assert "nn.Dense for mint.nn.Linear" in why_undistributed("Dense")
    assert "write other operators" in why_undistributed("Frac")
    assert "of ops.Softmax" in why_on_the_fly("Softmax")
