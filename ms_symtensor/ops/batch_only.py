"""Operators of which MindSpore has no distributed form: all devices cut the first dim of their first input, whatever it is.

It ignores strategies, cuts the first dims of all outputs with it, and leaves the other inputs whole, without a look at what the
operator does (MindSpore 2.7 to 2.10). Where all devices do not divide these dims, every device does all the work.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from ms_symtensor.ops.signature import OpView, Signature


def batch_only(rule: Callable[[OpView], Signature]) -> Callable[[OpView], Signature]:
    """What `rule` says of an operator that MindSpore has no distributed form of."""
    return lambda op: cut_along_batch(op, rule(op))


def cut_along_batch(op: OpView, signature: Signature) -> Signature:
    """`signature` for an operator of which MindSpore has no distributed form.

    It forbids what MindSpore would make wrong: a dim that has to stay whole, that another input has too, or that does not come
    first in an output.
    """
    first = signature.inputs[0] if signature.inputs else ()
    batch = first[0] if first else None
    leading = [t.shape[0] if t.shape else 1 for t in (*op.inputs[:1], *op.outputs)]
    is_spoilt = (
        batch in signature.fixed
        or any(batch in dims for dims in signature.inputs[1:])
        or any(batch not in dims[:1] for dims in signature.outputs)
    )

    def forbids(cuts: Mapping[str, int], device_num: int) -> str | None:
        forced = 1 if batch is None or any(n % device_num for n in leading) else device_num
        if forced > 1 and is_spoilt:
            return (
                f"MindSpore has no distributed {op.type}: on {device_num} devices it cuts the first dim of its first input alone,"
                " which gives another result; write it with other operators, or with a first dim that they do not divide"
            )
        if (1 if batch is None else cuts.get(batch, 1)) != forced:
            return f"MindSpore always cuts the first dim of {op.type} by {forced} on {device_num} devices"
        return None

    return replace(signature, fixed=frozenset(signature.sizes) - {batch}, forbids=forbids, is_distributed=False)
