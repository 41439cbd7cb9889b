"""Tensors made of nothing, of one value or at random, and such as another tensor names the type of."""

from ms_symtensor.ops.batch_only import batch_only
from ms_symtensor.ops.signature import Dims, OpView, Signature, dims_like, named


def made(op: OpView) -> Signature:
    """Made whole on every device, from scalars at most."""
    return named(
        op, [(None,) * len(t.shape) for t in op.inputs], [(None,) * len(t.shape) for t in op.outputs], differentiable=()
    )


def made_cut(op: OpView) -> Signature:
    """Made in slices. Without a strategy MindSpore cuts the first dim; with one it lists the dims of the output."""
    inputs: list[Dims] = [(None,) * len(t.shape) for t in op.inputs]
    output = dims_like(len(op.outputs[0].shape))
    return named(
        op, inputs, [output], entries=(output,), mesh=output, leading=next(iter(output), None), differentiable=()
    )


def of_another(op: OpView) -> Signature:
    """Of any shape, of the element type of a tensor: MindSpore takes it for cut with that tensor, and makes it whole."""
    dims = dims_like(len(op.inputs[0].shape))
    return named(op, [dims], [(None,) * len(op.outputs[0].shape)], mesh=dims, differentiable=())


RULES = {
    **dict.fromkeys(("Eye", "FillScalar", "FillTensor", "Empty", "RandExt", "Randn"), made),
    **dict.fromkeys(("StandardNormal", "UniformReal"), made_cut),
    # of which MindSpore has no distributed form
    **dict.fromkeys(
        ("NewZeros", "NewOnes", "NewFull", "NewEmpty"),
        batch_only(of_another, "use ops.zeros, ops.ones or ops.full of the shape and the element type"),
    ),
}
