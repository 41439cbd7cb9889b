"""Networks with strategies written by hand, for audit, and one without, for plan: factories as `file.py:name`."""

import mindspore
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Zero
from mindspore.nn.utils import no_init_parameters


def _tensor(*shape):
    return Tensor(shape=shape, dtype=mindspore.float32, init=Zero())


class TwoLayers(nn.Cell):
    """sum(relu(x @ first^T) @ second^T), with `transpose` the second weight through a Transpose of its own."""

    def __init__(self, transpose=False):
        super().__init__()
        self.first = Parameter(_tensor(256, 1024), name="first")
        self.second = Parameter(_tensor(256, 256), name="second")
        self.up, self.down = ops.MatMul(transpose_b=True), ops.MatMul(transpose_b=not transpose)
        self.relu, self.sum, self.swap = ops.ReLU(), ops.ReduceSum(), ops.Transpose()
        self.transpose = transpose

    def construct(self, x):
        second = self.swap(self.second, (1, 0)) if self.transpose else self.second
        return self.sum(self.down(self.relu(self.up(x, self.first)), second), (0, 1))


def _network(transpose=False, strategies=()):
    with no_init_parameters():
        network = TwoLayers(transpose)
    for name, strategy in strategies:
        getattr(network, name).shard(strategy)
    return network, (_tensor(64, 1024),)


_PRODUCTS = (("up", ((2, 1), (4, 1))), ("relu", ((2, 4),)), ("down", ((8, 1), (1, 1))))


def plain():
    return _network(strategies=(*_PRODUCTS, ("sum", ((8, 1),))))


def transposed_weight():
    return _network(True, (*_PRODUCTS, ("sum", ((8, 1),)), ("swap", ((1, 1),))))


def cut_in_two_ways():
    """The product sums over a dim that its inputs cut differently."""
    return _network(strategies=(("up", ((2, 2), (2, 1))), *_PRODUCTS[1:]))


def unsharded_sum():
    return _network(strategies=_PRODUCTS)


def unsharded():
    return _network()


def recomputed():
    network, inputs = _network()
    network.recompute()
    return network, inputs
