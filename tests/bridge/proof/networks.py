"""Small networks for four devices, as factories: `file.py:name`. MindSpore reads their source."""

import mindspore
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Zero
from mindspore.nn.utils import no_init_parameters


def tensor(*shape):
    return Tensor(shape=shape, dtype=mindspore.float32, init=Zero())


class TwoLayers(nn.Cell):
    """sum(relu(x @ first^T) @ second), `second` through a Transpose of its own if `transposes`."""

    def __init__(self, transposes):
        super().__init__()
        self.first = Parameter(tensor(16, 32), name="first")
        self.second = Parameter(tensor(16, 16), name="second")
        self.up, self.down = ops.MatMul(transpose_b=True), ops.MatMul(transpose_b=not transposes)
        self.relu, self.sum, self.swap = ops.ReLU(), ops.ReduceSum(), ops.Transpose()
        self.transposes = transposes

    def construct(self, x):
        second = self.swap(self.second, (1, 0)) if self.transposes else self.second
        return self.sum(self.down(self.relu(self.up(x, self.first)), second), (0, 1))


def network(transposes=False):
    with no_init_parameters():
        return TwoLayers(transposes), (tensor(8, 32),)


def unsharded_transposed():
    return network(transposes=True)


def by_hand(transposes=False):
    """`first` is cut into four slices, `second` is on all four devices, which cut the batch."""
    cell, inputs = network(transposes)
    cell.up.shard(((1, 1), (4, 1)))
    cell.relu.shard(((1, 4),))
    cell.down.shard(((4, 1), (1, 1)))
    cell.sum.shard(((4, 1),))
    if transposes:
        cell.swap.shard(((1, 1),))
    return cell, inputs


def by_hand_transposed():
    return by_hand(transposes=True)


class TwoResults(TwoLayers):
    def construct(self, x):
        return self.up(x, self.first)


def no_loss():
    with no_init_parameters():
        return TwoResults(False), (tensor(8, 32),)


class NotOnCpu(TwoLayers):
    """With an operator that MindSpore's CPU lacks and that has no definition."""

    def __init__(self):
        super().__init__(False)
        self.nansum = ops.auto_generate.Nansum()

    def construct(self, x):
        return self.sum(self.nansum(self.up(x, self.first), (1,), True), (0, 1))


def not_on_cpu():
    with no_init_parameters():
        return NotOnCpu(), (tensor(8, 32),)


class Drops(TwoLayers):
    def __init__(self, p):
        super().__init__(False)
        self.dropout = nn.Dropout(p=p)

    def construct(self, x):
        return self.sum(self.dropout(self.up(x, self.first)), (0, 1))


def drops():
    with no_init_parameters():
        return Drops(0.1), (tensor(8, 32),)


def too_large():
    """Half a terabyte of activations."""
    cell, _ = network()
    return cell, (tensor(1 << 32, 32),)


class Squared(nn.Cell):
    """sum(3 * y * y) where y is the largest number of every row of x @ weight, or the row's sum."""

    def __init__(self, of_row):
        super().__init__()
        self.weight = Parameter(tensor(64, 64), name="weight")
        self.matmul, self.mul, self.scale, self.sum = ops.MatMul(), ops.Mul(), ops.Mul(), ops.ReduceSum()
        self.of_row = {"largest": ops.ReduceMax, "total": ops.ReduceSum}[of_row]()

    def construct(self, x):
        y = self.of_row(self.matmul(x, self.weight), 1)
        return self.sum(self.scale(self.mul(y, y), 3.0))


def squared_largest():
    with no_init_parameters():
        return Squared("largest"), (tensor(64, 64),)


def squared_total():
    with no_init_parameters():
        return Squared("total"), (tensor(64, 64),)


class Normed(nn.Cell):
    """A mean of squares behind a BatchNorm over the samples."""

    def __init__(self):
        super().__init__()
        self.product = nn.Dense(16, 16, has_bias=False)  # a bias has no gradient behind a BatchNorm, but for rounding
        self.norm, self.relu = nn.BatchNorm1d(16), nn.ReLU()
        self.head = nn.Dense(16, 8)

    def construct(self, x):
        return (self.head(self.relu(self.norm(self.product(x)))) ** 2).mean()


def normed():
    return Normed(), (tensor(16, 16),)
