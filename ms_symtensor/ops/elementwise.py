"""Operators that work element by element, with broadcasting."""

from collections.abc import Callable

from ms_symtensor.ops.signature import Dims, OpView, Signature, dims_like, named, positive


def elementwise(
    keeps_inputs: tuple[int, ...] = (),
    keeps_outputs: tuple[int, ...] = (),
    differentiable: tuple[int, ...] | None = None,
    bilinear: bool = False,
) -> Callable[[OpView], Signature]:
    """Every dim of the output is a dim of every input that has it; a dim of size one is broadcast.

    `keeps_inputs`/`keeps_outputs`: what the gradient reads, e.g. both factors of Mul, nothing of Add.
    """

    def rule(op: OpView) -> Signature:
        dims = dims_like(len(op.outputs[0].shape))

        def trailing(shape: tuple[int, ...]) -> Dims:
            return dims[len(dims) - len(shape) :]

        return named(
            op, [trailing(t.shape) for t in op.inputs], [trailing(t.shape) for t in op.outputs], mesh=dims,
            keeps_inputs=keeps_inputs, keeps_outputs=keeps_outputs, differentiable=differentiable, bilinear=bilinear,
        )  # fmt: skip

    return rule


def swiglu(op: OpView) -> Signature:
    """silu(first half) * second half along an axis that stays whole."""
    dims = dims_like(len(op.inputs[0].shape))
    axis = positive(op.argument(0, "dim", -1), len(dims))[0]
    half = tuple(None if i == axis else d for i, d in enumerate(dims))
    return named(op, [dims], [half], mesh=dims, fixed=frozenset((dims[axis],)), keeps_inputs=(0,))


RULES = {
    # sums, signs and constant factors: the gradient reads nothing
    **dict.fromkeys(("Add", "AddExt", "Sub", "SubExt", "Neg", "AddN", "BiasAdd", "Muls"), elementwise()),
    # products and quotients
    "Mul": elementwise(keeps_inputs=(0, 1), bilinear=True),
    **dict.fromkeys(("Div", "RealDiv", "DivNoNan"), elementwise(keeps_inputs=(1,), keeps_outputs=(0,))),
    "Pow": elementwise(keeps_inputs=(0, 1), keeps_outputs=(0,)),
    **dict.fromkeys(("Maximum", "Minimum"), elementwise(keeps_inputs=(0, 1))),
    # functions of one tensor
    **dict.fromkeys(
        ("Log", "Square", "Cos", "Sin", "SiLU", "FastGeLU", "Abs", "Erf", "GeluExt"), elementwise((0,))
    ),
    **dict.fromkeys(("Exp", "Sqrt", "Rsqrt", "Sigmoid", "ReLU", "Tanh", "Reciprocal"), elementwise((), (0,))),
    "GeLU": elementwise((0,), (0,)),
    # comparisons and logic: no gradient
    **dict.fromkeys(
        (
            "Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual", "LogicalAnd", "LogicalOr", "LogicalNot",
            "LogicalXor", "FloorDiv", "FloorMod", "Mod", "Floor", "Ceil", "Round", "Sign", "IsFinite", "ZerosLike", "OnesLike",
        ),
        elementwise(differentiable=()),
    ),
    # choices by a mask
    **dict.fromkeys(("Select", "Where"), elementwise(keeps_inputs=(0,), differentiable=(1, 2))),
    "MaskedFill": elementwise(keeps_inputs=(1,), differentiable=(0, 2)),
    # updates of a parameter in place
    **dict.fromkeys(("Assign", "AssignAdd", "AssignSub"), elementwise(differentiable=())),
    "Swiglu": swiglu,
    "Dropout": elementwise(keeps_outputs=(1,)),
}  # fmt: skip
