"""Parts of collectives, from which a sum over ranks makes the whole. Imports mindspore at once: see `definitions`."""

import mindspore
from mindspore import nn, ops


class Slice(nn.Cell):
    """Slice number `position` of `number` equal ones along dim `dim`."""

    def __init__(self, number, dim=0):
        super().__init__()
        self.number, self.dim = number, dim

    def construct(self, x, position):
        shape = x.shape
        parts = (*shape[: self.dim], self.number, shape[self.dim] // self.number, *shape[self.dim + 1 :])
        return ops.gather(ops.reshape(x, parts), position, self.dim)


class Stack(nn.Cell):
    """x as entry `position` of `number` of a new dim 0, among zeros."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def construct(self, x, position):
        own = ops.reshape(ops.equal(ops.arange(0, self.number), position), (self.number,) + (1,) * x.ndim)
        return ops.select(ops.broadcast_to(own, (self.number, *x.shape)), ops.expand_dims(x, 0), ops.zeros_like(x))


class Place(nn.Cell):
    """x as slice number `position` of `number` along dim 0, among zeros."""

    def __init__(self, number):
        super().__init__()
        self.number, self.stack = number, Stack(number)

    def construct(self, x, position):
        return ops.reshape(self.stack(x, position), (self.number * x.shape[0], *x.shape[1:]))


class Reduce(nn.Cell):
    """The maximum, minimum or product ("max", "min", "prod") along dim 0."""

    def __init__(self, kind):
        super().__init__()
        self.reduce = {"max": ops.ReduceMax(), "min": ops.ReduceMin(), "prod": ops.ReduceProd()}[kind]

    def construct(self, stacked):
        return self.reduce(stacked, 0)


class AllToAllSlices(nn.Cell):
    """From the tensors of `number` ranks, stacked along dim 0, what rank `position` receives in an AlltoAll."""

    def __init__(self, number, split_dim, concat_dim):
        super().__init__()
        self.number, self.concat_dim, self.slice = number, concat_dim, Slice(number, split_dim)

    def construct(self, gathered, position):
        return ops.concat(
            [self.slice(tensor, position) for tensor in ops.chunk(gathered, self.number, 0)], self.concat_dim
        )


class ToFloat(nn.Cell):
    """x as float32: MindSpore's CPU sums nothing else. Integers below 2^24, positions and ranks of tokens, stay what they are."""

    def construct(self, x):
        return ops.cast(x, mindspore.float32)


class FromFloat(nn.Cell):
    """x, float32, as what it was."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype = getattr(mindspore, dtype)

    def construct(self, x):
        return ops.cast(x, self.dtype)


class Zeros(nn.Cell):
    """Zeros of `shape`, once `after` is there."""

    def __init__(self, shape, dtype):
        super().__init__()
        self.zeros = ops.zeros(shape, getattr(mindspore, dtype))

    def construct(self, after):
        return ops.depend(self.zeros, after)
