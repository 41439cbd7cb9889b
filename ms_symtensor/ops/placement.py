"""From a strategy to layouts: how MindSpore lays the tensors of one operator on the devices.

A strategy for MindSpore is one integer per dim of every tensor input. The cut degrees of the signature's dims follow from
it; device matrix and tensor maps follow from the degrees.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ms_symtensor.errors import InputError, InvalidStrategyError
from ms_symtensor.ops.signature import Combine, Dims, FixedLayouts, OpView, Signature
from ms_symtensor.tensor.extended_layout import ExtendedMap, cutting_axes, extended_layout
from ms_symtensor.tensor.layout import DeviceGroup, Layout, layout_of

UNSUMMED = "float64"
"""AllReduce takes no tensors of this type (MindSpore 2.10: "must be a type of {...}, but got Tensor[Float64]")."""


@dataclass(frozen=True)
class LaidOut:
    """A strategy given as MindSpore's Layout objects: one device matrix, a tensor map per input, and per output or None."""

    device_matrix: tuple[int, ...]
    inputs: tuple[ExtendedMap, ...]
    outputs: tuple[ExtendedMap, ...] | None = None


@dataclass(frozen=True)
class OpStrategy:
    """What `primitive.shard(inputs, outputs)` is given: slices per dim of every tensor input, and of the outputs or None.

    `laid_out` tells on which axes of which device matrix the slices lie, where the user said so with Layout objects.
    """

    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...] | None = None
    laid_out: LaidOut | None = None


@dataclass(frozen=True)
class PartialSum:
    """Partial results combined over `group` by one collective, ReduceScatter along dim `dim` or (None) AllReduce.

    They have the shape (per device) of output number `output` before it is scattered, and its element type or `dtype`.
    """

    group: DeviceGroup
    combine: Combine
    dim: int | None = None
    output: int = 0
    dtype: str | None = None


@dataclass(frozen=True)
class Placement:
    """Layouts of an operator's tensors. `outputs` hold after `partial` has been combined, `computed` before."""

    inputs: tuple[Layout, ...]
    computed: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    partial: PartialSum | None


def strategy_of(signature: Signature, cuts: Mapping[str, int], scatter: bool = False) -> OpStrategy:
    """The strategy that cuts each dim as `cuts` says (missing: 1); `scatter` asks for a scattered partial sum."""

    def per_dim(dims: Dims) -> tuple[int, ...]:
        return tuple(cuts.get(d, 1) if d else 1 for d in dims)

    inputs = tuple(per_dim(dims) for dims in signature.entries or signature.inputs)
    partial = math.prod(cuts.get(d, 1) for d in signature.reduced)
    if partial == 1 or not (scatter or signature.implicit_reduce_scatter):
        return OpStrategy(inputs)
    first = signature.outputs[0]
    out = tuple(cuts.get(d, 1) * (partial if scatter and d == signature.scatter else 1) if d else 1 for d in first)
    return OpStrategy(inputs, (out,))


def cuts_of(op: OpView, signature: Signature, strategy: OpStrategy, device_num: int) -> dict[str, int]:
    """Slices per named dim under `strategy`.

    Errors: InvalidStrategyError naming the operator and the rule that is broken, as MindSpore would reject it.
    """
    if signature.layouts is not None:
        return {}
    where = f"{op.name} ({op.type}): strategy {strategy.inputs}"
    # Layout objects are those of the tensors themselves.
    entries = signature.inputs if strategy.laid_out is not None else signature.entries or signature.inputs
    if len(strategy.inputs) != len(entries):
        raise InvalidStrategyError(f"{where} has {len(strategy.inputs)} entries for {len(entries)} tensor inputs")
    cuts: dict[str, int] = {}
    first: dict[str, str] = {}
    for position, (degrees, dims) in enumerate(zip(strategy.inputs, entries, strict=True)):
        if len(degrees) != len(dims):
            raise InvalidStrategyError(f"{where}: input {position} has {len(dims)} dims, the strategy {len(degrees)}")
        for number, (degree, dim) in enumerate(zip(degrees, dims, strict=True)):
            if dim is None or dim in signature.fixed:
                if degree != 1:
                    raise InvalidStrategyError(
                        f"{where}: a dim of input {position} that must stay whole is cut by {degree}"
                    )
                continue
            at_input = f"dim {number} of input {position}"
            if cuts.setdefault(dim, degree) != degree:
                raise InvalidStrategyError(
                    f"{where}: {first[dim]} is cut by {cuts[dim]}, and {at_input}, which is the same dim {dim!r}, by {degree}:"
                    " cut them alike"
                )
            first.setdefault(dim, at_input)
            if degree < 1 or signature.sizes[dim] % degree:
                raise InvalidStrategyError(f"{where}: {degree} does not divide {signature.sizes[dim]} (dim {dim!r})")
    used = math.prod(cuts.values())
    if device_num % used:
        raise InvalidStrategyError(f"{where} needs {used} devices, which does not divide {device_num}")
    if signature.forbids is not None and (reason := signature.forbids(cuts, device_num)):
        raise InvalidStrategyError(f"{where}: {reason}")
    return cuts


def place(op: OpView, signature: Signature, strategy: OpStrategy, device_num: int) -> Placement:
    """Layouts of all tensors of `op` on `device_num` devices, and the partial sum its forward pass leaves."""
    if signature.layouts is not None:
        return _given(op, signature.layouts, device_num)
    cuts = cuts_of(op, signature, strategy, device_num)
    if strategy.laid_out is not None:
        try:
            return _on_axes(op, signature, strategy.laid_out, device_num)
        except InputError as error:
            raise InvalidStrategyError(f"{op.name} ({op.type}): {error}") from error
    matrix, axis_of = _device_matrix(signature, cuts, device_num)

    def layout(dims: Dims, shape: tuple[int, ...]) -> Layout:
        minor = len(matrix) - 1
        return layout_of(matrix, tuple([minor - axis_of[d] if d else -1 for d in dims]), shape)

    inputs = tuple(layout(d, t.shape) for d, t in zip(signature.inputs, op.inputs, strict=True))
    computed = tuple(layout(d, t.shape) for d, t in zip(signature.outputs, op.outputs, strict=False))
    axes = tuple(axis_of[d] for d in signature.reduced if cuts.get(d, 1) > 1)
    is_computed = strategy.outputs is not None and _agree(strategy.outputs, computed)
    if not axes:
        if strategy.outputs is not None and not is_computed:
            raise InvalidStrategyError(
                f"{op.name} ({op.type}): the output strategy {strategy.outputs} differs from {computed[0].cuts}, which the "
                "input strategy gives, and no partial sum is left to scatter"
            )
        return Placement(inputs, computed, computed, None)
    if op.outputs[signature.partial_output].dtype == UNSUMMED and signature.partial_dtype is None:
        raise InvalidStrategyError(
            f"{op.name} ({op.type}): MindSpore combines no {UNSUMMED} of several devices: cast it to float32 before"
        )
    partial = PartialSum(
        DeviceGroup(matrix, axes), signature.combine, None, signature.partial_output, signature.partial_dtype
    )
    whole = Placement(inputs, computed, computed, partial)
    if strategy.outputs is None:
        return _scattered(op, signature, whole) if _implicit_reduce_scatter(signature, whole) else whole
    if is_computed:
        return whole
    if signature.scatter is None or strategy.outputs != strategy_of(signature, cuts, scatter=True).outputs:
        raise InvalidStrategyError(
            f"{op.name} ({op.type}): MindSpore offers no output strategy {strategy.outputs} here"
        )
    return _scattered(op, signature, whole)


def _agree(outputs: tuple[tuple[int, ...], ...], computed: tuple[Layout, ...]) -> bool:
    """Whether an output strategy asks for no more than what the inputs give."""
    return 1 <= len(outputs) <= len(computed) and outputs[0] == computed[0].cuts


def _given(op: OpView, layouts: FixedLayouts, device_num: int) -> Placement:
    """The placement of an operator that the user laid out."""
    for layout in (*layouts.inputs, *layouts.outputs):
        if layout.device_num != device_num:
            raise InvalidStrategyError(
                f"{op.name} ({op.type}): its layouts are for {layout.device_num} devices, not for {device_num}"
            )
    return Placement(layouts.inputs, layouts.outputs, layouts.outputs, None)


def _on_axes(op: OpView, signature: Signature, given: LaidOut, device_num: int) -> Placement:
    """The placement under Layout objects: the user's device matrix and axes in the place of MindSpore's own choice."""
    matrix = given.device_matrix
    if math.prod(matrix) != device_num:
        raise InvalidStrategyError(f"{op.name} ({op.type}): its layouts on {matrix} are not for {device_num} devices")
    axes_of: dict[str, tuple[int, ...]] = {}
    for dims, tensor_map in zip(signature.inputs, given.inputs, strict=True):
        for dim, entry in zip(dims, tensor_map, strict=True):
            axes = cutting_axes(entry, matrix)
            if dim is not None and axes_of.setdefault(dim, axes) != axes:
                raise InvalidStrategyError(
                    f"{op.name} ({op.type}): dim {dim!r} lies on different device axes in two layouts; give it the same"
                )

    def axes_per_dim(dims: Dims) -> tuple[tuple[int, ...], ...]:
        return tuple(axes_of.get(d, ()) if d else () for d in dims)

    inputs = tuple(extended_layout(matrix, m, t.shape) for m, t in zip(given.inputs, op.inputs, strict=True))
    computed = tuple(
        extended_layout(matrix, axes_per_dim(d), t.shape) for d, t in zip(signature.outputs, op.outputs, strict=False)
    )
    reduced = tuple(axis for d in signature.reduced for axis in axes_of.get(d, ()))
    group = DeviceGroup(matrix, tuple(sorted(len(matrix) - 1 - a for a in reduced)))
    partial = (
        PartialSum(group, signature.combine, None, signature.partial_output, signature.partial_dtype)
        if reduced
        else None
    )
    if given.outputs is None:
        return Placement(inputs, computed, computed, partial)
    wanted = tuple(tuple(cutting_axes(e, matrix) for e in m) for m in given.outputs)
    plain = axes_per_dim(signature.outputs[0])
    if wanted[0] == plain:
        return Placement(inputs, computed, computed, partial)
    scattered = tuple(
        axes + reduced if d is not None and d == signature.scatter else axes
        for d, axes in zip(signature.outputs[0], plain, strict=True)
    )
    if partial is None or wanted[0] != scattered:
        raise InvalidStrategyError(
            f"{op.name} ({op.type}): MindSpore offers no output layout {given.outputs[0]} here: its inputs give {plain}"
        )
    position = signature.outputs[0].index(signature.scatter)
    outputs = (extended_layout(matrix, wanted[0], op.outputs[0].shape), *computed[1:])
    return Placement(inputs, computed, outputs, replace(partial, dim=position))


def _device_matrix(
    signature: Signature, cuts: Mapping[str, int], device_num: int
) -> tuple[tuple[int, ...], dict[str, int]]:
    """The device matrix and the axis (from the left) of every dim; left-over devices repeat the work on one more axis."""
    degrees = [cuts.get(d, 1) for d in signature.mesh]
    repeat = device_num // math.prod(degrees)
    extra = [] if repeat == 1 else [repeat]
    left = any(cuts.get(d, 1) > 1 for d in signature.repeat_left_when)
    shift = len(extra) if left else 0
    matrix = tuple(extra + degrees if left else degrees + extra)
    return matrix or (1,), {d: i + shift for i, d in enumerate(signature.mesh)}


def _implicit_reduce_scatter(signature: Signature, whole: Placement) -> bool:
    assert whole.partial is not None
    if (
        not signature.implicit_reduce_scatter or signature.scatter not in signature.outputs[0]
    ):  # a dim of size 1 is none
        return False
    first, dim = whole.computed[0], signature.outputs[0].index(signature.scatter)
    return first.cut(dim) == 1 and first.shape[dim] % whole.partial.group.size == 0


def _scattered(op: OpView, signature: Signature, whole: Placement) -> Placement:
    """The placement whose partial sum is scattered: the output's device matrix joins the scatter dim with the reduced dim."""
    assert whole.partial is not None and signature.scatter is not None
    matrix, first = whole.computed[0].device_matrix, whole.computed[0]
    dim = signature.outputs[0].index(signature.scatter)
    axis, last = len(matrix) - 1 - first.tensor_map[dim], whole.partial.group.axes[-1]
    between = matrix[axis:last] if signature.scatters_whole_only else matrix[axis + 1 : last]
    if len(whole.partial.group.axes) > 1 or last < axis or any(n > 1 for n in between):
        raise InvalidStrategyError(
            f"{op.name} ({op.type}): a partial sum over dims {signature.reduced} cannot be scattered along dim {dim}"
        )
    if first.shape[dim] % (matrix[axis] * matrix[last]):
        raise InvalidStrategyError(
            f"{op.name} ({op.type}): dim {dim} of size {first.shape[dim]} does not divide into "
            f"{matrix[axis] * matrix[last]} scattered slices"
        )
    joined = (*matrix[:axis], matrix[axis] * matrix[last], *matrix[axis + 1 : last], *matrix[last + 1 :])
    outputs = []
    for layout in whole.computed:
        axes = [len(matrix) - 1 - a if a >= 0 else None for a in layout.tensor_map]
        moved = [a if a is None or a < last else a - 1 for a in axes]
        outputs.append(Layout(joined, tuple(-1 if a is None else len(joined) - 1 - a for a in moved), layout.shape))
    return Placement(whole.inputs, whole.computed, tuple(outputs), replace(whole.partial, dim=dim))
