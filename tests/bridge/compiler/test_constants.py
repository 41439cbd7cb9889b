"""Slices of constants inside MindSpore's compiler."""

import mindspore as ms
import numpy as np
from mindspore.ops.operations.comm_ops import _GetTensorSlice

from ms_symtensor.bridge.compiler.constants import shared_slices
from ms_symtensor.bridge.compiler.host import ascend_compiler

SHAPE = (4, 6)


def first_half(values):
    """What MindSpore makes for rank 0 of a constant whose dim 0 is cut in two."""
    constant = ms.Tensor(np.full(SHAPE, values, np.float32))
    return _GetTensorSlice().infer_value(constant, (2,), (0, -1), (2, 6), SHAPE)


def test_equal_slices_are_one_tensor():
    with ascend_compiler(2), shared_slices():
        one, same, other = first_half(1), first_half(1), first_half(2)
    assert one is same
    assert one is not other
    assert one.shape == (2, 6) and (one.asnumpy() == 1).all()


def test_mindspore_is_left_as_it_was():
    before = _GetTensorSlice.infer_value
    with shared_slices():
        assert _GetTensorSlice.infer_value is not before
    assert _GetTensorSlice.infer_value is before
