"""Operators that rearrange elements: views, slices, joins and copies."""

import math
from itertools import accumulate

from ms_symtensor.errors import InputError
from ms_symtensor.ops.quirks import UNDISTRIBUTED, Quirks
from ms_symtensor.ops.rule import Computed, alike, rule
from ms_symtensor.ops.signature import Attribute, OpView, Signature, Unit, dims_like, named


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


def flatten(op: OpView) -> Signature:
    """Neighbouring dims become one, in which the first of them comes first."""
    source, target = op.inputs[0].shape, op.outputs[0].shape
    dims = dims_like(len(source))
    kept = next((i for i, (n, m) in enumerate(zip(source, target, strict=False)) if n != m), len(target))
    outputs = tuple(dims[i] if i <= kept else None for i in range(len(target)))
    return named(op, [dims], [outputs], mesh=dims, unit=Unit.NONE)


_SPLIT = "... a! ... -> *{} ... 1 ... | a = {} 0"
_SWAPPED = "... -> {} [...]p | p = dim0 0 and dim1 1"
_MATRICES = "... a! ... -> @... a! ... | a = from -2"
_ONE_OF = "... a! ... -> *{} ... ... | a = axis 0 0"
_RESIZED = "... a! ..., *~1... -> {} ... 1 ... | a = unlike"
_AT_AXIS = "... a! ..., *~1... -> ... 1 ... | a = axis {} 0"
_NO_VIEW = "MindSpore partitions no mint.broadcast_to: use ops.broadcast_to or Tensor.broadcast_to"
_DIAGONAL = "... a! ... -> {} ... ... 1 | a = dim1 1 0 and dim2 2 1"
_STRETCHED = "... a. ... -> {} 1... ... 1 ... | a = unlike"
_FROM_THE_END = "MindSpore partitions no Transpose whose axes count from the end: write (0, 2, 1) for (0, -1, 1)"

_OF_NEIGHBOURS = (
    "MindSpore partitions no PadV3 but with a constant: use mint.nn.functional.pad or the layer of mint.nn, and ops.concat of"
    " both ends for 'circular'"
)


def _pads_with_neighbours(op: OpView) -> bool:
    return op.attributes.get("mode", "constant") != "constant"


def _counts_from_the_end(op: OpView) -> bool:
    axes = op.argument(0, "perm", ())
    return isinstance(axes, tuple) and any(isinstance(axis, int) and axis < 0 for axis in axes)


RULES = {
    # MindSpore takes no strategy, the layout is that of the producer
    **alike("Cast Contiguous", rule("... -> ...", shardable=False)),
    "StopGradient": rule("~... -> ...", unit=Unit.NONE, shardable=False),
    "Reshape": reshape,
    "Transpose": rule("... -> [...]p | p = perm 0", Quirks(refused=_FROM_THE_END, refused_where=_counts_from_the_end)),
    "ExpandDims": rule("... -> ... a. ... | a = axis 0 0", unit=Unit.NONE),
    "Squeeze": rule("... a ... -> ... ... | a = ones axis 0", unit=Unit.NONE),
    "StridedSlice": strided_slice,
    "Split": rule(_SPLIT.format("", "axis 0")),
    "SplitWithSize": rule(_SPLIT.format("", "dim 1")),
    "SplitTensor": rule(_SPLIT.format("", "dim 1")),
    "Slice": rule("@... a! ... -> ... 1 ... | a = unlike"),
    "Concat": rule("*... a! ... -> ... 1 ... | a = axis 0 0"),
    **alike("Stack StackExt", rule("*... -> ... a. ... | a = axis 0 0")),
    "SliceExt": rule(_RESIZED.format("")),
    "PadV3": rule(_RESIZED.format(""), Quirks(refused=_OF_NEIGHBOURS, refused_where=_pads_with_neighbours)),
    "ReverseV2": rule(_AT_AXIS.format(0), Quirks(rejects_whole_first="a")),
    **alike("RepeatInterleaveInt RepeatElements", rule("...% -> ...%")),
    "BroadcastTo": rule(_STRETCHED.format("")),
    "BroadcastToView": rule(_STRETCHED.format("="), Quirks(refused=_NO_VIEW)),
    "Tile": tile,
    "Meshgrid": rule("*1 -> *1..."),
    # of which MindSpore has no distributed form
    "TransposeView": rule("... -> = [...]p | p = perm 0", UNDISTRIBUTED),
    "TExt": rule("... -> [...]p | p = 0 and 1", UNDISTRIBUTED),
    "TransposeExtView": rule(_SWAPPED.format("="), UNDISTRIBUTED),
    "ExpandDimsView": rule("... -> = ... a. ... | a = axis 0 0", UNDISTRIBUTED, unit=Unit.NONE),
    "SplitWithSizeView": rule(_SPLIT.format("=", "dim 1"), UNDISTRIBUTED),
    **alike("SplitTensorView ChunkView", rule(_SPLIT.format("=", "dim 1"), UNDISTRIBUTED)),
    "Chunk": rule(_SPLIT.format("", "dim 1"), UNDISTRIBUTED),
    **alike("Flatten FlattenExt", Computed(flatten, UNDISTRIBUTED)),
    "DiagonalView": rule(_DIAGONAL.format("="), UNDISTRIBUTED),
    "Diagonal": rule(_DIAGONAL.format(""), UNDISTRIBUTED),
    "Repeat": rule("... a! ... -> 1... ... 1 ... | a = unlike", UNDISTRIBUTED),
    **alike("MatrixBandPart MatrixInverseExt", rule(_MATRICES, UNDISTRIBUTED)),
    "LogMatrixDeterminant": rule("... a! ... -> @... ..., *... ... | a = from -2", UNDISTRIBUTED),
    **alike("SelectExtView UnstackExtView", rule(_ONE_OF.format("="), UNDISTRIBUTED)),
    "Unstack": rule(_ONE_OF.format(""), UNDISTRIBUTED),
    **alike("NarrowView SliceExtView", rule(_RESIZED.format("="), UNDISTRIBUTED)),
    "Roll": rule(_AT_AXIS.format(1), UNDISTRIBUTED),
    **alike(
        "Narrow ConstantPadND Pad ReflectionPad1D ReflectionPad2D ReflectionPad3D ReplicationPad1D ReplicationPad2D"
        " ReplicationPad3D MirrorPad",
        rule(_RESIZED.format(""), UNDISTRIBUTED),
    ),
}  # fmt: skip
