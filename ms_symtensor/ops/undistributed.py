"""Operators of which MindSpore has no distributed form: all devices cut the first dim of their first input, whatever it is.

It ignores strategies, cuts the first dims of all outputs with it, and leaves the other inputs whole, without a look at what the
operator does (MindSpore 2.7 to 2.10). Where all devices do not divide that dim, or the first result's, every device does all the
work; where they do not divide a further result's, it rejects the operator, as it does views that would be whole.
"""

from collections.abc import Mapping
from dataclasses import replace

from ms_symtensor.ops.instead import INSTEAD
from ms_symtensor.ops.signature import OpView, Signature

OTHER_OPERATORS = "write it with other operators"
"""What to do where nothing better is known."""

_OF_NO_VIEW = {
    "TransposeView": "Tensor.permute or ops.transpose (for mint.einsum MatMul, BatchMatMul and ops.transpose)",
    "TransposeExtView": "Tensor.swapaxes",
    "SplitTensorView": "ops.split",
    "SplitWithSizeView": "ops.split",
    "ChunkView": "ops.chunk",
    "SelectExtView": "an index, x[:, i]",
    "NarrowView": "a slice, x[:, a:b]",
    "SliceExtView": "a slice, x[:, a:b]",
    "UnstackExtView": "ops.unstack",
    "ExpandDimsView": "Tensor.unsqueeze or ops.expand_dims",
    "BroadcastToView": "ops.broadcast_to",
}
"""What copies where these, of `mint`, are views."""


def cut_along_batch(op: OpView, signature: Signature, instead: str = OTHER_OPERATORS) -> Signature:
    """`signature` for an operator of which MindSpore has no distributed form.

    It forbids what MindSpore would make wrong: a dim that has to stay whole, that another input has too, or that does not come
    first in an output.
    """
    if instead == OTHER_OPERATORS and op.type in INSTEAD:
        instead = f"write {INSTEAD[op.type][1]}"
    first = signature.inputs[0] if signature.inputs else ()
    batch = first[0] if first else None
    leading = [t.shape[0] if t.shape else 1 for t in (*op.inputs[:1], *op.outputs[:1])]
    others = [t.shape[0] for t in op.outputs[1:] if t.shape]
    is_miscompiled = (
        batch in signature.fixed
        or any(batch in dims for dims in signature.inputs[1:])
        or any(batch not in dims[:1] for dims in signature.outputs)
    )

    def forbids(cuts: Mapping[str, int], device_num: int) -> str | None:
        forced = 1 if batch is None or any(n % device_num for n in leading) else device_num
        if forced == 1 and device_num > 1 and not op.of_constants and signature.is_view:
            plain = _OF_NO_VIEW.get(op.type, "what is not in place, and no view")
            return (
                f"MindSpore rejects {op.type} where {device_num} devices do not divide the first dims of its input and its"
                f" result; use {plain}"
            )
        if forced > 1 and any(n % device_num for n in others):
            return (
                f"MindSpore has no distributed {op.type}, and rejects it where {device_num} devices divide the first dims of its"
                f" first input and result, and not those of its further results; {instead}"
            )
        if forced > 1 and is_miscompiled:
            return (
                f"MindSpore has no distributed {op.type}: on {device_num} devices it cuts the first dim of its first input alone,"
                f" which gives another result; {instead}, or with a first dim that they do not divide"
            )
        if (1 if batch is None else cuts.get(batch, 1)) != forced:
            return f"MindSpore always cuts the first dim of {op.type} by {forced} on {device_num} devices"
        return None

    return replace(
        signature,
        fixed=frozenset(signature.sizes) - {batch},
        forbids=forbids,
        needs_strategy=None,
        is_distributed=False,
    )
