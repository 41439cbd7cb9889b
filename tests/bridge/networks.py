"""Small networks that the bridge's tests capture and compile. MindSpore reads their source, so they live in a file."""

import mindspore as ms
from mindspore import Parameter, Tensor, lazy_inline, nn, ops
from mindspore.common.initializer import Zero, initializer

HIDDEN, INNER, TOKENS, LAYERS = 64, 256, 32, 3


def empty(*shape: int, dtype=ms.float16) -> Tensor:
    """A tensor with a shape and no data."""
    return Tensor(shape=shape, dtype=dtype, init=Zero())


class Block(nn.Cell):
    """x [tokens, hidden] -> x + down(relu(up(norm(x)))), Megatron-style on data_parallel x model_parallel devices."""

    @lazy_inline
    def __init__(self, dp: int, mp: int):
        super().__init__()
        self.up_weight = Parameter(initializer("normal", (INNER, HIDDEN), ms.float16), name="up_weight")
        self.down_weight = Parameter(initializer("normal", (HIDDEN, INNER), ms.float16), name="down_weight")
        self.gamma = Parameter(initializer("ones", (HIDDEN,), ms.float16), name="gamma")
        self.norm = ops.RmsNorm().shard(((dp, 1), (1,)))
        self.up = ops.MatMul(transpose_b=True).shard(((dp, 1), (mp, 1)))
        self.relu = ops.ReLU().shard(((dp, mp),))
        self.down = ops.MatMul(transpose_b=True).shard(((dp, mp), (1, mp)))
        self.add = ops.Add().shard(((dp, 1), (dp, 1)))

    def construct(self, x):
        y = self.norm(x, self.gamma)[0]
        return self.add(x, self.down(self.relu(self.up(y, self.up_weight)), self.down_weight))


class Net(nn.Cell):
    """tokens [TOKENS] -> mean [] over LAYERS blocks, on dp x mp devices."""

    def __init__(self, dp: int = 2, mp: int = 4):
        super().__init__()
        self.table = Parameter(initializer("normal", (128, HIDDEN), ms.float16), name="table")
        self.gather = ops.Gather().shard(((1, 1), (dp,)))
        self.layers = nn.CellList([Block(dp, mp) for _ in range(LAYERS)])
        self.cast = ops.Cast()
        self.mean = ops.ReduceMean().shard(((dp, 1),))

    def construct(self, tokens):
        x = self.gather(self.table, tokens, 0)
        for layer in self.layers:
            x = layer(x)
        return self.mean(self.cast(x, ms.float32))


class Mixed(nn.Cell):
    """Tuple outputs, a frozen parameter, operators without an owner, a primitive used twice, an optional argument."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.SequentialCell([nn.SequentialCell([nn.Dense(16, 16), nn.Dropout(p=0.5)]) for _ in range(2)])
        self.frozen = Parameter(initializer("ones", (16,), ms.float32), name="frozen", requires_grad=False)
        self.mul = ops.Mul()
        self.split = ops.Split(1, 2)
        self.concat = ops.Concat(1)
        self.topk = ops.TopK()

    def construct(self, x, scale=None):
        x = self.mul(self.mul(self.blocks(x), self.frozen), scale)
        left, right = self.split(x)
        x = self.concat((right, left)) + x * 2.0
        return self.topk(x, 4)[0].sum()


class Wrong(nn.Cell):
    """A MatMul whose shapes do not fit."""

    def __init__(self):
        super().__init__()
        self.matmul = ops.MatMul()

    def construct(self, x):
        return self.matmul(x, x)


class Branching(nn.Cell):
    """Control flow that depends on a tensor."""

    def construct(self, x):
        if x.sum() > 0:
            x = x + 1
        return x


class Undividable(nn.Cell):
    """A strategy that does not divide its input."""

    def __init__(self):
        super().__init__()
        self.relu = ops.ReLU().shard(((3, 1),))

    def construct(self, x):
        return self.relu(x)


class TwoReaders(nn.Cell):
    """x [64, 8] -> mean []: two operators read the first half of the columns, and a third one reads what `also` says."""

    def __init__(self, also: str):
        super().__init__()
        self.also = also
        self.weight = Parameter(initializer("ones", (64, 8), ms.float32), name="weight")
        self.w, self.split, self.sum = ops.Mul(), ops.Split(1, 2), ops.ReduceSum(keep_dims=True)
        self.div, self.cast, self.square = ops.RealDiv(), ops.Cast(), ops.Square()
        self.add, self.mean = ops.Add(), ops.ReduceMean()

    def construct(self, x):
        half, other = self.split(self.w(x, self.weight))
        y = self.div(half, self.sum(half, -1))
        if self.also == "other half":
            y = self.add(y, self.square(other))
        elif self.also == "cast":
            y = self.add(y, self.square(self.cast(half, ms.float16)))
        return self.mean(y)


class _Far(nn.Cell):
    """exp(-x)."""

    def __init__(self):
        super().__init__()
        self.far, self.further = ops.Neg(), ops.Exp()

    def construct(self, x):
        return self.further(self.far(x))


class ReshapeUsers(nn.Cell):
    """x [128, 64] -> sum(|y| + exp(-y)) [], y [8, 16, 8, 32] by a Reshape: one user near the result, one further from it."""

    def __init__(self, near_first: bool, nested: bool):
        super().__init__()
        self.near_first, self.nested = near_first, nested
        self.weight = Parameter(initializer("ones", (64, 256), ms.float32), name="weight")
        self.matmul, self.reshape = ops.MatMul(), ops.Reshape()
        self.near, self.far, self.further = ops.Abs(), ops.Neg(), ops.Exp()
        self.inner = _Far()
        self.add, self.sum = ops.Add(), ops.ReduceSum()

    def construct(self, x):
        y = self.reshape(self.matmul(x, self.weight), (8, 16, 8, 32))
        near = self.near(y)
        far = self.inner(y) if self.nested else self.further(self.far(y))
        return self.sum(self.add(near, far) if self.near_first else self.add(far, near))


class ReshapedTwice(nn.Cell):
    """x [128, 64] -> [], through y [128, 128] = x w, [4, 32, 128] and a Cast, and [128, 128] again; with `reads`, an operator
    reads what lies between, too.
    """

    def __init__(self, reads: bool):
        super().__init__()
        self.reads = reads
        self.weight = Parameter(initializer("ones", (64, 128), ms.bfloat16), name="weight")
        self.matmul, self.apart, self.back, self.cast = ops.MatMul(), ops.Reshape(), ops.Reshape(), ops.Cast()
        self.between, self.exp = ops.Neg(), ops.Exp()
        self.sum, self.sum_between, self.add = ops.ReduceSum(), ops.ReduceSum(), ops.Add()

    def construct(self, x):
        y = self.cast(self.apart(self.matmul(x, self.weight), (4, 32, 128)), ms.float32)
        loss = self.sum(self.exp(self.back(y, (128, 128))))
        return self.add(loss, self.sum_between(self.between(y))) if self.reads else loss


class ReshapedMask(nn.Cell):
    """x [128, 64] -> sum(x · !(x < 1)) [], the mask [128, 4, 16] where it is negated."""

    def __init__(self):
        super().__init__()
        self.less, self.apart, self.negate, self.back = ops.Less(), ops.Reshape(), ops.LogicalNot(), ops.Reshape()
        self.cast, self.mul, self.sum = ops.Cast(), ops.Mul(), ops.ReduceSum()

    def construct(self, x):
        mask = self.negate(self.apart(self.less(x, 1.0), (128, 4, 16)))
        return self.sum(self.mul(x, self.back(self.cast(mask, ms.float32), (128, 64))))
