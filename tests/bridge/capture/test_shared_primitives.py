"""Primitives of MindSpore's own, which all networks of the process share."""

import mindspore as ms
from mindspore import Parameter, nn, ops

from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.bridge.judge.audit import audit
from tests.bridge.networks import empty

RELU = ops.ReLU()


class Layer(nn.Cell):
    """A product and an operator whose primitive all layers share."""

    def __init__(self):
        super().__init__()
        self.weight, self.matmul, self.relu = (
            Parameter(empty(8, 8, dtype=ms.float32), name="weight"),
            ops.MatMul(),
            RELU,
        )

    def construct(self, x):
        return self.relu(self.matmul(x, self.weight))


class Layers(nn.Cell):
    def __init__(self):
        super().__init__()
        self.layers, self.sum = nn.CellList([Layer(), Layer(), Layer()]), ops.ReduceSum()

    def construct(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.sum(x)


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


def test_an_operator_of_a_shared_primitive_is_in_the_block_that_calls_it():
    graph = capture(Layers(), empty(8, 8, dtype=ms.float32))
    assert [op.block for op in graph.ops if op.type == "ReLU"] == ["layers.0", "layers.1", "layers.2"]
