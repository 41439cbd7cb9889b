"""Which moves of one tensor MindSpore makes one after it has partitioned: predicted and compiled alike."""

import mindspore
import pytest
from mindspore import nn, ops

from benchmarks.exactness import line, run
from benchmarks.exactness_cases import Case
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import Settings, StagePlan
from tests.bridge.networks import empty


class ReshapeBeside(nn.Cell):
    """Two operators read the rows of a ReLU by rows and columns, one of them behind a Reshape, or not."""

    def __init__(self, reshapes):
        super().__init__()
        self.reshapes, self.relu, self.reshape = reshapes, ops.ReLU(), ops.Reshape()
        self.abs, self.exp, self.one, self.two, self.sum = (
            ops.Abs(),
            ops.Exp(),
            ops.ReduceSum(),
            ops.ReduceSum(),
            ops.Add(),
        )
        self.matmul = ops.MatMul(transpose_b=True)
        self.weight = mindspore.Parameter(empty(8, 8, dtype=mindspore.float32), name="weight")

    def construct(self, x):
        x = self.relu(self.matmul(x, self.weight))
        y = self.abs(self.reshape(x, (2, 32, 8)) if self.reshapes else x)
        return self.sum(self.one(y), self.two(self.exp(x)))


@pytest.mark.parametrize("reshapes", [False, True])
def test_what_a_reshape_moves_is_moved_by_itself(reshapes: bool) -> None:
    net, x = ReshapeBeside(reshapes), empty(64, 8, dtype=mindspore.float32)
    graph = capture(net, x)
    deep = ((2, 1, 2),) if reshapes else ((2, 2),)
    cuts = {"matmul": ((4, 1), (1, 1)), "relu": ((4, 1),), "abs": deep, "one": deep, "exp": ((2, 2),), "two": ((2, 2),)}
    strategies = {op.name: OpStrategy(cuts[op.primitive]) for op in graph.ops if op.primitive in cuts}
    plan = StagePlan(strategies, Settings(4, enable_alltoall=True))
    result = run(net, (x,), graph, Case("a Reshape beside", "random", 0, plan, rank=0))
    assert result["accepted"] and not result["differences"], line(result)
