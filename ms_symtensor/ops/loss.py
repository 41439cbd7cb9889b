"""Losses that are one operator."""

from ms_symtensor.ops.batch_only import batch_only
from ms_symtensor.ops.normalization import SOFTMAX
from ms_symtensor.ops.signature import Combine, OpView, Signature, bind, dims_like, named, refused


def softmax_cross_entropy(op: OpView) -> Signature:
    """`b c!, b c! -> b, b c!`: the loss of every row, and its gradient."""
    return bind(
        "b c!, b c! -> b, b c!",
        op.inputs,
        op.outputs,
        op.name,
        keeps_outputs=(1,),
        differentiable=(0,),
        operations=SOFTMAX,
    )


def divergence(op: OpView) -> Signature:
    """KLDivLoss: of every element, or their sum or mean."""
    dims = dims_like(len(op.inputs[0].shape))
    is_mean = op.attributes.get("reduction") == "mean"
    outputs = [dims if op.outputs[0].shape else ()]
    combine = Combine.MEAN if is_mean else Combine.SUM
    return named(op, [dims, dims], outputs, mesh=dims, combine=combine, keeps_inputs=(0, 1))


def loss(op: OpView) -> Signature:
    """A loss of every element, or one number: MindSpore has no distributed form, and computes the one number on every device."""
    dims = dims_like(len(op.inputs[0].shape))
    whole = op.inputs[0].shape
    inputs = [dims[: len(t.shape)] if t.shape == whole[: len(t.shape)] else (None,) * len(t.shape) for t in op.inputs]
    outputs = [dims if t.shape == whole else (None,) * len(t.shape) for t in op.outputs]
    return named(op, inputs, outputs, mesh=dims, keeps_inputs=tuple(range(len(inputs))))


def sparse_softmax_cross_entropy(op: OpView) -> Signature:
    """`b c!, b -> `: the mean over the samples, which MindSpore leaves out where it cuts them."""
    found = named(op, [("b", "c"), ("b",)], [()], fixed=frozenset("c"), keeps_inputs=(0, 1), differentiable=(0,))
    reason = (
        "MindSpore cuts the samples and leaves out the mean over devices; use nn.CrossEntropyLoss or ops.cross_entropy"
    )
    return refused(found, reason)


RULES = {
    "SoftmaxCrossEntropyWithLogits": softmax_cross_entropy,
    "SparseSoftmaxCrossEntropyWithLogits": sparse_softmax_cross_entropy,
    "KLDivLoss": divergence,
    **dict.fromkeys(
        (
            "NLLLoss",
            "SmoothL1Loss",
            "L1LossExt",
            "MSELossExt",
            "BCEWithLogitsLoss",
            "BinaryCrossEntropy",
            "TripletMarginLoss",
            "KLDiv",
            "MultilabelMarginLoss",
            "MultiMarginLoss",
            "NLLLoss2d",
            "SoftMarginLoss",
        ),
        batch_only(loss),
    ),
}
