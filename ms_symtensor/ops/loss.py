"""Losses that are one operator."""

from ms_symtensor.ops.normalization import SOFTMAX
from ms_symtensor.ops.quirks import UNDISTRIBUTED, Quirks
from ms_symtensor.ops.rule import Choice, Computed, alike, rule
from ms_symtensor.ops.signature import OpView, Signature, dims_like, named


def loss(op: OpView) -> Signature:
    """A loss of every element, or one number: MindSpore has no distributed form, and computes the one number on every device."""
    dims = dims_like(len(op.inputs[0].shape))
    whole = op.inputs[0].shape
    inputs = [dims[: len(t.shape)] if t.shape == whole[: len(t.shape)] else (None,) * len(t.shape) for t in op.inputs]
    outputs = [dims if t.shape == whole else (None,) * len(t.shape) for t in op.outputs]
    return named(op, inputs, outputs, mesh=dims, keeps_inputs=tuple(range(len(inputs))))


_MEAN = "MindSpore cuts the samples and leaves out the mean over devices; use nn.CrossEntropyLoss or ops.cross_entropy"
_REDUCED = Quirks(instead="let it reduce (reduction='mean' or 'sum'), write it with other operators")

RULES = {
    "SoftmaxCrossEntropyWithLogits": rule("b c!, ~b c! -> b, @b c!", operations=SOFTMAX),
    "SparseSoftmaxCrossEntropyWithLogits": rule("@b c!, @~b -> +", Quirks(refused=_MEAN)),
    "CTCLossV2": rule("@t! n c!, @~n s!, @~n, @~n -> @n, @n t! ...!", UNDISTRIBUTED),
    # of every element, or their sum or mean
    "KLDivLoss": Choice("reduction", 0, {"mean": rule("@..., @... -> mean ...?")}, rule("@..., @... -> + ...?")),
    **alike(
        "NLLLoss SmoothL1Loss L1LossExt MSELossExt BCEWithLogitsLoss BinaryCrossEntropy KLDiv"
        " MultilabelMarginLoss MultiMarginLoss NLLLoss2d SoftMarginLoss",
        Computed(loss, _REDUCED),
    ),
}
