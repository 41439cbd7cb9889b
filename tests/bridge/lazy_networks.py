"""Networks in which cells inside are of `@lazy_inline`, and not the network: their blocks, or all but the loss."""

import numpy as np
from mindspore import Tensor, lazy_inline, nn, ops

WIDTH = 32


class Block(nn.Cell):
    """x + dense(norm(x)); copies of it are compiled as one."""

    @lazy_inline
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm((WIDTH,))
        self.dense = nn.Dense(WIDTH, WIDTH, has_bias=False)

    def construct(self, x):
        return x + self.dense(self.norm(x))


class OfLazyBlocks(nn.Cell):
    """Four blocks between two products, and the loss."""

    def __init__(self):
        super().__init__()
        self.first = nn.Dense(WIDTH, WIDTH, has_bias=False)
        self.blocks = nn.CellList([Block() for _ in range(4)])
        self.last = nn.Dense(WIDTH, WIDTH, has_bias=False)

    def construct(self, x, y):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return ops.mean(ops.square(self.last(x) - y))


class Backbone(nn.Cell):
    """The same without a loss; of `@lazy_inline` as a whole, too."""

    @lazy_inline
    def __init__(self):
        super().__init__()
        self.first = nn.Dense(WIDTH, WIDTH, has_bias=False)
        self.blocks = nn.CellList([Block() for _ in range(4)])

    def construct(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x


class WithLoss(nn.Cell):
    """A backbone of `@lazy_inline` and its loss."""

    def __init__(self):
        super().__init__()
        self.backbone = Backbone()

    def construct(self, x, y):
        return ops.mean(ops.square(self.backbone(x) - y))


def _inputs():
    return (Tensor(np.ones((16, 32, WIDTH), np.float32)), Tensor(np.ones((16, 32, WIDTH), np.float32)))


def of_lazy_blocks():
    return OfLazyBlocks(), _inputs()


def with_loss():
    return WithLoss(), _inputs()


def of_frozen_and_lazy_blocks():
    """Of the first block nothing trains, of the last one no norm."""
    network = OfLazyBlocks()
    for parameter in (*network.blocks[0].get_parameters(), *network.blocks[3].norm.get_parameters()):
        parameter.requires_grad = False
    return network, _inputs()
