"""Normalisations over trailing dims and softmax over an axis: the normalised dims stay whole."""

from ms_symtensor.ops.batch_only import batch_only, cut_along_batch
from ms_symtensor.ops.signature import Combine, OpView, Signature, always, dims_like, named, positive, refused

SOFTMAX = 16
"""Operations per element of softmax (empirical): maximum and sum of a row are each a reduction of several, and so is the
exponential; with difference, quotient and the casts of 16 bit.
"""


def rms_norm(op: OpView) -> Signature:
    """`... d, d -> ... d, ... 1`: the dims of gamma are normalised.

    Where one of them is cut, MindSpore puts elementary operators in the place of RmsNorm, with an AllReduce of the means
    of squares among them; in half precision that replacement does not compile.
    """
    rank, normalised = len(op.inputs[0].shape), len(op.inputs[1].shape)
    dims = dims_like(rank)
    statistics = (*dims[: rank - normalised], *(None,) * normalised)
    last = dims[rank - normalised :]
    exact = op.inputs[0].dtype == "float32"
    return named(
        op, [dims, last], [dims, statistics], mesh=dims, keeps_inputs=(0, 1), keeps_outputs=(1,),
        fixed=frozenset(() if exact else last), inner=last, partial_output=1, combine=Combine.MEAN,
    )  # fmt: skip


def layer_norm(op: OpView) -> Signature:
    """`... d!, d!, d! -> ... d!, ... 1, ... 1`: dims from `begin_norm_axis` on are normalised."""
    begin = positive(op.argument(0, "begin_norm_axis", -1), len(op.inputs[0].shape))[0]
    return _norm(op, begin, keeps_inputs=(0, 1), keeps_outputs=(1, 2))


def _norm(op: OpView, begin: int, **keeps) -> Signature:
    rank = len(op.inputs[0].shape)
    dims = dims_like(rank)
    weights = [dims[rank - len(t.shape) :] for t in op.inputs[1:]]
    return named(
        op, [dims, *weights], [dims, *(dims[: len(t.shape)] for t in op.outputs[1:])],
        mesh=dims, fixed=frozenset(dims[begin:]), **keeps,
    )  # fmt: skip


def softmax(op: OpView) -> Signature:
    """Element by element, except that the softmax axis stays whole."""
    dims = dims_like(len(op.inputs[0].shape))
    axes = positive(op.argument(0, "axis", -1), len(dims))
    return named(
        op, [dims], [dims], mesh=dims, fixed=frozenset(dims[a] for a in axes), needs_strategy=always if 0 in axes else None,
        keeps_outputs=(0,), operations=SOFTMAX,
    )  # fmt: skip


def layer_norm_ext(op: OpView) -> Signature:
    """As LayerNorm, over as many trailing dims as its argument has. MindSpore has no distributed form of it, and does not find
    its weights among its inputs where a program is partitioned.
    """
    axes = op.argument(0, "normalized_shape")
    begin = len(op.inputs[0].shape) - (len(axes) if isinstance(axes, tuple) else 1)
    found = cut_along_batch(op, _norm(op, begin, keeps_inputs=(0,), keeps_outputs=(1, 2)))
    reason = (
        "MindSpore rejects its weights; use nn.LayerNorm for ops.layer_norm, mint.nn.LayerNorm and the function of mint"
    )
    return refused(found, reason) if len(op.inputs) > 1 else found


def added_norm(op: OpView) -> Signature:
    """The norm of a sum, which is an output, too: MindSpore cuts one summand alone."""
    dims = dims_like(len(op.inputs[0].shape))
    inputs = [dims, dims, *((dims[-1],) for _ in op.inputs[2:])]
    found = named(op, inputs, [dims], mesh=dims, fixed=frozenset(dims[-1:]), keeps_inputs=(0, 1))
    return refused(found, "MindSpore partitions no sum with its norm in one operator: write the sum and the norm apart")


def batch_norm_ext(op: OpView) -> Signature:
    """As BatchNorm, of which every device normalises by its own samples; what it remembers of them has no layout."""
    dims = dims_like(len(op.inputs[0].shape))
    inputs = [dims, *((dims[1],) for _ in op.inputs[1:])]
    return named(
        op, inputs, [dims], mesh=dims, fixed=frozenset(dims[2:]), keeps_inputs=(0, 1), differentiable=(0, 1, 2)
    )


def group_norm(op: OpView) -> Signature:
    """`n c! ..., c!, c! -> n c! ..., n groups, n groups`: every sample is normalised by itself."""
    dims = dims_like(len(op.inputs[0].shape))
    inputs = [dims, *((dims[1],) for _ in op.inputs[1:])]
    return named(
        op, inputs, [dims, (dims[0], None), (dims[0], None)], mesh=dims, fixed=frozenset(dims[1:]),
        keeps_inputs=(0, 1), keeps_outputs=(1, 2),
    )  # fmt: skip


def batch_norm(op: OpView) -> Signature:
    """`n c ..., c, c, c, c -> n c ..., c, c, c, c`: every channel is normalised over samples and places.

    Where samples are cut, MindSpore 2.10 leaves it as it is: every device normalises by its own samples, as is usual for data
    parallelism, and not as one process would.
    """
    dims = dims_like(len(op.inputs[0].shape))
    channels = (dims[1],)
    return named(
        op, [dims, *[channels] * 4], [dims, *[channels] * 4], mesh=dims, fixed=frozenset(dims[2:]),
        keeps_inputs=(0, 1), keeps_outputs=(3, 4), differentiable=(0, 1, 2),
    )  # fmt: skip


def unit_length(op: OpView) -> Signature:
    """Divided by the norm along axes that stay whole."""
    dims = dims_like(len(op.inputs[0].shape))
    axes = positive(op.argument(0, "axis", 0), len(dims))
    return named(
        op, [dims], [dims], mesh=dims, fixed=frozenset(dims[a] for a in axes), needs_strategy=always if 0 in axes else None,
        keeps_inputs=(0,), keeps_outputs=(0,),
    )  # fmt: skip


RULES = {
    "RmsNorm": rms_norm,
    **dict.fromkeys(("LayerNorm", "LayerNormV3"), layer_norm),
    **dict.fromkeys(("AddRmsNorm", "AddLayerNormV2"), added_norm),
    "BatchNormExt": batch_only(batch_norm_ext),
    "LayerNormExt": layer_norm_ext,
    "GroupNorm": group_norm,
    "BatchNorm": batch_norm,
    "L2Normalize": unit_length,
    **dict.fromkeys(("Softmax", "LogSoftmax", "LogSoftmaxExt"), softmax),
}
