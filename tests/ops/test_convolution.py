"""Convolutions, pooling and resizing."""

import math

import pytest

from ms_symtensor.ops.placement import OpStrategy, place
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import Unit
from tests.ops.views import make

IMAGE = "float16[16, 8, 32, 32]"


@pytest.mark.parametrize(
    ("op", "cuttable"),
    [
        (make("Conv2D", f"{IMAGE}, float16[64, 8, 3, 3] -> float16[16, 64, 32, 32]", group=1), ("n", "i", "o")),
        (make("Conv2D", f"{IMAGE}, float16[8, 1, 3, 3] -> {IMAGE}", group=8), ("n",)),
        (
            make("Conv2DTranspose", f"{IMAGE}, float16[8, 4, 2, 2] -> float16[16, 4, 64, 64]", (16, 4, 64, 64), group=1),
            ("n", "o", "i"),
        ),
        (
            make("Conv2DTranspose", f"{IMAGE}, float16[8, 4, 2, 2] -> float16[16, 8, 64, 64]", (16, 8, 64, 64), group=2),
            ("n",),
        ),
        (make("MaxPool", f"{IMAGE} -> float16[16, 8, 16, 16]"), ("n", "c")),
        (make("ResizeBilinearV2", f"{IMAGE} -> float16[16, 8, 64, 64]", (64, 64), False, False), ("n", "c")),
        (make("GroupNorm", f"{IMAGE}, float16[8], float16[8] -> {IMAGE}, float16[16, 4], float16[16, 4]", 4, 1e-5), ("n",)),
    ],
    ids=lambda value: value.type if hasattr(value, "type") else "",
)  # fmt: skip
def test_samples_and_channels_may_be_cut(op, cuttable):
    assert signature(op).cuttable == cuttable


def test_the_work_of_a_convolution_is_over_its_output_its_input_channels_and_its_kernel():
    op = make("Conv2D", f"{IMAGE}, float16[64, 8, 3, 3] -> float16[16, 64, 16, 16]", group=1)
    sig = signature(op)
    assert sig.unit is Unit.CUBE
    assert math.prod(sig.sizes.values()) == 16 * 64 * 16 * 16 * 8 * 3 * 3


def test_cut_input_channels_leave_partial_sums():
    op = make("Conv2D", f"{IMAGE}, float16[64, 8, 3, 3] -> float16[16, 64, 16, 16]", group=1)
    placed = place(op, signature(op), OpStrategy(((2, 2, 1, 1), (2, 2, 1, 1))), 8)
    assert placed.partial is not None and placed.outputs[0].slice_shape == (8, 32, 16, 16)


def test_cut_input_channels_of_a_transposed_convolution_leave_partial_sums():
    op = make("Conv2DTranspose", f"{IMAGE}, float16[8, 4, 2, 2] -> float16[16, 4, 64, 64]", (16, 4, 64, 64), group=1)
    placed = place(op, signature(op), OpStrategy(((2, 4, 1, 1), (4, 2, 1, 1))), 16)
    assert placed.partial is not None and placed.outputs[0].slice_shape == (8, 2, 64, 64)
