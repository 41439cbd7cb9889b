"""Networks that use a weight in ways in which its gradient may go unsummed. MindSpore reads their source."""

import mindspore as ms
from mindspore import Parameter, mint, nn, ops
from mindspore.common.initializer import initializer

ROWS, IN, OUT = 32, 128, 64


class Weights(nn.Cell):
    """x [ROWS, IN] -> scalar, with a weight [OUT, IN] and one that takes no part."""

    def __init__(self):
        super().__init__()
        self.unused = Parameter(initializer("normal", (8, 8), ms.float32), name="unused")
        self.w = Parameter(initializer("normal", (OUT, IN), ms.float32), name="w")
        self.b = Parameter(initializer("normal", (8, 8), ms.float32), name="b")
        self.plain, self.matmul = ops.MatMul(), ops.MatMul(transpose_b=True)
        self.transpose, self.cast, self.reshape = ops.Transpose(), ops.Cast(), ops.Reshape()
        self.relu, self.add, self.sum, self.gather = ops.ReLU(), ops.Add(), ops.ReduceSum(), ops.Gather()


class Direct(Weights):
    def construct(self, x):
        return self.sum(self.matmul(x, self.w))


class Transposed(Weights):
    def construct(self, x):
        return self.sum(self.plain(x, self.transpose(self.w, (1, 0))))


class Both(Weights):
    def construct(self, x):
        return self.sum(self.add(self.plain(x, self.transpose(self.w, (1, 0))), self.matmul(x, self.w)))


class ThroughAnOperator(Weights):
    def construct(self, x):
        return self.sum(self.plain(x, self.transpose(self.relu(self.w), (1, 0))))


class Twice(Weights):
    def construct(self, x):
        return self.sum(self.add(self.matmul(x, self.w), self.matmul(self.relu(x), self.w)))


class Reshaped(Weights):
    def construct(self, x):
        return self.sum(self.add(self.matmul(x, self.w), self.reshape(self.b, (OUT,))))


class Tied(Weights):
    def construct(self, x):
        rows = self.cast(self.gather(self.w, self.cast(self.sum(x, 1), ms.int32), 0), ms.float16)
        return self.sum(self.cast(self.matmul(rows, self.cast(self.w, ms.float16)), ms.float32))


class Experts(nn.Cell):
    """A product of every sample with the weights of all experts."""

    def __init__(self, kind):
        super().__init__()
        self.w = Parameter(initializer("zeros", (8, 64, 128), ms.float32), name="w")
        self.product = {"MatMulExt": ops.matmul, "BatchMatMul": ops.BatchMatMul()}[kind]

    def construct(self, x):
        return (self.product(ops.relu(x * 2.0), self.w) ** 2).mean()


class Rows(nn.Cell):
    """Products of all rows of a batch with matrices, without flags for transposed ones."""

    def __init__(self):
        super().__init__()
        self.up = Parameter(initializer("zeros", (64, 512), ms.float32), name="up")
        self.down = Parameter(initializer("zeros", (512, 64), ms.float32), name="down")

    def construct(self, x):
        return (ops.matmul(ops.relu(ops.matmul(x, self.up)), self.down) ** 2).mean()


class Projected(nn.Cell):
    """`mint.nn.Linear`, which is Dense, of an activation that nothing else reads."""

    def __init__(self):
        super().__init__()
        self.down = mint.nn.Linear(256, 8, bias=False)

    def construct(self, x):
        return mint.square(self.down(mint.cat((x, x, x, x), -1))).mean()


class Sliced(nn.Cell):
    """A slice of what a product makes, which its gradient reads."""

    def __init__(self):
        super().__init__()
        self.w = Parameter(initializer("zeros", (128, 256), ms.float32), name="w")
        self.matmul, self.cut, self.exp, self.sum = ops.MatMul(), ops.Slice(), ops.Exp(), ops.ReduceSum()

    def construct(self, x):
        return self.sum(self.exp(self.cut(self.matmul(x, self.w), (0, 0), (x.shape[0], 64))))


class Rated(nn.Cell):
    """Vectors looked up in a table whose rows lie on several devices."""

    def __init__(self, gather):
        super().__init__()
        self.table = Parameter(initializer("zeros", (64, 256), ms.float32), name="table")
        self.cast, self.gather = ops.Cast(), gather

    def construct(self, x):
        ids = self.cast(x, ms.int32)
        found = (
            mint.nn.functional.embedding(ids, self.table) if self.gather is None else self.gather(self.table, ids, 0)
        )
        return (found**2).mean()


class Functions(nn.Cell):
    """A chain of functions whose gradients several kernels compute, as people write them."""

    def __init__(self):
        super().__init__()
        self.w = Parameter(initializer("zeros", (8, 256), ms.float32), name="w")

    def construct(self, x):
        y = ops.matmul(x, self.w)
        y = ops.where(y > 0, y, y * 0.1)
        return ((y - y.mean(-1, keep_dims=True)) ** 2).mean()


class Multiplied(nn.Cell):
    """The product over a dim, whose gradient branches on whether there are zeros."""

    def __init__(self):
        super().__init__()
        self.w = Parameter(initializer("zeros", (8, 256), ms.float32), name="w")

    def construct(self, x):
        return mint.prod(ops.matmul(x, self.w), dim=1).mean()


class Spread(nn.Cell):
    """The mean over a dim of what is as large as that, and nothing else."""

    def __init__(self):
        super().__init__()
        self.w = Parameter(initializer("zeros", (8, 256), ms.float32), name="w")

    def construct(self, x):
        return ops.matmul(x, self.w).mean(1).mean()


class Shared(nn.Cell):
    """What is divided by its own sum, as a softmax in single operators is."""

    def __init__(self):
        super().__init__()
        self.divide = ops.RealDiv()
        self.w = Parameter(initializer("zeros", (8, 256), ms.float32), name="w")
        self.v = Parameter(initializer("zeros", (256, 8), ms.float32), name="v")

    def construct(self, x):
        y = ops.exp(ops.matmul(x, self.w))
        return ops.matmul(self.divide(y, y.sum(-1, keepdims=True)), self.v).mean()


class Clipped(nn.Cell):
    """Recomputed blocks whose result is clipped: MindSpore has one tensor of zeros for the gradients of all."""

    def __init__(self):
        super().__init__()
        self.layers = nn.CellList([ClippedBlock() for _ in range(4)])
        for layer in self.layers:
            layer.recompute()

    def construct(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.mean()


class ClippedBlock(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = Parameter(initializer("zeros", (8, 256), ms.float32), name="w")
        self.v = Parameter(initializer("zeros", (256, 8), ms.float32), name="v")

    def construct(self, x):
        y = ops.matmul(ops.exp(ops.matmul(x, self.w)), self.v)
        return x + ops.minimum(y, ms.Tensor(7.0, ms.float32))
