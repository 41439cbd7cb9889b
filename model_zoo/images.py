"""Classifiers of images: ResNet-50 (arXiv:1512.03385, stride in the middle convolution) and Inception-v3 (arXiv:1512.00567, sizes
of its published code, without the auxiliary classifier). Everything is float32.
"""

from collections.abc import Sequence

from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import initializer

RESNET50 = ((3, 64), (4, 128), (6, 256), (3, 512))
"""Blocks and inner width of its four groups; a block is four times as wide outside."""

Size = int | tuple[int, int]


class Convolved(nn.Cell):
    """Convolution, BatchNorm and, if `activates`, ReLU: [batch, in, height, width] -> [batch, out, ...]."""

    def __init__(
        self, inside: int, outside: int, kernel: Size = 1, stride: int = 1, pad: Size = 0, activates: bool = True
    ):
        super().__init__()
        above, beside = (pad, pad) if isinstance(pad, int) else pad
        padding = (above, above, beside, beside)
        self.convolution = nn.Conv2d(inside, outside, kernel, stride, "pad", padding, has_bias=False)
        self.norm, self.activates, self.relu = nn.BatchNorm2d(outside), activates, ops.ReLU()

    def construct(self, x: Tensor) -> Tensor:
        x = self.norm(self.convolution(x))
        return self.relu(x) if self.activates else x


class Bottleneck(nn.Cell):
    """ResNet's block of three convolutions beside what it reads, or a projection of that."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.down, self.middle = Convolved(inside, width), Convolved(width, width, 3, stride, 1)
        self.up = Convolved(width, 4 * width, activates=False)
        self.projects = inside != 4 * width or stride > 1
        if self.projects:
            self.project = Convolved(inside, 4 * width, 1, stride, activates=False)
        self.add, self.relu = ops.Add(), ops.ReLU()

    def construct(self, x: Tensor) -> Tensor:
        beside = self.project(x) if self.projects else x
        return self.relu(self.add(self.up(self.middle(self.down(x))), beside))


class Branches(nn.Cell):
    """Channels of several branches side by side."""

    def __init__(self, branches: Sequence[nn.Cell]) -> None:
        super().__init__()
        self.branches, self.join = nn.CellList(branches), ops.Concat(1)

    def construct(self, x: Tensor) -> Tensor:
        found: tuple[Tensor, ...] = ()
        for branch in self.branches:
            found = (*found, branch(x))
        return self.join(found)


def _chain(*cells: nn.Cell) -> nn.Cell:
    return nn.SequentialCell(list(cells))


def _averaged(inside: int, outside: int) -> nn.Cell:
    return _chain(nn.AvgPool2d(3, 1, "same"), Convolved(inside, outside))


def _module_a(inside: int, pooled: int) -> nn.Cell:
    return Branches([
        Convolved(inside, 64), _chain(Convolved(inside, 48), Convolved(48, 64, 5, pad=2)),
        _chain(Convolved(inside, 64), Convolved(64, 96, 3, pad=1), Convolved(96, 96, 3, pad=1)), _averaged(inside, pooled),
    ])  # fmt: skip


def _module_b(inside: int) -> nn.Cell:
    return Branches([
        Convolved(inside, 384, 3, 2),
        _chain(Convolved(inside, 64), Convolved(64, 96, 3, pad=1), Convolved(96, 96, 3, 2)), nn.MaxPool2d(3, 2),
    ])  # fmt: skip


def _row(inside: int, outside: int, length: int = 7) -> nn.Cell:
    return Convolved(inside, outside, (1, length), pad=(0, length // 2))


def _column(inside: int, outside: int, length: int = 7) -> nn.Cell:
    return Convolved(inside, outside, (length, 1), pad=(length // 2, 0))


def _module_c(width: int) -> nn.Cell:
    return Branches([
        Convolved(768, 192), _chain(Convolved(768, width), _row(width, width), _column(width, 192)),
        _chain(Convolved(768, width), _column(width, width), _row(width, width), _column(width, width), _row(width, 192)),
        _averaged(768, 192),
    ])  # fmt: skip


def _module_d() -> nn.Cell:
    return Branches([
        _chain(Convolved(768, 192), Convolved(192, 320, 3, 2)),
        _chain(Convolved(768, 192), _row(192, 192), _column(192, 192), Convolved(192, 192, 3, 2)), nn.MaxPool2d(3, 2),
    ])  # fmt: skip


def _module_e(inside: int) -> nn.Cell:
    def split() -> nn.Cell:
        return Branches([_row(384, 384, 3), _column(384, 384, 3)])

    return Branches([
        Convolved(inside, 320), _chain(Convolved(inside, 384), split()),
        _chain(Convolved(inside, 448), Convolved(448, 384, 3, pad=1), split()), _averaged(inside, 192),
    ])  # fmt: skip


def resnet50() -> tuple[list[nn.Cell], int]:
    """Its cells up to the pooled features, and how many features there are."""
    cells: list[nn.Cell] = [Convolved(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, "same")]
    inside = 64
    for number, (blocks, width) in enumerate(RESNET50):
        for block in range(blocks):
            cells.append(Bottleneck(inside, width, 2 if block == 0 and number else 1))
            inside = 4 * width
    return cells, inside


def inception_v3() -> tuple[list[nn.Cell], int]:
    """Its cells up to the pooled features, and how many features there are."""
    stem: list[nn.Cell] = [
        Convolved(3, 32, 3, 2), Convolved(32, 32, 3), Convolved(32, 64, 3, pad=1), nn.MaxPool2d(3, 2), Convolved(64, 80),
        Convolved(80, 192, 3), nn.MaxPool2d(3, 2),
    ]  # fmt: skip
    modules = [
        _module_a(192, 32), _module_a(256, 64), _module_a(288, 64), _module_b(288), _module_c(128), _module_c(160),
        _module_c(160), _module_c(192), _module_d(), _module_e(1280), _module_e(2048),
    ]  # fmt: skip
    return [*stem, *modules], 2048


class Classifier(nn.Cell):
    """Mean cross entropy of images [batch, 3, size, size] and labels [batch]."""

    def __init__(self, cells: Sequence[nn.Cell], features: int, classes: int) -> None:
        super().__init__()
        self.features = nn.SequentialCell(list(cells))
        self.pool = ops.ReduceMean()
        self.weight = Parameter(initializer("normal", (classes, features)))
        self.bias = Parameter(initializer("zeros", (classes,)))
        self.matmul, self.add_bias = ops.MatMul(transpose_b=True), ops.Add()

    def construct(self, images: Tensor, labels: Tensor) -> Tensor:
        x = self.pool(self.features(images), (2, 3))
        return ops.cross_entropy(self.add_bias(self.matmul(x, self.weight), self.bias), labels)
