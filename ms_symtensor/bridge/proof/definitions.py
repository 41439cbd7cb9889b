"""What operators compute, in terms of plain ones. They import mindspore at once: reached through `substitution` only.

A gradient is what MindSpore's own differentiation makes of the definition.
"""

import math

import mindspore
from mindspore import Tensor, nn, ops


class Gradient(nn.Cell):
    """The gradients of output `output` of `forward` by its first `inputs_num` inputs; takes its inputs, then dy."""

    def __init__(self, forward, inputs_num, output=None):
        super().__init__(auto_prefix=False)
        self.forward = _Output(forward, output) if output is not None else forward
        self.inputs_num = inputs_num
        self.gradient = ops.GradOperation(get_all=True, sens_param=True)

    def construct(self, *inputs):
        return self.gradient(self.forward)(*inputs)[: self.inputs_num]


class _Output(nn.Cell):
    def __init__(self, forward, output):
        super().__init__(auto_prefix=False)
        self.forward, self.output = forward, output

    def construct(self, *inputs):
        return self.forward(*inputs)[self.output]


class RmsNorm(nn.Cell):
    """x [..., n] and gamma [n] to x / rms(x) * gamma, and 1 / rms(x)."""

    def __init__(self, epsilon):
        super().__init__()
        self.epsilon = epsilon

    def construct(self, x, gamma):
        inverse = ops.rsqrt(ops.mean(x * x, -1, True) + self.epsilon)
        return x * inverse * gamma, inverse


class RmsNormGradient(nn.Cell):
    """The gradients of RmsNorm by x and gamma, from dy, x, 1 / rms(x) and gamma."""

    def construct(self, dy, x, inverse, gamma):
        normed = x * inverse
        scaled = dy * gamma
        dx = (scaled - normed * ops.mean(scaled * normed, -1, True)) * inverse
        rows = ops.reshape(dy * normed, (-1, x.shape[-1]))
        return dx, ops.sum(rows, 0)


class Gelu(nn.Cell):
    """x Φ(x), with the normal distribution's Φ as it is or by tanh."""

    def __init__(self, by_tanh):
        super().__init__()
        self.by_tanh = by_tanh

    def construct(self, x):
        if self.by_tanh:
            return 0.5 * x * (1 + ops.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x * x * x)))
        return 0.5 * x * (1 + ops.erf(x / 2**0.5))


class GeluGradient(nn.Cell):
    """From dy and x."""

    def __init__(self, by_tanh):
        super().__init__()
        self.gradient = Gradient(Gelu(by_tanh), 1)

    def construct(self, dy, x):
        return self.gradient(x, dy)[0]


class Sum(nn.Cell):
    """The sum over `dims`, () for all."""

    def __init__(self, dims, keep):
        super().__init__()
        self.dims, self.sum = dims, ops.ReduceSum(keep)

    def construct(self, x):
        return self.sum(x, self.dims)


class LogSumExp(nn.Cell):
    """log of the sum of exp(x) over `dims`, () for all."""

    def __init__(self, dims, keep):
        super().__init__()
        self.dims, self.sum, self.whole = dims, ops.ReduceSum(keep), ops.ReduceSum(True)

    def construct(self, x):
        most = ops.amax(x, self.dims, True)
        total = ops.log(self.whole(ops.exp(x - most), self.dims)) + most
        return self.sum(total, self.dims)  # of what has size one there


class TopK(nn.Cell):
    """The `k` largest elements along `dim`, or smallest ones, in order, and where they stand."""

    def __init__(self, k, dim, largest):
        super().__init__()
        self.k, self.dim, self.largest = k, dim, largest

    def construct(self, x):
        y = ops.swapaxes(x, self.dim, -1)
        values, places = ops.topk(y if self.largest else -y, self.k)
        values = ops.swapaxes(values if self.largest else -values, self.dim, -1)
        return values, ops.cast(ops.swapaxes(places, self.dim, -1), mindspore.int64)


class Sorted(nn.Cell):
    """x in order along `dim`, and where its elements stood, or that alone."""

    def __init__(self, dim, descending, places_alone):
        super().__init__()
        self.places_alone, self.sort = places_alone, ops.Sort(dim, descending)

    def construct(self, x):
        values, places = self.sort(x)
        places = ops.cast(places, mindspore.int64)
        return places if self.places_alone else (values, places)


class RunningSum(nn.Cell):
    """The sum of the elements up to each one along `dim`."""

    def __init__(self, dim):
        super().__init__()
        self.dim, self.sum = dim, ops.CumSum()

    def construct(self, x):
        return self.sum(x, self.dim)


class Filled(nn.Cell):
    """`value` in the shape of x, as elements of `dtype`."""

    def __init__(self, value, dtype):
        super().__init__()
        self.value, self.dtype = value, dtype

    def construct(self, x):
        return ops.cast(ops.zeros_like(x), self.dtype) + ops.cast(self.value, self.dtype)


class Rolled(nn.Cell):
    """x moved on by `shifts` along `dims`, what leaves at the end comes in at the front; along all elements without dims."""

    def __init__(self, shifts, dims):
        super().__init__()
        self.shifts, self.dims = shifts, dims

    def construct(self, x):
        y = x if self.dims else ops.reshape(x, (-1,))
        for shift, dim in zip(self.shifts, self.dims or (0,)):  # noqa: B905  MindSpore compiles no strict
            places = ops.arange(0, y.shape[dim]) - shift
            y = ops.gather(y, ops.floor_mod(places, y.shape[dim]), dim)
        return ops.reshape(y, x.shape)


class Spread(nn.Cell):
    """The elements of dy along `dims` at those of the places 0, …, n - 1 that stand in `places`, [(n, places), …], else zeros."""

    def __init__(self, dims, places):
        super().__init__()
        self.dims = dims
        self.sources = [
            Tensor([at.index(i) if i in at else len(at) for i in range(n)], mindspore.int32) for n, at in places
        ]
        self.first = Tensor([0], mindspore.int32)

    def construct(self, dy):
        for dim, sources in zip(self.dims, self.sources):  # noqa: B905  MindSpore compiles no strict
            dy = ops.gather(ops.concat((dy, ops.zeros_like(ops.gather(dy, self.first, dim))), dim), sources, dim)
        return dy


class Rotary(nn.Cell):
    """x cos + turned(x) sin: of every pair (a, b) of the last dim, neighbours or one of each half, turned is (-b, a)."""

    def __init__(self, neighbours):
        super().__init__()
        self.neighbours = neighbours

    def construct(self, x, cos, sin):
        if self.neighbours:
            pairs = ops.reshape(x, (*x.shape[:-1], x.shape[-1] // 2, 2))
            turned = ops.reshape(ops.stack((-pairs[..., 1], pairs[..., 0]), -1), x.shape)
        else:
            first, second = ops.chunk(x, 2, -1)
            turned = ops.cat((-second, first), -1)
        return x * cos + turned * sin


class RotaryGradient(nn.Cell):
    """The gradients by x, cos and sin, from dy, cos, sin and x; without an x by x alone, which it does not depend on."""

    def __init__(self, neighbours):
        super().__init__()
        self.gradient = Gradient(Rotary(neighbours), 3)

    def construct(self, dy, cos, sin, x=None):
        return self.gradient(dy if x is None else x, cos, sin, dy)


class EmbeddingGradient(nn.Cell):
    """Of a table with so many rows, from dy [..., width] and the indices [...]."""

    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def construct(self, dy, indices):
        return ops.unsorted_segment_sum(ops.reshape(dy, (-1, dy.shape[-1])), ops.reshape(indices, (-1,)), self.rows)


class Repeated(nn.Cell):
    """Every element along `dim` so many times in a row."""

    def __init__(self, repeats, dim):
        super().__init__()
        self.repeats, self.dim = repeats, dim

    def construct(self, x):
        return ops.repeat_elements(x, self.repeats, self.dim)


class Product(nn.Cell):
    """x @ y, each transposed before if so (the last two dims); the dims before these are broadcast."""

    def __init__(self, transpose_x, transpose_y):
        super().__init__()
        self.transpose_x, self.transpose_y = transpose_x, transpose_y

    def construct(self, x, y):
        x = ops.swapaxes(x, -1, -2) if self.transpose_x else x
        y = ops.swapaxes(y, -1, -2) if self.transpose_y else y
        return ops.matmul(x, y)


class TopKRouter(nn.Cell):
    """From the experts [batch, tokens, k] of every token: the tokens [batch, experts, capacity] of every expert, counted from
    1 (0: none), and the place [batch, tokens, k] of every choice among all experts' places, whose first ones stay empty.

    Where places are short, earlier tokens come first (`by_token`), or earlier choices.
    """

    def __init__(self, capacity, experts, by_token):
        super().__init__()
        self.capacity, self.experts, self.by_token = capacity, experts, by_token

    def construct(self, chosen):
        batch, tokens, k = chosen.shape
        asked = chosen if self.by_token else ops.transpose(chosen, (0, 2, 1))
        asked = ops.reshape(asked, (batch, tokens * k, 1))
        one_hot = ops.cast(ops.equal(asked, ops.arange(0, self.experts)), mindspore.float32)
        place = ops.sum(ops.cumsum(one_hot, 1) * one_hot, -1)
        place = place * ops.cast(place <= self.capacity, mindspore.float32)
        token = ops.reshape(ops.arange(1, tokens + 1), (1, tokens, 1) if self.by_token else (1, 1, tokens))
        token = ops.broadcast_to(token, (batch, tokens, k) if self.by_token else (batch, k, tokens))
        token = ops.cast(ops.reshape(token, (batch, tokens * k, 1)), mindspore.float32)
        places = ops.cast(ops.arange(1, self.capacity + 1), mindspore.float32)
        at = ops.cast(ops.equal(ops.expand_dims(place, -1), places), mindspore.float32)
        dispatch = ops.matmul(ops.transpose(one_hot, (0, 2, 1)), at * token)
        combine = ops.reshape(asked, (batch, tokens * k)) * (self.capacity + 1) + ops.cast(place, mindspore.int32)
        combine = ops.reshape(combine, (batch, tokens, k) if self.by_token else (batch, k, tokens))
        if not self.by_token:
            combine = ops.transpose(combine, (0, 2, 1))
        return ops.cast(dispatch, mindspore.int32), combine


class BatchNormByParts(nn.Cell):
    """The primitive `norm`, BatchNorm, over each of `parts` runs of samples by itself."""

    def __init__(self, norm, parts):
        super().__init__(auto_prefix=False)
        self.norm, self.parts = norm, parts

    def construct(self, x, gamma, beta, mean, variance):
        found = []
        for part in ops.split(x, x.shape[0] // self.parts, 0):
            found.append(self.norm(part, gamma, beta, mean, variance)[0])
        return ops.concat(found, 0), mean, variance, mean, variance
