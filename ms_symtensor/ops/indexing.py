"""Look-ups by index, and their inverse, one-hot vectors."""

from collections.abc import Mapping

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
        vocabulary, rows = cuts.get(looked_up, 1), [cuts.get(d, 1) for d in index]
        if vocabulary == 1:
            return None
        width = [cuts.get(d, 1) for d in others]
        leading_only = len(table) == 2 and len(index) == 2 and width == [1] and rows[1] == 1
        if max(rows) > 1 and not (leading_only and vocabulary * rows[0] == device_num):
            return "a cut of the looked-up dim and of the indices must be of their first dim, and use all devices"
        if max(width, default=1) > 1 and vocabulary * width[0] != device_num:
            return "cuts of both dims of the table must use all devices"
        return None

    return named(
        op, [table, index], [output], mesh=(*index, *(d for d in table if d not in index)),
        fixed=frozenset() if can_cut_axis else frozenset((looked_up,)), forbids=forbids,
        repeat_left_when=frozenset((looked_up,)), scatter=index[0] if can_cut_axis else None, scatters_unasked=True,
        keeps_inputs=(1,), differentiable=(0,),
    )  # fmt: skip


def gather_d(op: OpView) -> Signature:
    """One element per index along an axis that stays whole."""
    dims = dims_like(len(op.inputs[0].shape))
    axis = positive(op.argument(0, "dim", 0), len(dims))[0]
    return named(op, [dims, dims], [dims], mesh=dims, fixed=frozenset((dims[axis],)), keeps_inputs=(1,), differentiable=(0,))


def one_hot(op: OpView) -> Signature:
    """Indices to vectors with one element on. MindSpore's strategy lists the output's dims, then the two scalars."""
    index = dims_like(len(op.inputs[0].shape), "i")
    axis = positive(op.argument(1, "axis", -1), len(index) + 1)[0]
    output = (*index[:axis], "depth", *index[axis:])
    return named(
        op, [index, (), ()], [output], entries=(output, (), ()), mesh=output, repeat_left_when=frozenset((output[-1],)),
        differentiable=(),
    )  # fmt: skip


RULES = {"Gather": gather, "GatherD": gather_d, "OneHot": one_hot}
