"""Operators that work element by element, with broadcasting."""

from collections.abc import Callable

from ms_symtensor.ops.signature import OpView, Signature, Unit


def elementwise(
    keeps_inputs: tuple[int, ...] = (), keeps_outputs: tuple[int, ...] = (), differentiable: tuple[int, ...] | None = None
) -> Callable[[OpView], Signature]:
    """Every dim of the output is a dim of every input that has it; a dim of size one is broadcast.

    `keeps_inputs`/`keeps_outputs`: what the gradient reads, e.g. both factors of Mul, nothing of Add.
    """

    def rule(op: OpView) -> Signature:
        rank = len(op.outputs[0].shape)
        sizes = {f"d{i}": n for i, n in enumerate(op.outputs[0].shape) if n != 1}

        def dims(shape: tuple[int, ...]) -> tuple[str | None, ...]:
            return tuple(None if n == 1 else f"d{i + rank - len(shape)}" for i, n in enumerate(shape))

        return Signature(
            tuple(dims(t.shape) for t in op.inputs), tuple(dims(t.shape) for t in op.outputs), sizes, tuple(sizes),
            unit=Unit.VECTOR, keeps_inputs=keeps_inputs, keeps_outputs=keeps_outputs, differentiable=differentiable,
        )  # fmt: skip

    return rule


RULES = {
    **dict.fromkeys(("Add", "AddExt", "Sub", "SubExt", "Neg"), elementwise()),
    **dict.fromkeys(("Mul", "Muls"), elementwise(keeps_inputs=(0, 1))),
}
