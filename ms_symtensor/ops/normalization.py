"""Normalisations over trailing dims and softmax over an axis: the normalised dims stay whole."""

from ms_symtensor.ops.signature import Combine, OpView, Signature, dims_like, named, positive


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
    return named(op, [dims], [dims], mesh=dims, fixed=frozenset(dims[a] for a in axes), keeps_outputs=(0,))


RULES = {
    "RmsNorm": rms_norm,
    "LayerNorm": layer_norm,
    **dict.fromkeys(("Softmax", "LogSoftmax", "LogSoftmaxExt"), softmax),
}
