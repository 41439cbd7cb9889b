"""Normalisations over dims that stay whole, and softmax over an axis."""

from ms_symtensor.ops.quirks import UNDISTRIBUTED, Quirks, whole_in_half_precision
from ms_symtensor.ops.rule import alike, rule

SOFTMAX = 16
"""Operations per element of softmax (empirical): maximum and sum of a row are each a reduction of several, and so is the
exponential; with difference, quotient and the casts of 16 bit.
"""

_ADDED = "MindSpore partitions no sum with its norm in one operator: write the sum and the norm apart"
_EXT = "MindSpore rejects its weights; use nn.LayerNorm for ops.layer_norm, mint.nn.LayerNorm and the function of mint"
_SEQUENCES = "MindSpore partitions BatchNorm of two and of four dims alone: use mint.nn.BatchNorm1d for nn.BatchNorm1d"
_NORMALISED = "... a! ..., @... 1? ..., @... 1? ..."
_AXIS = Quirks(rejects_whole_first="a")

RULES = {
    "RmsNorm": rule(
        "@... a ..., @a -> ... a ..., @mean ... 1 ... | a = last 1", Quirks(adjust=whole_in_half_precision)
    ),
    **alike(
        "LayerNorm LayerNormV3", rule(f"@... a! ..., @a!, a! -> {_NORMALISED} | a = from begin_norm_axis 0 -1")
    ),
    "LayerNormExt": rule(
        f"@... a! ..., ?a!, ?a! -> {_NORMALISED} | a = count normalized_shape 0",
        Quirks(instead=UNDISTRIBUTED.instead, refused=_EXT, refused_where=lambda op: len(op.inputs) > 1),
    ),
    **alike("AddRmsNorm AddLayerNormV2", rule("@... a! ..., @... a! ..., *a! -> ... a! ... | a = -1", Quirks(refused=_ADDED))),
    # every device normalises by its own samples, as is usual for data parallelism, and not as one process would
    "BatchNorm": rule(
        "@n c ...!, @c, c, ~c, ~c -> n c ...!, c, c, @c, @c",
        Quirks(refused=_SEQUENCES, refused_where=lambda op: len(op.inputs[0].shape) not in (2, 4)),
    ),
    "BatchNormExt": rule("@n c ...!, @c, c, *~c -> n c ...!", UNDISTRIBUTED),
    "GroupNorm": rule("@n c! ...!, @c!, *c! -> n c! ...!, @n 1, @n 1"),
    "L2Normalize": rule("@... a! ... -> @... a! ... | a = axis 0 0", _AXIS),
    **alike("Softmax LogSoftmax LogSoftmaxExt", rule("... a! ... -> @... a! ... | a = axis 0 -1", _AXIS, operations=SOFTMAX)),
}  # fmt: skip
