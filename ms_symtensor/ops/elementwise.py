"""Operators that work element by element, with broadcasting."""

from collections.abc import Callable

from ms_symtensor.ops.signature import Dims, OpView, Signature, dims_like, named


def elementwise(
    keeps_inputs: tuple[int, ...] = (), keeps_outputs: tuple[int, ...] = (), differentiable: tuple[int, ...] | None = None
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
            keeps_inputs=keeps_inputs, keeps_outputs=keeps_outputs, differentiable=differentiable,
        )  # fmt: skip

    return rule


def _dropout_forbids(cuts, device_num: int) -> str | None:
    return None


RULES = {
    # sums and signs: the gradient reads nothing
    **dict.fromkeys(("Add", "AddExt", "Sub", "SubExt", "Neg", "AddN", "BiasAdd", "StopGradient"), elementwise()),
    # products and quotients
    **dict.fromkeys(("Mul", "Muls"), elementwise(keeps_inputs=(0, 1))),
    **dict.fromkeys(("Div", "RealDiv", "DivNoNan"), elementwise(keeps_inputs=(1,), keeps_outputs=(0,))),
    "Pow": elementwise(keeps_inputs=(0, 1), keeps_outputs=(0,)),
    **dict.fromkeys(("Maximum", "Minimum"), elementwise(keeps_inputs=(0, 1))),
    # functions of one tensor
    **dict.fromkeys(
        ("Log", "Square", "Cos", "Sin", "SiLU", "FastGeLU", "Abs", "Erf", "GeluExt", "Reciprocal"), elementwise((0,))
    ),
    **dict.fromkeys(("Exp", "Sqrt", "Rsqrt", "Sigmoid", "ReLU", "Tanh"), elementwise((), (0,))),
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
    "Dropout": elementwise(keeps_outputs=(1,)),
}  # fmt: skip
