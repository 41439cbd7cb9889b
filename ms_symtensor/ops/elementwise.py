"""Operators that work element by element, with broadcasting."""

from collections.abc import Callable
from dataclasses import replace

from ms_symtensor.ops.batch_only import batch_only
from ms_symtensor.ops.signature import Dims, OpView, Signature, always, dims_like, named, positive, refused


def elementwise(
    keeps_inputs: tuple[int, ...] = (),
    keeps_outputs: tuple[int, ...] = (),
    differentiable: tuple[int, ...] | None = None,
    bilinear: bool = False,
    linear: int | None = None,
    operations: float = 0.0,
) -> Callable[[OpView], Signature]:
    """Every dim of the output is a dim of every input that has it; a dim of size one is broadcast.

    `keeps_inputs`/`keeps_outputs`: what the gradient reads, e.g. both factors of Mul, nothing of Add. `operations`: see
    `Signature`.
    """

    def rule(op: OpView) -> Signature:
        dims = dims_like(len(op.outputs[0].shape))

        def trailing(shape: tuple[int, ...]) -> Dims:
            return dims[len(dims) - len(shape) :]

        return named(
            op, [trailing(t.shape) for t in op.inputs], [trailing(t.shape) for t in op.outputs], mesh=dims,
            keeps_inputs=keeps_inputs, keeps_outputs=keeps_outputs, differentiable=differentiable, bilinear=bilinear,
            linear=linear, operations=operations,
            leading=next(iter(dims), None),
        )  # fmt: skip

    return rule


def choice(op: OpView) -> Signature:
    """One of two tensors by a mask; MindSpore cuts the mask's first dim of one that is given no strategy.

    It takes one cut for all three, so that a dim that is broadcast stays whole, and no tensor with fewer dims.
    """
    found = replace(elementwise(keeps_inputs=(0,), differentiable=(1, 2))(op), leading=None)
    shape = op.outputs[0].shape
    if any(len(t.shape) != len(shape) for t in op.inputs):
        reason = (
            "MindSpore takes no number, and no tensor with fewer dims, beside a mask: ops.masked_fill takes a number"
        )
        return refused(found, reason)
    broadcast = {f"d{i}" for t in op.inputs for i, (n, m) in enumerate(zip(t.shape, shape, strict=True)) if n != m}
    rejected = "d0" in broadcast and op.inputs[0].shape[0] > 1
    return replace(found, fixed=frozenset(broadcast), needs_strategy=always if rejected else None)


def per_channel(op: OpView) -> Signature:
    """`n c ..., c -> n c ...`: one weight for every channel, or one for all."""
    dims = dims_like(len(op.inputs[0].shape))
    return named(op, [dims, (dims[1 % len(dims)],)], [dims], mesh=dims, keeps_inputs=(0, 1))


def bias(op: OpView) -> Signature:
    """`n c ..., c -> n c ...`: one number for every channel, which MindSpore takes dim 1 for."""
    dims = dims_like(len(op.inputs[0].shape))
    return named(op, [dims, (dims[1],)], [dims], mesh=dims, leading=dims[0])


def triangle(op: OpView) -> Signature:
    """What lies on one side of the diagonal of the last two dims, which a slice by itself does not know.

    MindSpore 2.10 moves the diagonal of a slice of Tril, but in the user's primitive: compiled again, for an evaluation, it is
    moved again.
    """
    dims = dims_like(len(op.inputs[0].shape))
    return named(op, [dims], [dims], mesh=dims, fixed=frozenset(dims[-2:]))


def rotary(op: OpView) -> Signature:
    """Positions turned by their cosines and sines, in pairs of elements of the last dim, which stays whole.

    MindSpore cuts nothing of one that is given no strategy.
    """
    last = f"d{len(op.outputs[0].shape) - 1}"
    return replace(elementwise((1, 2))(op), fixed=frozenset((last,)), leading=last)


def power_of_number(op: OpView) -> Signature:
    """A number to the power of every element."""
    reason = "MindSpore partitions no power of a number: write ops.exp(x * log(number)), or ops.pow of two tensors"
    return refused(elementwise((), (0,))(op), reason)


def dropped_out(op: OpView) -> Signature:
    """As elements, with a mask of bits beside it that the gradient reads, cut along with the first dim."""
    dims = dims_like(len(op.inputs[0].shape))
    scalars: list[Dims] = [(None,) * len(t.shape) for t in op.inputs[1:]]  # seed and offset
    mask: list[Dims] = [(next(iter(dims), None),)] * (len(op.outputs) - 1)
    sizes = dict(zip(dims, op.inputs[0].shape, strict=True))
    return named(
        op, [dims, *scalars], [dims, *mask], mesh=dims, keeps_outputs=(1,), differentiable=(0,),
        sizes={d: n for d, n in sizes.items() if n > 1},
    )  # fmt: skip


def swiglu(op: OpView) -> Signature:
    """silu(first half) * second half along an axis that stays whole."""
    dims = dims_like(len(op.inputs[0].shape))
    axis = positive(op.argument(0, "dim", -1), len(dims))[0]
    half = tuple(None if i == axis else d for i, d in enumerate(dims))
    return named(op, [dims], [half], mesh=dims, fixed=frozenset((dims[axis],)), keeps_inputs=(0,))


_READS_INPUT = (
    "Log", "Log1p", "Square", "Cos", "Sin", "Tan", "Cosh", "Sinh", "ACos", "Asin", "Atan", "Atanh", "FastGeLU", "Abs",
    "Erf", "Erfc", "Expm1", "Lgamma", "GeluExt", "ReLU6", "EluExt", "LeakyReLUExt", "Softplus", "SoftplusExt", "Softsign",
    "Mish", "HSigmoid", "HShrink", "SoftShrink", "ClampScalar", "NanToNum", "BesselI0e", "BesselI1e",
)  # fmt: skip
_SILU = 5
"""Operations of x / (1 + exp(-x)): sign, exponential, sum, reciprocal, product."""
_READS_OUTPUT = (
    "Exp", "Sqrt", "Rsqrt", "Sigmoid", "ReLU", "Tanh", "Reciprocal", "Inv", "Elu", "SeLU", "Erfinv", "Acosh", "Asinh",
)  # fmt: skip
_NO_GRADIENT = (
    "Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual", "LogicalAnd", "LogicalOr", "LogicalNot", "LogicalXor",
    "FloorDiv", "FloorMod", "Mod", "Floor", "Ceil", "Round", "Rint", "Trunc", "Sign", "IsFinite", "ZerosLike", "OnesLike",
    "TruncateDiv", "TruncateMod", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "IsClose", "DivMod", "NextAfter",
)  # fmt: skip
_READS_INPUT_ALONE = (
    "PowTensorScalar", "CeLU", "HSwish", "MishExt", "SeLUExt", "Hardtanh", "Threshold", "Sinc", "Digamma", "AcosExt", "AcoshExt",
    "AsinExt", "AsinhExt", "AtanExt", "Log2", "Log10", "Logit", "Angle", "XLogYScalarOther", "ClampMin", "ClampMax",
)  # fmt: skip
_NO_GRADIENT_ALONE = (
    "IsNan", "IsInf", "IsNegInf", "BitwiseNot", "OnesLikeExt", "ZerosLikeExt", "FullLike", "EmptyLike", "EqScalar", "LessScalar",
    "GreaterEqualScalar", "FloorDivScalar", "DivMods", "BitwiseAndTensor", "BitwiseOrTensor", "BitwiseXorTensor",
    "BitwiseAndScalar", "BitwiseOrScalar", "BitwiseXorScalar", "Bucketize", "Detach",
)  # fmt: skip

RULES = {
    # sums, signs, constant factors and one side of the diagonal, which MindSpore moves for a slice: the gradient reads nothing
    **dict.fromkeys(
        (
            "Add", "AddExt", "Sub", "SubExt", "Neg", "AddN", "Muls", "Identity", "RemainderTensorScalar", "RemainderScalarTensor",
            "RemainderTensorTensor", "FmodTensor", "Triu",
        ),
        elementwise(),
    ),
    "Tril": triangle,
    "BiasAdd": bias,
    # products and quotients
    "Mul": elementwise(keeps_inputs=(0, 1), bilinear=True),
    **dict.fromkeys(("Div", "RealDiv", "DivNoNan"), elementwise(keeps_inputs=(1,), keeps_outputs=(0,), linear=0)),
    "Pow": elementwise(keeps_inputs=(0, 1), keeps_outputs=(0,)),
    **dict.fromkeys(
        ("Maximum", "Minimum", "Atan2", "SquaredDifference", "SigmoidCrossEntropyWithLogits", "Xlogy", "Xdivy", "MulNoNan"),
        elementwise(keeps_inputs=(0, 1)),
    ),
    "AddcmulExt": elementwise(keeps_inputs=(1, 2)),
    "Polar": elementwise(keeps_inputs=(0, 1)),
    "Hypot": elementwise(keeps_inputs=(0, 1), keeps_outputs=(0,)),
    "Lerp": elementwise(keeps_inputs=(0, 1, 2)),
    # functions of one tensor
    **dict.fromkeys(_READS_INPUT, elementwise((0,))),
    **dict.fromkeys(_READS_OUTPUT, elementwise((), (0,))),
    "SiLU": elementwise((0,), operations=_SILU),
    "GeLU": elementwise((0,), (0,)),
    "PReLU": per_channel,
    # comparisons, logic and steps
    **dict.fromkeys(_NO_GRADIENT, elementwise(differentiable=())),
    # choices by a mask
    **dict.fromkeys(("Select", "Where"), choice),
    "MaskedFill": elementwise(keeps_inputs=(1,), differentiable=(0, 2)),
    # updates of a parameter in place
    **dict.fromkeys(("Assign", "AssignAdd", "AssignSub"), elementwise(differentiable=())),
    "Swiglu": swiglu,
    "RotaryPositionEmbedding": rotary,
    "Dropout": elementwise(keeps_outputs=(1,)),
    "DropoutExt": dropped_out,
    **dict.fromkeys(("Dropout2D", "Dropout3D"), batch_only(elementwise(keeps_outputs=(1,)))),
    **dict.fromkeys(("RandLikeExt", "RandnLike", "BernoulliExt"), batch_only(elementwise(differentiable=()))),
    # of which MindSpore has no distributed form
    **dict.fromkeys(("Divs", "AddScalar", "SubScalar", "FmodScalar", "MoveTo"), batch_only(elementwise())),
    **dict.fromkeys(("Complex", "Real", "Imag", "Conj", "Frac", "LerpScalar", "Clone", "Copy"), batch_only(elementwise())),
    "Exp2": batch_only(elementwise((), (0,))),
    "PowScalarTensor": power_of_number,
    **dict.fromkeys(("LogAddExp", "LogAddExp2", "Atan2Ext"), batch_only(elementwise((0, 1)))),
    **dict.fromkeys(("Addcmul", "Addcdiv", "AddcdivExt"), batch_only(elementwise((1, 2)))),
    "ClampTensor": batch_only(elementwise((0, 1, 2))),
    "SelectV2": batch_only(choice),
    "GLU": batch_only(swiglu),
    "TrilExt": batch_only(triangle),
    **dict.fromkeys(_READS_INPUT_ALONE, batch_only(elementwise((0,)))),
    "LogSigmoid": batch_only(elementwise((0,), (1,))),
    "MaskedFillScalar": batch_only(elementwise((1,), differentiable=(0,)), "use ops.masked_fill"),
    **dict.fromkeys(_NO_GRADIENT_ALONE, batch_only(elementwise(differentiable=()))),
}  # fmt: skip
