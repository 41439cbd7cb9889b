"""Products that sum over a dim: the cube unit's work."""

from ms_symtensor.ops.signature import OpView, Signature, Unit, bind


def matmul(op: OpView) -> Signature:
    """`m k, k n -> m n`, either input transposed as its flag says."""
    first = "k m" if op.argument(0, "transpose_a", False) else "m k"
    second = "n k" if op.argument(1, "transpose_b", False) else "k n"
    return bind(
        f"{first}, {second} -> m n",
        op.inputs, op.outputs, op.name,
        mesh=("m", "k", "n"), unit=Unit.CUBE, keeps_inputs=(0, 1), scatter="m",
    )  # fmt: skip


RULES = {"MatMul": matmul}
