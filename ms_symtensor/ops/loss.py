"""Losses that are one operator."""

from ms_symtensor.ops.signature import OpView, Signature, bind


def softmax_cross_entropy(op: OpView) -> Signature:
    """`b c!, b c! -> b, b c!`: the loss of every row, and its gradient."""
    return bind("b c!, b c! -> b, b c!", op.inputs, op.outputs, op.name, keeps_outputs=(1,), differentiable=(0,))


RULES = {"SoftmaxCrossEntropyWithLogits": softmax_cross_entropy}
