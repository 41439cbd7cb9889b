"""Networks with parts that the user wrote: Morphs with collectives, StopGradient, a primitive of one's own."""

import mindspore as ms
from mindspore import Parameter, lazy_inline, nn, ops
from mindspore.common.initializer import initializer
from mindspore.ops import Morph, PrimitiveWithInfer, prim_attr_register
from mindspore.ops import functional as F
from mindspore.ops.auto_generate import GroupedMatmul, OneHotExt, TopkExt

try:
    from mindspore.parallel import Layout
except ImportError:
    from mindspore import Layout

GLOBAL_STOP = ops.StopGradient()
ON_2_2_2 = Layout((2, 2, 2), ("dp", "cp", "tp"))


def zeros(*shape):
    return initializer("zeros", shape, ms.float32)


def infer_dtype(*args):
    return args[0]


def infer_same_shape(*args):
    return args[0]


def infer_shape(*args):
    return [*args[0][:-1], args[1][0]]


class ColumnLinear(nn.Cell):
    """y = x w^T, w cut along its rows."""

    def __init__(self, layout, width, rows):
        super().__init__()
        self.width = width
        self.weight = Parameter(zeros(rows, width), name="weight")
        self.matmul, self.reshape, self.cast = ops.MatMul(transpose_b=True), ops.Reshape(), ops.Cast()
        self.morph = Morph(self.on_slices, infer_shape, infer_dtype).add_prim_attr("self_define_shard", True)
        self.morph.shard((layout("cp", "dp", "None"), layout("tp", "None")), (layout("cp", "dp", "tp"),))

    def construct(self, x):
        return self.morph(x, self.cast(self.weight, ms.float16))

    def on_slices(self, x, weight):
        shape = (*x.shape[:-1], weight.shape[0])
        return self.reshape(self.matmul(self.reshape(x, (-1, self.width)), weight), shape)


class RowLinear(nn.Cell):
    """y = x w^T, w cut along its columns, partial results reduced over `group`, or scattered along the sequence."""

    def __init__(self, layout, width, rows, tp, group, scatters):
        super().__init__()
        self.width, self.tp, self.scatters, self.group = width // tp, tp, scatters, group
        self.weight = Parameter(zeros(rows, width), name="weight")
        self.matmul, self.reshape, self.cast = ops.MatMul(transpose_b=True), ops.Reshape(), ops.Cast()
        self.reduce_scatter = ops.ReduceScatter(group=group)
        self.morph = Morph(self.on_slices, infer_shape, infer_dtype).add_prim_attr("self_define_shard", True)
        out = layout(("cp", "tp"), "dp", "None") if scatters else layout("cp", "dp", "None")
        self.morph.shard((layout("cp", "dp", "tp"), layout("None", "tp")), (out,))

    def construct(self, x):
        return self.morph(x, self.cast(self.weight, ms.float16))

    def on_slices(self, x, weight):
        shape = (*x.shape[:-1], weight.shape[0])
        x = self.matmul(self.reshape(x, (-1, self.width)), weight)
        if self.scatters:
            shape = (shape[0] // self.tp, *shape[1:])
            x = self.reduce_scatter(x)
        else:
            x = ops.AllReduce(group=self.group)(x)
        return self.reshape(x, shape)


class FeedForward(nn.Cell):
    """The sum of x + row(relu(column(norm(x)))) for x [sequence, batch, 64]."""

    def __init__(self, dp, cp, tp, group, scatters):
        super().__init__()
        layout = Layout((dp, cp, tp), ("dp", "cp", "tp"))
        rows = cp * tp if scatters else cp
        self.gamma = Parameter(initializer("ones", (64,), ms.float32), name="gamma")
        self.cast = ops.Cast()
        self.norm = ops.RmsNorm().shard(((cp, dp, 1), (1,)))
        self.column = ColumnLinear(layout, 64, 256)
        self.relu = ops.ReLU().shard(((cp, dp, tp),))
        self.row = RowLinear(layout, 256, 64, tp, group, scatters)
        self.add = ops.Add().shard(((rows, dp, 1), (rows, dp, 1)))
        self.sum = ops.ReduceSum().shard(((rows, dp, 1),))

    def construct(self, x):
        y, _ = self.norm(x, self.cast(self.gamma, ms.float16))
        y = self.row(self.relu(self.column(y)))
        return self.cast(self.sum(self.add(x, y)), ms.float32)


class Exchange(nn.Cell):
    """sum(morph(x w, v)): rows are exchanged for columns inside, by AlltoAll, or by AlltoAllV with sizes that x tells."""

    def __init__(self, group, is_static):
        super().__init__()
        self.is_static = is_static
        self.w, self.v = Parameter(zeros(64, 64), name="w"), Parameter(zeros(64, 64), name="v")
        self.product = ops.MatMul(transpose_b=True).shard(((2, 1), (2, 1)))
        self.matmul, self.cast, self.count = ops.MatMul(transpose_b=True), ops.Cast(), ops.ReduceSum()
        self.exchange = ops.AlltoAll(2, 0, 1, group=group)
        self.exchange_some = ops.AlltoAllV(group=group)
        self.morph = Morph(self.on_slices, infer_shape, infer_dtype).add_prim_attr("self_define_shard", True)
        rows = ("dp", "cp", "tp")
        self.morph.shard((ON_2_2_2(rows[:2], "tp"), ON_2_2_2("None", "None")), (ON_2_2_2(rows, "None"),))
        self.sum = ops.ReduceSum().shard(((2, 1),))

    def construct(self, x):
        return self.sum(self.morph(self.product(x, self.w), self.v))

    def on_slices(self, x, weight):
        if self.is_static:
            return self.matmul(self.exchange(x), weight)
        sizes = self.cast(self.count(x, 0), ms.int64)[:2]
        y = ops.reshape(self.exchange_some(ops.reshape(x, (-1,)), sizes, sizes), (4, 64))
        return self.matmul(y, weight)


class Routed(nn.Cell):
    """Experts as MindFormers writes them, for x [8, 16, 64] on 8 devices: products of groups in a Morph that is handed None, and
    Layouts for every argument, numbers and None too.
    """

    def __init__(self):
        super().__init__()
        layout = Layout((8,), ("dp",))
        rows, number = layout("dp", "None", "None"), layout()
        self.weight = Parameter(zeros(4, 64, 64), name="weight")
        self.topk = TopkExt().add_prim_attr("self_define_shard", True)
        self.topk.shard((rows, number, number, number, number), (rows, rows))
        self.reshape, self.cast, self.add = ops.Reshape(), ops.Cast(), ops.Add()
        self.one_hot = OneHotExt().add_prim_attr("self_define_shard", True)
        self.one_hot.shard((layout("dp", "None"), number, number), (rows,))
        self.on, self.off = ms.Tensor(1.0, ms.float32), ms.Tensor(0.0, ms.float32)
        self.morph = Morph(self.on_slices, infer_same_shape, infer_dtype).add_prim_attr("self_define_shard", True)
        self.morph.shard((rows, layout("None", "None", "None"), layout("None"), layout("None")), (rows,))
        self.sum, self.sum_mask = ops.ReduceSum().shard(((8, 1, 1),)), ops.ReduceSum().shard(((8, 1, 1),))

    def construct(self, x, groups):
        _, chosen = self.topk(x, 2, -1, True, True)
        mask = self.one_hot(self.reshape(chosen, (8, 32)), 64, self.on, self.off)
        return self.add(self.sum(self.morph(x, self.weight, groups, None)), self.sum_mask(mask))

    def on_slices(self, x, weight, groups, _):
        rows = self.reshape(x, (-1, 64))
        rows = GroupedMatmul(split_item=3, group_type=0)([rows], [weight], None, None, None, None, None, groups)[0]
        return self.reshape(rows, x.shape)


class ReadTwice(nn.Cell):
    """x [64, 64] -> exp(x w) w, compiled once for all its calls."""

    @lazy_inline
    def __init__(self):
        super().__init__()
        self.weight = Parameter(zeros(64, 64), name="weight")
        self.first, self.second = (ops.MatMul(transpose_b=True).shard(((8, 1), (1, 1))) for _ in range(2))
        self.exp = ops.Exp().shard(((8, 1),))

    def construct(self, x):
        return self.second(self.exp(self.first(x, self.weight)), self.weight)


class Chain(nn.Cell):
    """The sum of two such blocks in a row."""

    def __init__(self):
        super().__init__()
        self.blocks, self.sum = nn.CellList([ReadTwice(), ReadTwice()]), ops.ReduceSum().shard(((8, 1),))

    def construct(self, x):
        for block in self.blocks:
            x = block(x)
        return self.sum(x)


class Outside(nn.Cell):
    def __init__(self, group):
        super().__init__()
        self.w = Parameter(zeros(64, 64), name="w")
        self.matmul = ops.MatMul().shard(((2, 1), (1, 4)))
        self.reduce, self.sum = ops.AllReduce(group=group), ops.ReduceSum().shard(((2, 4),))

    def construct(self, x):
        return self.sum(self.reduce(self.matmul(x, self.w)))


class LaidOut(nn.Cell):
    """Two products and a sum whose strategies are Layout objects, the second product's result scattered."""

    def __init__(self, rows=("dp", "cp")):
        super().__init__()
        on = ON_2_2_2
        self.w, self.v = Parameter(zeros(64, 64), name="w"), Parameter(zeros(64, 64), name="v")
        self.first = ops.MatMul(transpose_b=True).shard((on(rows, "None"), on("tp", "None")))
        self.relu = ops.ReLU().shard((on(rows, "tp"),))
        self.second = ops.MatMul(transpose_b=True)
        self.second.shard((on(rows, "tp"), on("None", "tp")), (on((*rows, "tp"), "None"),))
        self.sum = ops.ReduceSum().shard(((2, 1),))

    def construct(self, x):
        return self.sum(self.second(self.relu(self.first(x, self.w)), self.v))


class Stopped(nn.Cell):
    """sum(stop(x w) + (x w) v), with StopGradient spelled in several ways."""

    def __init__(self):
        super().__init__()
        self.w, self.v = Parameter(zeros(64, 64), name="w"), Parameter(zeros(64, 64), name="v")
        self.first = ops.MatMul().shard(((2, 1), (1, 4)))
        self.second = ops.MatMul().shard(((2, 4), (4, 1)))
        self.stop = ops.StopGradient()
        self.add, self.sum = ops.Add().shard(((2, 1), (2, 1))), ops.ReduceSum().shard(((2, 1),))

    def construct(self, x):
        y = self.first(x, self.w)
        return self.sum(self.add(self.stopped(y), self.second(y, self.v)))


class StoppedByAttribute(Stopped):
    def stopped(self, y):
        return self.stop(y)


class StoppedByFunction(Stopped):
    def stopped(self, y):
        return ops.stop_gradient(y)


class StoppedByFunctional(Stopped):
    def stopped(self, y):
        return F.stop_gradient(y)


class StoppedOnTheFly(Stopped):
    def stopped(self, y):
        return ops.StopGradient()(y)


class StoppedByGlobal(Stopped):
    def stopped(self, y):
        return GLOBAL_STOP(y)


class StoppedBefore(Stopped):
    """No gradient reaches w."""

    def construct(self, x):
        return self.sum(self.add(x, self.second(self.stop(self.first(x, self.w)), self.v)))


class Scale(PrimitiveWithInfer):
    """x w, a primitive of which MindSpore has no distributed form."""

    @prim_attr_register
    def __init__(self):
        pass

    def infer_shape(self, x, w):
        return x

    def infer_dtype(self, x, w):
        return x

    def get_bprop(self):
        multiply, total = ops.Mul(), ops.ReduceSum()

        def bprop(x, w, out, dout):
            return multiply(dout, w), total(multiply(dout, x), 0)

        return bprop


class Scaled(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w, self.v = Parameter(zeros(64, 64), name="w"), Parameter(zeros(64), name="v")
        self.matmul = ops.MatMul().shard(((2, 1), (1, 4)))
        self.scale, self.sum = Scale(), ops.ReduceSum().shard(((2, 1),))

    def construct(self, x):
        return self.sum(self.scale(self.matmul(x, self.w), self.v))


class _LogSoftmax(nn.Cell):
    """log(softmax(x)) along a dim that is cut; its own backward pass hands on what arrives, as MindFormers' loss does."""

    def __init__(self, tp):
        super().__init__()
        self.max, self.sum = (
            ops.ReduceMax(keep_dims=True).shard(((1, tp),)),
            ops.ReduceSum(keep_dims=True).shard(((1, tp),)),
        )
        self.sub, self.exp, self.log = ops.Sub().shard(((1, tp), (1, 1))), ops.Exp().shard(((1, tp),)), ops.Log()
        self.log.shard(((1, 1),))

    def construct(self, x):
        x = self.sub(x, self.max(x, 1))
        return self.sub(x, self.log(self.sum(self.exp(x), 1)))

    def bprop(self, x, out, dout):
        return (dout,)


class OwnBackward(nn.Cell):
    def __init__(self, tp):
        super().__init__()
        self.weight = Parameter(zeros(64, 32), name="weight")
        self.matmul, self.log_softmax = ops.MatMul(transpose_b=True).shard(((1, 1), (tp, 1))), _LogSoftmax(tp)
        self.mul, self.total = ops.Mul().shard(((1, tp), ())), ops.ReduceSum().shard(((1, tp),))

    def construct(self, x):
        return self.total(self.mul(self.log_softmax(self.matmul(x, self.weight)), 0.5), (0, 1))


class JoinedLayouts(nn.Cell):
    """A Concat whose two tensors are laid out together, as a tuple of layouts."""

    def __init__(self):
        super().__init__()
        self.weight = Parameter(zeros(32, 32), name="weight")
        rows = ON_2_2_2("dp", "None")
        self.matmul = ops.MatMul(transpose_b=True).shard((rows, ON_2_2_2("None", "None")))
        self.concat = ops.Concat(1).add_prim_attr("self_define_shard", True).shard(((rows, rows),), (rows,))
        self.total = ops.ReduceSum().shard(((2, 1),))

    def construct(self, x):
        y = self.matmul(x, self.weight)
        return self.total(self.concat((y, y)), (0, 1))
