"""Reductions of dims: a cut reduced dim leaves partial results to combine."""

from collections.abc import Callable
from dataclasses import replace

from ms_symtensor.ops.batch_only import batch_only
from ms_symtensor.ops.signature import Combine, Dims, OpView, Signature, always, dims_like, named, positive


def reduction(
    combine: Combine,
    keeps_inputs: tuple[int, ...] = (),
    keeps_outputs: tuple[int, ...] = (),
    position: int = 0,
    **more,
) -> Callable:
    """The dims of argument `axis`, number `position`, disappear (or become 1, with `keep_dims`); partial results are combined by
    `combine`.
    """

    def rule(op: OpView) -> Signature:
        dims = dims_like(len(op.inputs[0].shape))
        axes = positive(op.argument(position, "axis"), len(dims))
        return _reduced(op, dims, axes, combine=combine, keeps_inputs=keeps_inputs, keeps_outputs=keeps_outputs, **more)

    return rule


def arg_with_value(combine: Combine) -> Callable[[OpView], Signature]:
    """Index and value of the largest or smallest element along one axis.

    Where the axis is cut MindSpore combines the values only: the index is the local one, so that it would be wrong.
    """

    def rule(op: OpView) -> Signature:
        dims = dims_like(len(op.inputs[0].shape))
        axes = positive(op.argument(0, "axis", 0), len(dims))
        spoilt = frozenset(dims[a] for a in axes)
        return _reduced(op, dims, axes, combine=combine, spoilt=spoilt, partial_output=1, keeps_outputs=(0,))

    return rule


def _reduced(op: OpView, dims: tuple[str, ...], axes: tuple[int, ...], combine: Combine, **more) -> Signature:
    """Of equal largest elements on several devices each receives the whole gradient there."""
    kept = [d for i, d in enumerate(dims) if i not in axes]
    outputs = [
        [None if i in axes else d for i, d in enumerate(dims)] if len(t.shape) == len(dims) else kept
        for t in op.outputs
    ]
    shared = frozenset(dims[a] for a in axes) if combine in (Combine.MAX, Combine.MIN) else frozenset()
    return named(
        op, [dims], [tuple(o) for o in outputs], mesh=dims, combine=combine, spoils_gradient=shared, **more
    )  # fmt: skip


def top_k(op: OpView) -> Signature:
    """The largest elements along an axis (the last by default) that stays whole, and where they stand."""
    dims = dims_like(len(op.inputs[0].shape))
    axis = positive(op.argument(1, "dim", -1), len(dims))[0] if op.type == "TopkExt" else len(dims) - 1
    found = tuple(None if i == axis else d for i, d in enumerate(dims))
    return named(op, [dims], [found, found], mesh=dims, fixed=frozenset((dims[axis],)), keeps_outputs=(1,))


def whole_axis(
    keeps_inputs: tuple[int, ...] = (), keeps_outputs: tuple[int, ...] = (), default: int = -1, **more
) -> Callable[[OpView], Signature]:
    """An axis that stays whole, and may disappear or become 1: the largest along it and where it stands, a sorted axis."""

    def rule(op: OpView) -> Signature:
        dims = dims_like(len(op.inputs[0].shape))
        axis = positive(op.argument(0, "axis", default), len(dims))[0]
        same = op.outputs[0].shape == op.inputs[0].shape
        outputs: list[Dims] = [dims] * len(op.outputs) if same else []
        for kind in () if same else op.outputs:
            kept = tuple(None if i == axis else d for i, d in enumerate(dims))
            outputs.append(kept if len(kind.shape) == len(dims) else tuple(d for d in kept if d is not None))
        return named(
            op, [dims], outputs, mesh=dims, fixed=frozenset((dims[axis],)), needs_strategy=always if axis == 0 else None,
            keeps_inputs=keeps_inputs, keeps_outputs=keeps_outputs, **more,
        )  # fmt: skip

    return rule


def at_rank(op: OpView) -> Signature:
    """The element of a rank along an axis, and where it stands; the axis stays whole."""
    position = 1 if op.type == "Kthvalue" else 0
    return whole_axis(keeps_outputs=(1,))(replace(op, arguments=op.arguments[position:]))


def cumulative(
    keeps_inputs: tuple[int, ...] = (), keeps_outputs: tuple[int, ...] = ()
) -> Callable[[OpView], Signature]:
    """Running sums or products along an axis that stays whole."""

    def rule(op: OpView) -> Signature:
        dims = dims_like(len(op.inputs[0].shape))
        axis = positive(op.argument(0, "axis", 0), len(dims))[0]
        return named(
            op, [dims], [dims], mesh=dims, fixed=frozenset((dims[axis],)),
            keeps_inputs=keeps_inputs, keeps_outputs=keeps_outputs,
        )  # fmt: skip

    return rule


def spectrum(default: tuple[int, ...] | None, position: int = 1) -> Callable[[OpView], Signature]:
    """Frequencies along axes that stay whole, all of them where neither an argument nor `default` names any."""

    def rule(op: OpView) -> Signature:
        dims = dims_like(len(op.inputs[0].shape))
        named_axes = op.argument(position, "dim")
        axes = {dims[a] for a in positive(default if named_axes is None else named_axes, len(dims))}
        kept = tuple(None if d in axes else d for d in dims)
        return named(op, [dims], [kept], mesh=dims, fixed=frozenset(axes))

    return rule


RULES = {
    **dict.fromkeys(("ReduceSum", "SumExt"), reduction(Combine.SUM)),
    **dict.fromkeys(("ReduceMean", "MeanExt"), reduction(Combine.MEAN)),
    "ReduceMax": reduction(Combine.MAX, (0,), (0,)),
    "ReduceMin": reduction(Combine.MIN, (0,), (0,)),
    "ReduceProd": reduction(Combine.PROD, (0,), (0,)),
    "Max": reduction(Combine.MAX, (0,), (0,)),
    "L2Loss": reduction(Combine.SUM, (0,)),
    **dict.fromkeys(("ReduceAny", "Any"), reduction(Combine.SUM, partial_dtype="int32", differentiable=())),
    "ReduceAll": reduction(Combine.PROD, partial_dtype="int32", differentiable=()),
    "ArgMaxWithValue": arg_with_value(Combine.MAX),
    "ArgMinWithValue": arg_with_value(Combine.MIN),
    **dict.fromkeys(("TopK", "TopkExt"), top_k),
    **dict.fromkeys(("CumSum", "CumsumExt"), cumulative()),
    "MaxDim": whole_axis(keeps_outputs=(1,)),
    **dict.fromkeys(("Sort", "SortExt"), whole_axis(keeps_outputs=(1,))),
    **dict.fromkeys(("Argmax", "Argmin"), whole_axis(differentiable=())),
    **dict.fromkeys(("Cummax", "Cummin"), whole_axis(keeps_outputs=(1,))),
    # of which MindSpore has no distributed form
    "Min": batch_only(reduction(Combine.MIN, (0,), (0,))),
    "MinDim": batch_only(whole_axis(keeps_outputs=(1,))),
    "ArgSort": batch_only(whole_axis(differentiable=())),
    **dict.fromkeys(("ArgMaxExt", "ArgMinExt"), batch_only(reduction(Combine.MAX, differentiable=()))),
    **dict.fromkeys(("ProdExt", "LogSumExp", "LpNorm"), batch_only(reduction(Combine.SUM, (0,), (0,)))),
    **dict.fromkeys(("Var", "Std", "VarMean", "StdMean"), batch_only(reduction(Combine.SUM, (0,), (0,)))),
    **dict.fromkeys(("LinalgVectorNorm", "Norm"), batch_only(reduction(Combine.SUM, (0,), (0,), position=1))),
    "CumProd": cumulative((0,), (0,)),
    **dict.fromkeys(("Kthvalue", "MedianDim", "Median"), batch_only(at_rank)),
    "CumminExt": batch_only(whole_axis(keeps_outputs=(1,))),
    **dict.fromkeys(("CountNonZero", "Nansum"), batch_only(reduction(Combine.SUM, (0,)))),
    "ReduceStd": batch_only(reduction(Combine.SUM, (0,), (0,))),
    **dict.fromkeys(("FFT", "IFFT", "RFFT", "IRFFT"), spectrum((-1,))),
    **dict.fromkeys(("FFT2", "IFFT2", "RFFT2", "IRFFT2"), spectrum((-2, -1))),
    **dict.fromkeys(("FFTN", "IFFTN", "RFFTN", "IRFFTN"), spectrum(None)),
}
