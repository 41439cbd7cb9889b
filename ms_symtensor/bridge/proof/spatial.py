"""Convolutions and linear maps of images, from MindSpore's plain operators. Reached through `substitution` only."""

import mindspore
from mindspore import Tensor, nn, ops

from ms_symtensor.bridge.proof.definitions import Gradient


class Convolution(nn.Cell):
    """x [n, channels, *size] and weight to their convolution over one to three dims, with a bias or without.

    Sizes are one number for each dim. Transposed: the gradient of a convolution by its input.
    """

    def __init__(self, stride, padding, dilation, groups, transposed, output_padding):
        super().__init__(auto_prefix=False)
        self.groups, self.transposed, self.is_flat = groups, transposed, len(stride) == 1
        if self.is_flat:
            stride, padding, dilation, output_padding = (
                (1, *stride),
                (0, *padding),
                (1, *dilation),
                (0, *output_padding),
            )
        self.stride, self.dilation, self.output_padding = stride, dilation, output_padding
        self.pads = tuple(pad for pad in padding for _ in range(2))

    def construct(self, x, weight, bias=None):
        if self.is_flat:
            x, weight = ops.expand_dims(x, 2), ops.expand_dims(weight, 2)
        found = self.transpose(x, weight) if self.transposed else self.convolve(x, weight)
        found = ops.squeeze(found, 2) if self.is_flat else found
        return found if bias is None else found + ops.reshape(bias, (1, -1) + (1,) * (found.ndim - 2))

    def convolve(self, x, weight):
        kind = ops.Conv3D if x.ndim == 5 else ops.Conv2D
        kernel = kind(weight.shape[0], weight.shape[2:], 1, "pad", self.pads, self.stride, self.dilation, self.groups)
        return kernel(x, weight)

    def transpose(self, x, weight):
        size = [x.shape[0], weight.shape[1] * self.groups]
        for i in range(2):
            reach = self.dilation[i] * (weight.shape[2 + i] - 1) + 1 + self.output_padding[i]
            size.append((x.shape[2 + i] - 1) * self.stride[i] - 2 * self.pads[2 * i] + reach)
        channels, kernel = weight.shape[0], weight.shape[2:]
        kind = ops.Conv2DTranspose(
            channels, kernel, "pad", self.pads, self.pads, 1, self.stride, self.dilation, self.groups
        )
        return kind(x, weight, tuple(size))


class ConvolutionGradient(nn.Cell):
    """By x, weight and bias, from dy, x and weight."""

    def __init__(self, convolution):
        super().__init__(auto_prefix=False)
        self.gradient, self.sum = Gradient(convolution, 2), ops.ReduceSum(False)

    def construct(self, dy, x, weight):
        by_x, by_weight = self.gradient(x, weight, dy)
        return by_x, by_weight, self.sum(dy, (0, *range(2, dy.ndim)))


class LinearMap(nn.Cell):
    """`rows` [a, h] times x [..., h, w] times the transpose of `columns` [b, w]."""

    def __init__(self, rows, columns):
        super().__init__(auto_prefix=False)
        self.rows, self.columns = Tensor(rows, mindspore.float32), Tensor(columns, mindspore.float32)

    def construct(self, x):
        wide = ops.matmul(x, ops.transpose(self.columns, (1, 0)))
        return ops.matmul(self.rows, wide)


class MaxPool(nn.Cell):
    """The largest elements of windows of x [n, channels, h, w]."""

    def __init__(self, size, stride, padding):
        super().__init__(auto_prefix=False)
        above, beside = padding
        self.pad = (beside, beside, above, above)
        self.pool = ops.MaxPool(size, stride, "valid")

    def construct(self, x):
        return self.pool(ops.pad(x, self.pad, "constant", -3.0e38))


class MaxPoolWithPlaces(nn.Cell):
    """As `pool`, and zeros where MindSpore tells places, which its gradient alone reads."""

    def __init__(self, pool, shape, dtype):
        super().__init__(auto_prefix=False)
        self.pool, self.shape, self.dtype = pool, shape, getattr(mindspore, dtype)

    def construct(self, x):
        return self.pool(x), ops.zeros(self.shape, self.dtype)


class MaxPoolGradient(nn.Cell):
    """By x, from x and dy."""

    def __init__(self, pool):
        super().__init__(auto_prefix=False)
        self.gradient = Gradient(pool, 1)

    def construct(self, x, dy):
        return self.gradient(x, dy)[0]
