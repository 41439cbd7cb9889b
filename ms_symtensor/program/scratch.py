"""What lies in memory only while the gradient of an operator is computed: copies that are transposed, and gradients of inputs
that were broadcast, before they are summed up, and factors of a gradient.

`BatchMatMul` transposes what it reads on the way. `MatMulExt` and `BatchMatMulExt` have copies made, the former of matrices not:
there MindSpore puts MatMul in its place. All three make the gradient of an operand for every matrix of the result, but for
MatMulExt and a matrix, whose gradient is one product over all rows.
"""

import math

TRANSPOSING = frozenset({"MatMulExt", "BatchMatMulExt"})
"""Products that have no flags for transposed operands."""

FACTORS = {
    "Abs": 1, "Atan2": 1, "Atanh": 1, "Cos": 1, "Cosh": 1, "Erf": 1, "Erfc": 1, "Expm1": 1, "Lgamma": 1, "Log1p": 1, "Maximum": 1,
    "Minimum": 1, "Mish": 2, "Sin": 1, "Sinh": 1, "Softsign": 1, "Square": 1, "Tan": 1, "Xdivy": 1,
}  # fmt: skip
"""Operators whose gradient several kernels compute, and so many tensors of the size of the result that lie beside it: of Sin the
cosine, which is multiplied with the incoming gradient. Measured on what MindSpore 2.10 compiles; of Maximum and Minimum masks of
a byte are left out."""

BATCHED = TRANSPOSING | {"BatchMatMul"}

Shape = tuple[int, ...]


def before_sum(kind: str, shape: Shape, result: Shape) -> Shape:
    """The shape of the gradient of an input of that `shape` as it is computed; `result` is that of the operator's output."""
    if kind == "Mul":
        return result
    if kind not in BATCHED or len(result) < 3 or (kind == "MatMulExt" and len(shape) == 2):
        return shape
    return (*result[:-2], *shape[-2:])


def scratch_elements(kind: str, position: int, inputs: tuple[Shape, ...], result: Shape) -> int:
    """Elements that lie beside the gradient of input number `position` of an operator, and beside what that reads.

    First come the copies and what is to be summed up, then the latter and the sum.
    """
    own = math.prod(inputs[position])
    if kind in FACTORS:
        return FACTORS[kind] * math.prod(result)
    computed = math.prod(before_sum(kind, inputs[position], result))
    copied = _transposed_elements(kind, position, inputs, result)
    return copied if computed == own else computed + max(copied - own, 0)


def _transposed_elements(kind: str, position: int, inputs: tuple[Shape, ...], result: Shape) -> int:
    if kind not in TRANSPOSING or len(result) < 3:
        return 0
    by_rows = position == 0 and len(inputs[0]) == 2  # the incoming gradient is brought into the order of the rows, too
    return math.prod(inputs[1 - position]) + (math.prod(result) if by_rows else 0)
