"""A network of one's own: four blocks of a perceptron, and a loss."""

import mindspore as ms
from mindspore import Tensor, nn, ops
from mindspore.common.initializer import Zero

WIDTH, BATCH = 1024, 64


class Block(nn.Cell):
    """x + down(gelu(up(x)))."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Dense(WIDTH, 4 * WIDTH, has_bias=False)
        self.down = nn.Dense(4 * WIDTH, WIDTH, has_bias=False)
        self.gelu = ops.GeLU()
        self.add = ops.Add()

    def construct(self, x: Tensor) -> Tensor:
        return self.add(x, self.down(self.gelu(self.up(x))))


class Net(nn.Cell):
    """The mean square of what the blocks make of x, less y."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.CellList([Block() for _ in range(4)])
        self.sub, self.square, self.mean = ops.Sub(), ops.Square(), ops.ReduceMean()

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.mean(self.square(self.sub(x, y)))


def factory() -> tuple[nn.Cell, tuple[Tensor, Tensor]]:
    """The network and its inputs: global shapes, no values."""
    inputs = tuple(Tensor(shape=(BATCH, WIDTH), dtype=ms.float32, init=Zero()) for _ in range(2))
    return Net(), inputs
