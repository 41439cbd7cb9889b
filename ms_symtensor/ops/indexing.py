"""Look-ups by index, and their inverse, one-hot vectors."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from ms_symtensor.ops.batch_only import batch_only, cut_along_batch
from ms_symtensor.ops.signature import Dims, OpView, Signature, always, dims_like, named, positive, refused


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


def gather_nd(op: OpView) -> Signature:
    """What stands at `indices[..., :]`, a place each: the indices' dims may be cut, the tensor stays whole."""
    table, index = (len(t.shape) for t in op.inputs)
    places = dims_like(index - 1, "i")
    rest = len(op.outputs[0].shape) - len(places)
    return named(
        op, [(None,) * table, (*places, None)], [(*places, *(None,) * rest)], mesh=places, leading=next(iter(places), None),
        keeps_inputs=(1,), differentiable=(0,),
    )  # fmt: skip


def segment_sum(op: OpView) -> Signature:
    """Rows added up by the segment that each of them belongs to: `e w, e -> . w`; a cut of the rows leaves partial sums."""
    rank, ids = (len(t.shape) for t in op.inputs)
    rows, width = dims_like(ids, "e"), dims_like(rank - ids, "w")
    return named(
        op, [(*rows, *width), rows], [(None, *width)], mesh=(*rows, *width), keeps_inputs=(1,), differentiable=(0,)
    )


def scatter(keeps_inputs: tuple[int, ...] = (1,)) -> Callable[[OpView], Signature]:
    """A tensor with `updates` put in, or added, at `indices[..., :]`: the dims that these address stay whole, others may be cut.

    MindSpore cuts nothing of one that is given no strategy.
    """

    def rule(op: OpView) -> Signature:
        dims, index = dims_like(len(op.inputs[0].shape)), len(op.inputs[1].shape)
        addressed = op.inputs[1].shape[-1]
        updates = ((None,) * (index - 1)) + dims[addressed:]
        return named(
            op, [dims, (None,) * index, updates], [dims], mesh=dims, fixed=frozenset(dims[:addressed]),
            keeps_inputs=keeps_inputs, differentiable=(0, 2),
        )  # fmt: skip

    return rule


def index_add(op: OpView) -> Signature:
    """`source` added to a tensor at one list of indices; the axis stays whole."""
    dims = dims_like(len(op.inputs[0].shape))
    axis = positive(op.argument(0, "dim", 0), len(dims))[0]
    added = tuple(None if i == axis else d for i, d in enumerate(dims))
    return named(
        op, [dims, (None,), added], [dims], mesh=dims, fixed=frozenset((dims[axis],)), keeps_inputs=(1,), differentiable=(0, 2),
        needs_strategy=always,
    )  # fmt: skip


def index_fill(op: OpView) -> Signature:
    """One number put in at one list of indices along an axis that stays whole."""
    dims = dims_like(len(op.inputs[0].shape))
    axis = positive(op.argument(0, "dim", 0), len(dims))[0]
    return named(
        op, [dims, (None,)], [dims], mesh=dims, fixed=frozenset((dims[axis],)), keeps_inputs=(1,), differentiable=(0,)
    )


def scatter_along(op: OpView) -> Signature:
    """As `scatter_elements`, of which there is no distributed form: another input has the first dim, so that it is not cut."""
    found = scatter_elements(op)
    return cut_along_batch(op, found, "write the sum of one-hot vectors of the indices times what is put in")


def scatter_elements(op: OpView) -> Signature:
    """A tensor with one element per index put in, or added, along an axis that stays whole."""
    dims = dims_like(len(op.inputs[0].shape))
    axis = positive(op.argument(0, "axis", 0), len(dims))[0]
    put = tuple(None if i == axis else d for i, d in enumerate(dims))
    return named(
        op,
        [dims, *[put] * (len(op.inputs) - 1)],
        [dims],
        mesh=dims,
        fixed=frozenset((dims[axis],)),
        keeps_inputs=(0, 1, 2)[: len(op.inputs)],
        differentiable=(0, 2)[: len(op.inputs) - 1],
    )


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


def index_of_tensors(op: OpView) -> Signature:
    """`mint.index_select`'s relative for several index tensors, which MindSpore does not partition."""
    whole: list[Dims] = [(None,) * len(t.shape) for t in op.inputs]
    found = named(op, whole, [(None,) * len(op.outputs[0].shape)], keeps_inputs=(1,), differentiable=(0,))
    return refused(
        found, "MindSpore partitions no tensor indexed by tensors with Index: use ops.gather, or ops.gather_nd"
    )


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
    **dict.fromkeys(("Gather", "SparseGatherV2"), gather),
    "GatherD": gather_d,
    "IndexSelect": index_select,
    "OneHot": one_hot,
    "OneHotExt": one_hot_ext,
    "Embedding": embedding,
    "GatherNd": gather_nd,
    "IndexAddExt": index_add,
    **dict.fromkeys(("TensorScatterElements", "Scatter", "ScatterAddExt", "ScatterValue"), scatter_along),
    "IndexFillScalar": batch_only(index_fill),
    "Index": index_of_tensors,
    "UnsortedSegmentSum": segment_sum,
    **dict.fromkeys(("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub"), scatter()),
    **dict.fromkeys(
        ("TensorScatterMul", "TensorScatterDiv", "TensorScatterMax", "TensorScatterMin"), scatter((0, 1, 2))
    ),
}
