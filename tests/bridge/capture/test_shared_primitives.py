"""Primitives of MindSpore's own, which all networks of the process share."""

import mindspore as ms
from mindspore import Parameter, nn, ops

from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.bridge.judge.audit import audit
from tests.bridge.networks import empty


class Masked(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = Parameter(ops.ones((8, 8), ms.float32), name="weight")

    def construct(self, x):
        return ops.masked_fill(x * self.weight, x > 0, 1.0).mean()


def test_a_partitioned_compile_leaves_nothing_in_later_graphs():
    x = empty(8, 8, dtype=ms.float32)
    before = capture(Masked(), x)
    assert audit(Masked(), x, device_num=4).verdict.accepted
    assert capture(Masked(), x).hash == before.hash
