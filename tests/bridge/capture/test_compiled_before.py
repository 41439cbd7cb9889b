"""What MindSpore's parallel compiler leaves on primitives, of the network and of its own functions, is no part of a graph."""

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from planned import SENS

from ms_symtensor.bridge.apply.training import training_cell
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.bridge.compiler.compile import compile_rank
from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig


class Classifier(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = ms.Parameter(np.ones((16, 8), np.float32), name="weight")
        self.matmul = ops.MatMul(transpose_b=True)
        self.loss = nn.CrossEntropyLoss()

    def construct(self, x, labels):
        return self.loss(self.matmul(x, self.weight), labels)


def test_a_network_that_was_compiled_has_the_graph_that_it_had():
    cell, inputs = Classifier(), (ms.Tensor(np.ones((4, 8), np.float32)), ms.Tensor(np.zeros(4, np.int32)))
    before = capture(cell, *inputs)
    cell.matmul.shard(((2, 1), (1, 1)))
    compile_rank(training_cell(cell), *inputs, SENS, device_num=2, parallel=ParallelConfig())
    assert capture(cell, *inputs) == before
    assert capture(Classifier(), *inputs) == before
