"""What operators of `mint` compute, as functions that MindSpore's CPU has kernels for, each named as its operator.

They take the operator's operands in its order. They import mindspore at once: reached through `substitution` only.
"""

from mindspore import nn, ops

AcosExt, AcoshExt, AsinExt, AsinhExt, AtanExt = ops.ACos(), ops.Acosh(), ops.Asin(), ops.Asinh(), ops.Atan()
Atan2Ext, Sum, KeptSum, Select = ops.Atan2(), ops.ReduceSum(False), ops.ReduceSum(True), ops.Select()
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805
_LN_2, _LN_10 = 0.6931471805599453, 2.302585092994046


class Applied(nn.Cell):
    """`function` of what stands in `pattern`, [(is a tensor, constant), …]; takes the tensors."""

    def __init__(self, function, pattern):
        super().__init__(auto_prefix=False)
        self.function, self.pattern = function, pattern

    def construct(self, *tensors):
        arguments, taken = [], 0
        for is_tensor, constant in self.pattern:
            if is_tensor:
                arguments.append(tensors[taken])
                taken = taken + 1
            else:
                arguments.append(constant)
        return self.function(*arguments)


def Exp2(x):
    return ops.exp(x * _LN_2)


def Log2(x):
    return ops.log(x) / _LN_2


def Log10(x):
    return ops.log(x) / _LN_10


def LogAddExp(x, y):
    most = ops.maximum(x, y)
    return most + ops.log(ops.exp(x - most) + ops.exp(y - most))


def LogAddExp2(x, y):
    most = ops.maximum(x, y)
    return most + ops.log(ops.exp((x - most) * _LN_2) + ops.exp((y - most) * _LN_2)) / _LN_2


def Frac(x):
    return x - ops.Trunc()(x)


def FmodTensor(x, y):
    return x - ops.Trunc()(x / y) * y


FmodScalar = FmodTensor


def FloorDivScalar(x, y):
    return ops.floor(x / y)


def Clone(x):
    return x + ops.zeros_like(x)


def EluExt(x, alpha):
    return Select(x > 0, x, alpha * (ops.exp(ops.minimum(x, 0.0)) - 1))


def EluGradExt(dy, x, alpha, is_result):
    slope = x + alpha if is_result else alpha * ops.exp(ops.minimum(x, 0.0))
    return Select(x > 0, dy, dy * slope)


def SeLUExt(x):
    return _SELU_SCALE * EluExt(x, _SELU_ALPHA)


def SeluGrad(dy, y):
    return Select(y > 0, dy * _SELU_SCALE, dy * (y + _SELU_SCALE * _SELU_ALPHA))


def LeakyReLUExt(x, slope):
    return Select(x > 0, x, x * slope)


def LeakyReLUGradExt(dy, x, slope, is_result):
    return Select(x > 0, dy, dy * slope)


def Hardtanh(x, least, most):
    return ops.minimum(ops.maximum(x, least), most)


def HardtanhGrad(dy, x, least, most):
    return Select(ops.logical_and(x > least, x < most), dy, ops.zeros_like(dy))


def ClampMin(x, least):
    return ops.maximum(x, least)


def InplaceClampScalar(x, least, most, *_):
    found = x if least is None else ops.maximum(x, least)
    return found if most is None else ops.minimum(found, most)


def InplaceExp(x, *_):
    return ops.exp(x)


def InplaceSigmoid(x, *_):
    return ops.sigmoid(x)


def InplaceZero(x, *_):
    return ops.zeros_like(x)


def InplaceFillScalar(x, value, *_):
    return ops.zeros_like(x) + value


def Threshold(x, threshold, value):
    return Select(x > threshold, x, ops.zeros_like(x) + value)


def ThresholdGrad(dy, x, threshold):
    return Select(x > threshold, dy, ops.zeros_like(dy))


def LogSigmoid(x):
    return ops.minimum(x, 0.0) - ops.log(1 + ops.exp(-ops.abs(x))), ops.zeros_like(x)


def LogSigmoidGrad(dy, x, _):
    return dy * ops.sigmoid(-x)


def _softplus(x):
    return ops.maximum(x, 0.0) + ops.log(1 + ops.exp(-ops.abs(x)))


def SoftplusExt(x, beta, threshold):
    return Select(x * beta > threshold, x, _softplus(x * beta) / beta)


def SoftplusGradExt(dy, x, beta, threshold):
    return Select(x * beta > threshold, dy, dy * ops.sigmoid(x * beta))


def MishExt(x):
    return x * ops.tanh(_softplus(x))


def MishGradExt(dy, x):
    tanh = ops.tanh(_softplus(x))
    return dy * (tanh + x * (1 - tanh * tanh) * ops.sigmoid(x))


def Swiglu(x, dim):
    gate, up = ops.chunk(x, 2, dim)
    return gate * ops.sigmoid(gate) * up


def SwigluGrad(dy, x, dim):
    gate, up = ops.chunk(x, 2, dim)
    sigmoid = ops.sigmoid(gate)
    return ops.cat((dy * up * sigmoid * (1 + gate * (1 - sigmoid)), dy * gate * sigmoid), dim)


def Mm(a, b):
    return ops.matmul(a, b)


def Mv(a, b):
    return Sum(a * b, -1)


def Dot(a, b):
    return Sum(a * b, ())


def Outer(a, b):
    return ops.expand_dims(a, 1) * b


def Addmm(x, a, b, beta, alpha):
    return beta * x + alpha * ops.matmul(a, b)


def Addmv(x, a, b, beta, alpha):
    return beta * x + alpha * Sum(a * b, -1)


def Addbmm(x, a, b, beta, alpha):
    return beta * x + alpha * Sum(ops.matmul(a, b), 0)


Baddbmm = Addmm


def AddcmulExt(x, a, b, value):
    return x + value * a * b


def AddcdivExt(x, a, b, value):
    return x + value * a / b


def TExt(x):
    return x if x.ndim < 2 else ops.transpose(x, (1, 0))


def Chunk(x, number, dim):
    size = (x.shape[dim] + number - 1) // number
    found = []
    for begin in range(0, x.shape[dim], size):
        places = ops.arange(begin, min(begin + size, x.shape[dim]))
        found.append(ops.gather(x, places, dim))
    return tuple(found)


def StackExt(*arguments):
    return ops.Stack(arguments[-1])(arguments[:-1])


def Repeat(x, repeats):
    return ops.tile(x, repeats)


def IndexSelect(x, dim, index):
    return ops.gather(x, index, dim)


def IndexAddExt(x, dim, index, source, alpha):
    return x + _added(x, dim, index, source * alpha)


InplaceIndexAddExt = IndexAddExt


def ExpandAs(x, y):
    return ops.broadcast_to(x, y.shape)


def _added(x, dim, index, source):
    rows = ops.unsorted_segment_sum(ops.swapaxes(source, dim, 0), index, x.shape[dim])
    return ops.swapaxes(rows, dim, 0)


def ScatterAddExt(x, dim, index, source):
    """By one-hot vectors: index has the dims of source, and elements of x beside index's slices stay."""
    one_hot = ops.cast(ops.equal(ops.expand_dims(index, -1), ops.arange(0, x.shape[dim])), source.dtype)
    added = ops.swapaxes(Sum(one_hot * ops.expand_dims(source, -1), dim), -1, dim)
    for other in range(x.ndim):
        if added.shape[other] < x.shape[other]:
            shape = (*added.shape[:other], x.shape[other] - added.shape[other], *added.shape[other + 1 :])
            added = ops.cat((added, ops.zeros(shape, added.dtype)), other)
    return x + added


InplaceScatterAdd = ScatterAddExt


def CumminExt(x, dim):
    return ops.cummin(x, dim)


def TrilExt(x, diagonal):
    rows, columns = x.shape[-2:]
    kept = ops.arange(0, columns) <= ops.expand_dims(ops.arange(0, rows), 1) + diagonal
    return Select(ops.broadcast_to(kept, x.shape), x, ops.zeros_like(x))


def VarMean(x, dims, correction, keep):
    dims = tuple(range(x.ndim)) if dims is None or dims == () else dims
    summed = KeptSum if keep else Sum
    mean = KeptSum(x, dims) * 1.0
    number = x.size // mean.size
    squares = (x - mean / number) * (x - mean / number)
    return summed(squares, dims) / (number - correction), summed(x, dims) / number


def Var(x, dims, correction, keep):
    return VarMean(x, dims, correction, keep)[0]


def Std(x, dims, correction, keep):
    return ops.sqrt(VarMean(x, dims, correction, keep)[0])


def StdMean(x, dims, correction, keep):
    variance, mean = VarMean(x, dims, correction, keep)
    return ops.sqrt(variance), mean


def LinalgVectorNorm(x, order, dims, keep, _):
    dims = tuple(range(x.ndim)) if dims is None or dims == () else dims
    summed = KeptSum if keep else Sum
    if order == 2.0:
        return ops.sqrt(summed(x * x, dims))
    if order == 1.0:
        return summed(ops.abs(x), dims)
    return ops.pow(summed(ops.pow(ops.abs(x), order), dims), 1.0 / order)


def ArgMinExt(x, dim, keep):
    found = ops.argmin(ops.reshape(x, (-1,)), 0) if dim is None else ops.argmin(x, dim)
    return ops.expand_dims(found, dim) if keep and dim is not None else found


def _reduced(x, reduction):
    """MindSpore's numbers: 0 none, 1 mean, 2 sum."""
    return x if reduction == 0 else Sum(x, ()) / x.size if reduction == 1 else Sum(x, ())


def _share(x, reduction):
    return 1.0 / x.size if reduction == 1 else 1.0


def MSELossExt(x, y, reduction):
    return _reduced((x - y) * (x - y), reduction)


def MSELossGradExt(dy, x, y, reduction):
    return dy * 2.0 * (x - y) * _share(x, reduction)


def L1LossExt(x, y, reduction):
    return _reduced(ops.abs(x - y), reduction)


def L1LossBackwardExt(dy, x, y, reduction):
    return dy * ops.sign(x - y) * _share(x, reduction)


def KLDiv(x, y, reduction, of_log):
    return _reduced(ops.exp(y) * (y - x) if of_log else y * (ops.log(y) - x), reduction)


def KLDivGrad(dy, _, y, reduction, of_log):
    return -dy * (ops.exp(y) if of_log else y) * _share(y, reduction)


def LayerNormExt(x, shape, gamma, beta, epsilon):
    dims = tuple(range(x.ndim - len(shape), x.ndim))
    mean = ops.mean(x, dims, True)
    inverse = ops.rsqrt(ops.mean((x - mean) * (x - mean), dims, True) + epsilon)
    found = (x - mean) * inverse
    found = found if gamma is None else found * gamma
    return found if beta is None else found + beta, mean, inverse


def LayerNormGradExt(dy, x, shape, mean, inverse, gamma, _beta, _mask):
    dims, rows = tuple(range(x.ndim - len(shape), x.ndim)), tuple(range(x.ndim - len(shape)))
    normed = (x - mean) * inverse
    scaled = dy if gamma is None else dy * gamma
    dx = (scaled - ops.mean(scaled, dims, True) - normed * ops.mean(scaled * normed, dims, True)) * inverse
    return (dx, Sum(dy * normed, rows), Sum(dy, rows)) if rows else (dx, dy * normed, dy)
