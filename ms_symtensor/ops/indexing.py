"""Look-ups by index, and their inverse, one-hot vectors."""

import math
from collections.abc import Mapping
from dataclasses import replace

from ms_symtensor.ops.signature import OpView, Signature, dims_like, named, positive


def gather(op: OpView) -> Signature:
    """`table[.., axis, ..]` at `indices`: the dims of the indices stand in the place of the axis.

    A cut of the axis (a vocabulary cut) leaves partial sums: every device looks up what it holds and zero elsewhere.
    """
    table, index = dims_like(len(op.inputs[0].shape), "t"), dims_like(len(op.inputs[1].shape), "i")
    axis = positive(op.argument(0, "axis", 0), len(table))[0]
    batch = op.argument(1, "batch_dims", 0) or 0
    assert isinstance(batch, int)
    index = (*table[:batch], *index[batch:])
    output = (*table[:axis], *index[batch:], *table[axis + 1 :])
    looked_up = table[axis]
    others = [d for d in table if d != looked_up]
    can_cut_axis = axis == 0 and batch == 0 and len(table) <= 2 and len(index) > 0

    def forbids(cuts: Mapping[str, int], device_num: int) -> str | None:
        vocabulary, rows, width = (
            cuts.get(looked_up, 1),
            [cuts.get(d, 1) for d in index],
            [cuts.get(d, 1) for d in others],
        )
        if vocabulary == 1:
            return None
        used = math.prod((vocabulary, *rows, *width))
        if max(rows) > 1:
            fits = len(table) == 2 and len(index) <= 2 and rows[0] > 1 and (len(index) == 1 or width == [1])
            if used < device_num or not fits:
                return (
                    "the looked-up dim and the indices are cut together only if that uses all devices, of a 2-dim table"
                )
        if max(width, default=1) > 1 and used < device_num:
            return "both dims of the table are cut together only if that uses all devices"
        return None

    return named(
        op, [table, index], [output], mesh=(*index, *(d for d in table if d not in index)),
        fixed=frozenset() if can_cut_axis else frozenset((looked_up,)), forbids=forbids,
        repeat_left_when=frozenset((looked_up,)), scatter=index[0] if can_cut_axis else None, scatters_unasked=True,
        scatters_whole_only=len(index) > 1, leading=next(iter(index), None),
        keeps_inputs=(1,), differentiable=(0,),
    )  # fmt: skip


def index_select(op: OpView) -> Signature:
    """`table[.., axis, ..]` at one list of indices; the axis stays whole."""
    table = dims_like(len(op.inputs[0].shape), "t")
    axis = positive(op.argument(0, "axis", 0), len(table))[0]
    return named(
        op, [table, ("i",)], [(*table[:axis], "i", *table[axis + 1 :])], mesh=("i", *table), fixed=frozenset((table[axis],)),
        leading="i", keeps_inputs=(1,), differentiable=(0,),
    )  # fmt: skip


def gather_d(op: OpView) -> Signature:
    """One element per index along an axis; a cut of that axis leaves partial sums, as in Gather."""
    dims = dims_like(len(op.inputs[0].shape))
    axis = positive(op.argument(0, "dim", 0), len(dims))[0]
    index = tuple(None if i == axis else d for i, d in enumerate(dims))
    return named(op, [dims, index], [index], mesh=dims, keeps_inputs=(0, 1), differentiable=(0,))


def one_hot(op: OpView) -> Signature:
    """Indices to vectors with one element on. MindSpore's strategy lists the output's dims, then the two scalars."""
    index = dims_like(len(op.inputs[0].shape), "i")
    axis = positive(op.argument(1, "axis", -1), len(index) + 1)[0]
    output = (*index[:axis], "depth", *index[axis:])
    whole = frozenset((*index[1:], "depth")) if len(index) > 1 else frozenset()
    return named(
        op, [index, (), ()], [output], entries=(output, (), ()), mesh=(*index, "depth"), fixed=whole, leading=output[0],
        differentiable=(),
    )  # fmt: skip


def one_hot_ext(op: OpView) -> Signature:
    """As OneHot, but of 64-bit indices the vectors stay whole: MindSpore's replacement graph for a cut does not take these."""
    signature = one_hot(op)
    return replace(signature, fixed=signature.fixed | {"depth"}) if op.inputs[0].dtype == "int64" else signature


def embedding(op: OpView) -> Signature:
    """A table's rows at the indices, which stay whole; the table is cut over all devices or not at all."""
    index = dims_like(len(op.inputs[0].shape), "i")

    def forbids(cuts: Mapping[str, int], device_num: int) -> str | None:
        used = cuts.get("vocabulary", 1) * cuts.get("width", 1)
        return None if used in (1, device_num) else "the table of Embedding is cut over all devices or not at all"

    def rejects(device_num: int) -> bool:
        return op.inputs[0].shape[0] % device_num != 0

    return named(
        op, [index, ("vocabulary", "width")], [(*index, "width")], mesh=(*index, "vocabulary", "width"),
        fixed=frozenset(index), forbids=forbids, scatter=index[0] if index else None, scatters_unasked=True,
        leading="vocabulary", keeps_inputs=(0,), differentiable=(1,), needs_strategy=rejects if index else None,
    )  # fmt: skip


RULES = {
    "Gather": gather,
    "GatherD": gather_d,
    "IndexSelect": index_select,
    "OneHot": one_hot,
    "OneHotExt": one_hot_ext,
    "Embedding": embedding,
}
