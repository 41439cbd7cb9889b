"""Training cells as users write them, in a file because MindSpore reads their source."""

import mindspore as ms
from mindspore import Parameter, nn, ops
from mindspore.common.initializer import initializer


class TransposedWeight(nn.Cell):
    """x [16, 16] -> sum of x @ transpose(weight)."""

    def __init__(self):
        super().__init__()
        self.weight = Parameter(initializer("normal", (32, 16), ms.float32), name="weight")
        self.transpose, self.matmul, self.sum = ops.Transpose(), ops.MatMul(), ops.ReduceSum()

    def construct(self, x):
        return self.sum(self.matmul(x, self.transpose(self.weight, (1, 0))))


class Chained(nn.Cell):
    """A cell around a training cell."""

    def __init__(self, step):
        super().__init__(auto_prefix=False)
        self.step = step

    def construct(self, *inputs):
        return self.step(*inputs)


class Several(nn.Cell):
    """A training cell whose network has a name of its own."""

    def __init__(self, model):
        super().__init__(auto_prefix=False)
        self.model = model
        self.optimizer = nn.SGD(model.trainable_params())
        self.gradient = ops.GradOperation(get_by_list=True)

    def construct(self, *inputs):
        return self.optimizer(self.gradient(self.model, self.optimizer.parameters)(*inputs))


class TwoNetworks(nn.Cell):
    """A training cell with two networks."""

    def __init__(self, first, second):
        super().__init__(auto_prefix=False)
        self.first, self.second = first, second
        self.gradient = ops.GradOperation(get_by_list=True)

    def construct(self, x):
        return self.gradient(self.first)(x), self.gradient(self.second)(x)
