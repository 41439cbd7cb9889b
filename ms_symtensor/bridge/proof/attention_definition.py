"""FlashAttentionScore and its gradient in terms of plain operators. Imports mindspore at once: see `definitions`."""

import mindspore
import numpy
from mindspore import Tensor, nn, ops

from ms_symtensor.bridge.proof.definitions import Gradient

_HIDDEN = -1e30  # added to a score: its exponential is 0 in float32
_LEFT_UP_CAUSAL, _RIGHT_DOWN_CAUSAL, _BAND = 2, 3, 4
SPARSE_MODES = (0, _LEFT_UP_CAUSAL, _RIGHT_DOWN_CAUSAL, _BAND)


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

    `layout` is "BNSD", "BSND", "BSH" or "SBH"; key and value may have fewer heads, and those of values another size.
    """

    def __init__(self, layout, heads, scale, seen, has_mask):
        super().__init__()
        self.layout, self.heads, self.scale, self.has_mask = layout, heads, scale, has_mask
        hidden = None if seen is None else numpy.where(seen, 0.0, _HIDDEN).astype(numpy.float32)
        self.hides = hidden is not None
        self.hidden = Tensor(hidden) if self.hides else None

    def construct(self, query, key, value, *mask):
        fewer = key.shape[-1] * self.heads // query.shape[-1]  # heads of key and value, where these lie in one dim
        q, k, v = self.split(query, self.heads), self.split(key, fewer), self.split(value, fewer)
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
        out = self.merge(ops.matmul(weight / total, v))
        return ops.tile(peak, (1, 1, 1, 8)), ops.tile(total, (1, 1, 1, 8)), ops.zeros((1,), mindspore.float32), out

    def split(self, x, heads):
        """To [batch, heads, seq, head_dim]."""
        if self.layout == "BNSD":
            return x
        if self.layout == "BSND":
            return ops.transpose(x, (0, 2, 1, 3))
        a, b, width = x.shape
        x = ops.reshape(x, (a, b, heads, width // heads))
        return ops.transpose(x, (0, 2, 1, 3) if self.layout == "BSH" else (1, 2, 0, 3))

    def merge(self, x):
        """From [batch, heads, seq, head_dim]."""
        if self.layout == "BNSD":
            return x
        x = ops.transpose(x, (2, 0, 1, 3) if self.layout == "SBH" else (0, 2, 1, 3))
        if self.layout == "BSND":
            return x
        a, b, heads, head_dim = x.shape
        return ops.reshape(x, (a, b, heads * head_dim))


class FlashAttentionGradient(nn.Cell):
    """The gradients of FlashAttentionScore's attention by query, key and value, and nothing for the position shift."""

    def __init__(self, forward):
        super().__init__(auto_prefix=False)
        self.gradient = Gradient(forward, 3, 3)

    def construct(self, query, key, value, dy, *mask):
        dq, dk, dv = self.gradient(query, key, value, *mask, dy)
        return dq, dk, dv, ops.zeros((0,), mindspore.float32)
