"""What operators compute, in terms of plain ones. They import mindspore at once: reached through `substitution` only.

A gradient is what MindSpore's own differentiation makes of the definition.
"""

import mindspore
import numpy
from mindspore import Tensor, nn, ops

_HIDDEN = -1e30  # added to a score: its exponential is 0 in float32
_LEFT_UP_CAUSAL, _RIGHT_DOWN_CAUSAL, _BAND = 2, 3, 4
SPARSE_MODES = (0, _LEFT_UP_CAUSAL, _RIGHT_DOWN_CAUSAL, _BAND)


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


class SwiGlu(nn.Cell):
    """silu(a) * b for the two halves a, b of x along `dim`."""

    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def construct(self, x):
        gate, up = ops.chunk(x, 2, self.dim)
        return gate * ops.sigmoid(gate) * up


class Silu(nn.Cell):
    def construct(self, x):
        return x * ops.sigmoid(x)


class SiluGradient(nn.Cell):
    """From dy and x."""

    def construct(self, dy, x):
        sigmoid = ops.sigmoid(x)
        return dy * sigmoid * (1 + x * (1 - sigmoid))


class Sum(nn.Cell):
    """The sum over `dims`, () for all."""

    def __init__(self, dims, keep):
        super().__init__()
        self.dims, self.sum = dims, ops.ReduceSum(keep)

    def construct(self, x):
        return self.sum(x, self.dims)


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


def visible(rows, columns, sparse_mode, before, after):
    """Which columns [columns] each row [rows] of scores sees, by FlashAttentionScore's sparse mode; None: all.

    Source: MindSpore's documentation of ops.flash_attention_score, sparse_mode.
    """
    row, column = numpy.arange(rows)[:, None], numpy.arange(columns)[None, :]
    if sparse_mode == _LEFT_UP_CAUSAL:
        return column <= row
    if sparse_mode == _RIGHT_DOWN_CAUSAL:
        return column - (columns - rows) <= row
    if sparse_mode == _BAND:  # counted from the lower right corner
        offset = column - (columns - rows) - row
        return (-before <= offset) & (offset <= after)
    return None


class FlashAttention(nn.Cell):
    """FlashAttentionScore on query, key, value (and a mask, 1 where hidden): row maxima, row sums, nothing, attention.

    `layout` is "BNSD", "BSND", "BSH" or "SBH"; key and value may have fewer heads.
    """

    def __init__(self, layout, heads, scale, seen, has_mask):
        super().__init__()
        self.layout, self.heads, self.scale, self.has_mask = layout, heads, scale, has_mask
        hidden = None if seen is None else numpy.where(seen, 0.0, _HIDDEN).astype(numpy.float32)
        self.hides = hidden is not None
        self.hidden = Tensor(hidden) if self.hides else None

    def construct(self, query, key, value, *mask):
        head_dim = query.shape[-1] if self.layout in ("BNSD", "BSND") else query.shape[-1] // self.heads
        q, k, v = self.split(query, head_dim), self.split(key, head_dim), self.split(value, head_dim)
        groups = q.shape[1] // k.shape[1]
        if groups > 1:
            k, v = ops.repeat_interleave(k, groups, 1), ops.repeat_interleave(v, groups, 1)
        score = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * self.scale
        if self.hides:
            score = score + self.hidden
        if self.has_mask:
            score = score + ops.cast(mask[0], mindspore.float32) * _HIDDEN
        peak = ops.stop_gradient(ops.amax(score, -1, True))
        weight = ops.exp(score - peak)
        total = ops.sum(weight, -1, True)
        out = self.merge(ops.matmul(weight / total, v), query.shape)
        return ops.tile(peak, (1, 1, 1, 8)), ops.tile(total, (1, 1, 1, 8)), ops.zeros((1,), mindspore.float32), out

    def split(self, x, head_dim):
        """To [batch, heads, seq, head_dim]."""
        if self.layout == "BNSD":
            return x
        if self.layout == "BSND":
            return ops.transpose(x, (0, 2, 1, 3))
        a, b, width = x.shape
        x = ops.reshape(x, (a, b, width // head_dim, head_dim))
        return ops.transpose(x, (0, 2, 1, 3) if self.layout == "BSH" else (1, 2, 0, 3))

    def merge(self, x, shape):
        """From [batch, heads, seq, head_dim] to the query's shape."""
        if self.layout == "BNSD":
            return x
        return ops.reshape(ops.transpose(x, (2, 0, 1, 3) if self.layout == "SBH" else (0, 2, 1, 3)), shape)


class FlashAttentionGradient(nn.Cell):
    """The gradients of FlashAttentionScore's attention by query, key and value, and nothing for the position shift."""

    def __init__(self, forward):
        super().__init__(auto_prefix=False)
        self.gradient = Gradient(forward, 3, 3)

    def construct(self, query, key, value, dy, *mask):
        dq, dk, dv = self.gradient(query, key, value, *mask, dy)
        return dq, dk, dv, ops.zeros((0,), mindspore.float32)
