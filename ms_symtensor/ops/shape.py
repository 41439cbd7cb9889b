"""Operators that rearrange elements: views, slices, joins and copies."""

import math
from itertools import accumulate

from ms_symtensor.errors import InputError
from ms_symtensor.ops.batch_only import batch_only
from ms_symtensor.ops.signature import Attribute, Dims, OpView, Signature, Unit, dims_like, named, positive, refused


def cast(op: OpView) -> Signature:
    """Element by element; MindSpore takes no strategy, the layout is that of the producer."""
    dims = dims_like(len(op.inputs[0].shape))
    return named(op, [dims], [dims], mesh=dims, shardable=False)


def stop_gradient(op: OpView) -> Signature:
    """Its input as it is, through which no gradient flows back."""
    dims = dims_like(len(op.inputs[0].shape))
    return named(op, [dims], [dims], mesh=dims, unit=Unit.NONE, shardable=False, differentiable=())


def reshape(op: OpView) -> Signature:
    """Dims that a cut passes through: the major dim of every group of dims that keeps its number of elements.

    `[b*s, h] -> [b, s, n, d]` cuts as `g0 g1 -> g0 . g1 .` where g0 goes up to b slices and g1 up to n.
    """
    source, target = op.inputs[0].shape, op.outputs[0].shape
    first: list[str | None] = [None] * len(source)
    second: list[str | None] = [None] * len(target)
    left = {n: i for i, n in reversed([*enumerate(accumulate(source[:-1], int.__mul__, initial=1))])}
    right = {n: i for i, n in reversed([*enumerate(accumulate(target[:-1], int.__mul__, initial=1))])}
    for number, before in enumerate(sorted(left.keys() & right.keys())):
        i, j = (_major(shape, start) for shape, start in ((source, left[before]), (target, right[before])))
        if i is not None and j is not None and math.prod(source[:i]) == math.prod(target[:j]):
            first[i] = second[j] = f"g{number}"
    return named(op, [tuple(first)], [tuple(second)], unit=Unit.NONE, shardable=False)


def _major(shape: tuple[int, ...], start: int) -> int | None:
    return next((i for i in range(start, len(shape)) if shape[i] > 1), None)


def transpose(op: OpView) -> Signature:
    """The dims in another order."""
    dims = dims_like(len(op.inputs[0].shape))
    order = positive(op.argument(0, "perm"), len(dims))
    return named(op, [dims], [tuple(dims[i] for i in order)], mesh=dims)


def expand_dims(op: OpView) -> Signature:
    """One more dim of size one."""
    dims = dims_like(len(op.inputs[0].shape))
    axis = positive(op.argument(0, "axis", 0), len(dims) + 1)[0]
    return named(op, [dims], [(*dims[:axis], None, *dims[axis:])], mesh=dims, unit=Unit.NONE)


def squeeze(op: OpView) -> Signature:
    """Dims of size one disappear."""
    shape = op.inputs[0].shape
    dims = dims_like(len(shape))
    gone = op.argument(0, "axis", ())
    axes = positive(gone, len(dims)) if gone not in ((), None) else tuple(i for i, n in enumerate(shape) if n == 1)
    return named(op, [dims], [tuple(d for i, d in enumerate(dims) if i not in axes)], mesh=dims, unit=Unit.NONE)


def strided_slice(op: OpView) -> Signature:
    """A dim that is not taken in full, or not in steps of one, stays whole; masks may drop or add dims."""
    shape = op.inputs[0].shape
    begin, end, strides = (_numbers(op, i, name) for i, name in enumerate(("begin", "end", "strides")))
    begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_mask = (
        int(op.argument(3 + i, f"{name}_mask", 0) or 0)  # type: ignore[arg-type]
        for i, name in enumerate(("begin", "end", "ellipsis", "new_axis", "shrink_axis"))
    )
    if ellipsis_mask:
        raise InputError(
            f"{op.name} (StridedSlice): MindSpore cannot shard a slice with an ellipsis; write its dims out"
        )
    dims = dims_like(len(shape))
    outputs: list[str | None] = []
    fixed: set[str] = set()
    position = 0  # in the input: a new axis takes none of it
    for i in range(len(begin)):
        bit = 1 << i
        if new_axis_mask & bit:
            outputs.append(None)
            continue
        size, dim = shape[position], dims[position]
        position += 1
        first = 0 if begin_mask & bit else begin[i]
        last = size if end_mask & bit else end[i]
        if first != 0 or last < size or strides[i] != 1 or shrink_mask & bit:
            fixed.add(dim)
        if not shrink_mask & bit:
            outputs.append(None if dim in fixed else dim)
    outputs += dims[position:]
    return named(op, [dims], [tuple(outputs)], mesh=dims, fixed=frozenset(fixed))


def _numbers(op: OpView, position: int, name: str) -> tuple[int, ...]:
    value: Attribute = op.argument(position, name)
    if not isinstance(value, tuple) or not all(isinstance(v, int) for v in value):
        raise InputError(
            f"{op.name} ({op.type}): {name} must be a tuple of numbers known at compile time, not {value!r}"
        )
    return value  # type: ignore[return-value]


def split(op: OpView) -> Signature:
    """Equal parts along an axis that stays whole."""
    return _parts(op, positive(op.argument(0, "axis", 0), len(op.inputs[0].shape))[0])


def split_with_size(op: OpView) -> Signature:
    """Parts of given sizes along an axis that stays whole."""
    return _parts(op, positive(op.argument(1, "dim", 0), len(op.inputs[0].shape))[0])


def _parts(op: OpView, axis: int) -> Signature:
    dims = dims_like(len(op.inputs[0].shape))
    part = tuple(None if i == axis else d for i, d in enumerate(dims))
    return named(op, [dims], [part] * len(op.outputs), mesh=dims, fixed=frozenset((dims[axis],)))


def split_tensor(op: OpView) -> Signature:
    """Parts of a given size along an axis that stays whole."""
    return _parts(op, positive(op.argument(1, "dim", 0), len(op.inputs[0].shape))[0])


def slice_(op: OpView) -> Signature:
    """A dim that is not taken in full stays whole."""
    dims = dims_like(len(op.inputs[0].shape))
    partly = frozenset(
        d for d, n, taken in zip(dims, op.inputs[0].shape, op.outputs[0].shape, strict=True) if taken < n
    )
    return named(op, [dims], [tuple(None if d in partly else d for d in dims)], mesh=dims, fixed=partly)


def concat(op: OpView) -> Signature:
    """Tensors joined along an axis that stays whole."""
    dims = dims_like(len(op.inputs[0].shape))
    axis = positive(op.argument(0, "axis", 0), len(dims))[0]
    joined = tuple(None if i == axis else d for i, d in enumerate(dims))
    return named(op, [dims] * len(op.inputs), [joined], mesh=dims, fixed=frozenset((dims[axis],)))


def stack(op: OpView) -> Signature:
    """Tensors joined along a new axis."""
    dims = dims_like(len(op.inputs[0].shape))
    axis = positive(op.argument(0, "axis", 0), len(dims) + 1)[0]
    return named(op, [dims] * len(op.inputs), [(*dims[:axis], None, *dims[axis:])], mesh=dims)


def broadcast_to(op: OpView) -> Signature:
    """Dims of size one repeated, leading dims added: these stay whole."""
    source, target = op.inputs[0].shape, op.outputs[0].shape
    dims = dims_like(len(source))
    new = len(target) - len(source)
    kept = tuple(d if n == m else None for d, n, m in zip(dims, source, target[new:], strict=True))
    return named(op, [dims], [(None,) * new + kept], mesh=dims)


def broadcast_view(op: OpView) -> Signature:
    """As BroadcastTo, for one device: MindSpore cuts the input and leaves the shape that is asked for as it is."""
    return refused(broadcast_to(op), "MindSpore partitions no mint.broadcast_to: use ops.broadcast_to or Tensor.expand")


def tile(op: OpView) -> Signature:
    """Copies side by side. MindSpore's strategy lists the output's dims; a copied dim is cut into groups of copies."""
    multiples = _numbers(op, 0, "multiples")
    target = op.outputs[0].shape
    source = (1,) * (len(target) - len(op.inputs[0].shape)) + op.inputs[0].shape
    times = tuple(t // n for t, n in zip(target, source, strict=True))
    dims = tuple(f"d{i}" if n == 1 else f"copies{i}" for i, n in enumerate(times))
    new = len(target) - len(op.inputs[0].shape)
    if len(multiples) != len(target):
        raise InputError(
            f"{op.name} (Tile): give a multiple for every dim of the output {list(target)}, not {multiples}"
        )
    rejects = (lambda devices: times[0] % devices > 0) if times[0] > 1 else None
    return named(
        op, [tuple(d if n == 1 else None for d, n in zip(dims, times, strict=True))[new:]], [dims],
        entries=(tuple(d if t > 1 else None for d, t in zip(dims, target, strict=True)),), mesh=dims,
        sizes={d: n for d, n in zip(dims, times, strict=True) if n > 1}, leading=dims[0], needs_strategy=rejects,
    )  # fmt: skip


def swapped(op: OpView) -> Signature:
    """Two dims change places."""
    dims = [*dims_like(len(op.inputs[0].shape))]
    a, b = (positive(op.argument(i, f"dim{i}"), len(dims))[0] for i in range(2))
    order = [*dims]
    order[a], order[b] = order[b], order[a]
    return named(op, [tuple(dims)], [tuple(order)], mesh=tuple(dims))


def flatten(op: OpView) -> Signature:
    """Neighbouring dims become one, in which the first of them comes first."""
    source, target = op.inputs[0].shape, op.outputs[0].shape
    dims = dims_like(len(source))
    kept = next((i for i, (n, m) in enumerate(zip(source, target, strict=False)) if n != m), len(target))
    outputs = tuple(dims[i] if i <= kept else None for i in range(len(target)))
    return named(op, [dims], [outputs], mesh=dims, unit=Unit.NONE)


def one_of(op: OpView) -> Signature:
    """A number along an axis, or several: the axis disappears from the outputs."""
    dims = dims_like(len(op.inputs[0].shape))
    axis = positive(op.argument(0, "axis", 0), len(dims))[0]
    left = tuple(d for i, d in enumerate(dims) if i != axis)
    return named(op, [dims], [left] * len(op.outputs), mesh=dims, fixed=frozenset((dims[axis],)))


def along_axis(op: OpView) -> Signature:
    """Elements of an axis (or several) left out, moved or added: it stays whole, the others are as they were."""
    dims = dims_like(len(op.inputs[0].shape))
    named_axes = positive(op.argument(1 if op.type == "Roll" else 0, "axis", 0), len(dims)) if op.type in _AXES else ()
    axes = {
        *named_axes,
        *(i for i, (n, m) in enumerate(zip(op.inputs[0].shape, op.outputs[0].shape, strict=True)) if n != m),
    }
    kept = tuple(None if i in axes else d for i, d in enumerate(dims))
    numbers: list[Dims] = [(None,) * len(t.shape) for t in op.inputs[1:]]  # what is filled in, as a tensor
    return named(op, [dims, *numbers], [kept], mesh=dims, fixed=frozenset(dims[i] for i in axes), differentiable=(0,))


def diagonal(op: OpView) -> Signature:
    """The diagonal of two dims as the last one: these stay whole."""
    dims = dims_like(len(op.inputs[0].shape))
    across = [positive(op.argument(1 + i, f"dim{i + 1}", i), len(dims))[0] for i in range(2)]
    left = tuple(d for i, d in enumerate(dims) if i not in across)
    return named(op, [dims], [(*left, None)], mesh=dims, fixed=frozenset(dims[i] for i in across))


def repeated_whole(op: OpView) -> Signature:
    """The tensor side by side so many times per dim, with leading dims where there are more numbers than dims."""
    source, target = op.inputs[0].shape, op.outputs[0].shape
    dims = dims_like(len(source))
    new = len(target) - len(source)
    kept = tuple(d if n == m else None for d, n, m in zip(dims, source, target[new:], strict=True))
    return named(op, [dims], [(None,) * new + kept], mesh=dims, fixed=frozenset(dims) - frozenset(kept))


def of_matrices(op: OpView) -> Signature:
    """Square matrices, each by itself: the last two dims stay whole."""
    dims = dims_like(len(op.inputs[0].shape))
    outputs = [dims[: len(t.shape)] for t in op.outputs]
    return named(op, [dims], outputs, mesh=dims, fixed=frozenset(dims[-2:]), keeps_outputs=(0,))


def grids(op: OpView) -> Signature:
    """Coordinates of all points of a grid: MindSpore cuts neither vectors nor grids."""
    return named(op, [(None,) for _ in op.inputs], [(None,) * len(t.shape) for t in op.outputs])


_AXES = ("ReverseV2", "Roll")
"""Of these an argument says which; of others that the axis has another size afterwards."""


def repeated(op: OpView) -> Signature:
    """Every element of an axis so many times in a row."""
    dims = dims_like(len(op.inputs[0].shape))
    if len(op.outputs[0].shape) != len(dims):
        raise InputError(f"{op.name} ({op.type}): say along which dim elements are repeated")
    return named(op, [dims], [dims], mesh=dims)


RULES = {
    **dict.fromkeys(("Cast", "Contiguous"), cast),
    "StopGradient": stop_gradient,
    "Reshape": reshape,
    "Transpose": transpose,
    "ExpandDims": expand_dims,
    "Squeeze": squeeze,
    "StridedSlice": strided_slice,
    "Split": split,
    "SplitWithSize": split_with_size,
    "SplitTensor": split_tensor,
    "Slice": slice_,
    "Concat": concat,
    **dict.fromkeys(("Stack", "StackExt"), stack),
    **dict.fromkeys(("SliceExt", "PadV3", "ReverseV2"), along_axis),
    **dict.fromkeys(("RepeatInterleaveInt", "RepeatElements"), repeated),
    # of which MindSpore has no distributed form
    **dict.fromkeys(("TransposeView", "TExt"), batch_only(transpose)),
    "ExpandDimsView": batch_only(expand_dims),
    "SplitWithSizeView": batch_only(split_with_size),
    "TransposeExtView": batch_only(swapped),
    **dict.fromkeys(("Flatten", "FlattenExt"), batch_only(flatten)),
    **dict.fromkeys(("SplitTensorView", "ChunkView", "Chunk"), batch_only(split_tensor)),
    **dict.fromkeys(("DiagonalView", "Diagonal"), batch_only(diagonal)),
    "Repeat": batch_only(repeated_whole),
    **dict.fromkeys(("MatrixBandPart", "MatrixInverseExt", "LogMatrixDeterminant"), batch_only(of_matrices)),
    "Meshgrid": grids,
    **dict.fromkeys(("SelectExtView", "Unstack", "UnstackExtView"), batch_only(one_of)),
    **dict.fromkeys(
        (
            "NarrowView", "Narrow", "SliceExtView", "ConstantPadND", "Pad", "Roll", "ReflectionPad1D", "ReflectionPad2D",
            "ReflectionPad3D", "ReplicationPad1D", "ReplicationPad2D", "ReplicationPad3D",
        ),
        batch_only(along_axis),
    ),
    "Tile": tile,
    "BroadcastTo": broadcast_to,
    "BroadcastToView": broadcast_view,
}  # fmt: skip
