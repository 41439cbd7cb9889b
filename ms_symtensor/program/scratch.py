"""What lies in memory only while the gradient of an operator is computed: copies that are transposed, gradients of inputs that
were broadcast, before they are summed up, and factors of a gradient.

`BatchMatMul` transposes what it reads on the way. `Dense` without a bias has its input copied for the gradient of its weight, and
that gradient, which comes transposed; with a bias it has not. `MatMulExt` and `BatchMatMulExt` have copies made, the former of
matrices not on one device: there MindSpore puts MatMul in its place. `BatchMatMul` and these make the gradient of an operand for
every matrix of the result, but for MatMulExt and a matrix, whose gradient is one product over all rows.
"""

import math
from typing import NamedTuple

TRANSPOSING = frozenset({"MatMulExt", "BatchMatMulExt", "Mm"})
"""Products that have no flags for transposed operands."""


class Factors(NamedTuple):
    """What lies beside the gradient of an operator: `tensors` of the size of its result, or `alone` where no other input has a
    gradient, and `masks` of a byte for every element. `from_all`: they are made of all that the gradient reads of the forward
    pass, before it is there.
    """

    tensors: int = 1
    alone: int = 1
    masks: int = 0
    from_all: bool = True


_MAXIMUM = Factors(1, 2, masks=2)
FACTORS = {
    **dict.fromkeys(("Abs", "Atanh", "Cos", "Cosh", "Erf", "Erfc", "Expm1", "Lgamma", "Log10", "Log1p", "Log2"), Factors()),
    **dict.fromkeys(("NanToNum", "PowTensorScalar", "Sin", "Sinh", "Softsign", "Square", "Tan"), Factors()),
    **dict.fromkeys(("Dropout2D", "Dropout3D"), Factors()),
    **dict.fromkeys(("Atan2", "Select", "Where", "Xdivy"), Factors(from_all=False)),
    "Maximum": _MAXIMUM, "Minimum": _MAXIMUM, "Mish": Factors(2, 2, from_all=False), "Pow": Factors(0, 1),
}  # fmt: skip
"""Of operators whose gradient several kernels compute: of Sin the cosine, which is multiplied with the incoming gradient, of
Select zeros. Measured on what MindSpore 2.10 compiles."""

BATCHED = TRANSPOSING | {"BatchMatMul"}
SUMMED = {"Div": 1, "Maximum": 0, "Minimum": 0, "Mul": 0, "Pow": 1, "RealDiv": 1, "Sub": 1, "SubExt": 1}
"""Operators whose gradient is computed for every element of the result and summed up for an input that was broadcast, from which
input on. Of others the incoming gradient is summed up."""
BY_DIVIDEND = frozenset({"RealDiv"})
"""The gradient of the divisor is made of that of the dividend: the incoming one need not be there any more. Of Div it is made of
the incoming one."""
MEANS = {"ReduceMean": 1, "MeanExt": 1, "VarMean": 2, "StdMean": 2}
"""Their incoming gradient is broadcast, and then divided: so many tensors of the size of the input lie beside the result."""
LOOKED_UP = frozenset({"Embedding", "Gather"})
"""Where the looked-up dim is cut, a device looks up what it does not hold too, and multiplies it by zero; so in the gradient."""

Shape = tuple[int, ...]


def before_sum(kind: str, shape: Shape, result: Shape) -> Shape:
    """The shape of the gradient of a product's operand of that `shape` as it is computed; `result` is that of its output."""
    if kind not in BATCHED or len(result) < 3 or (kind == "MatMulExt" and len(shape) == 2):
        return shape
    return (*result[:-2], *shape[-2:])


class Scratch(NamedTuple):
    """So many elements lie beside a gradient and beside what it reads. `read_first`: what it reads of the forward pass (of a
    masked look-up and of a division: the incoming gradient) need not be there any more when it is.
    """

    elements: int
    read_first: bool = False


def masked(looked_up: int, table: int) -> Scratch:
    """What lies beside the gradient of a table whose looked-up dim is cut: the incoming gradient is masked, and then added up.

    Args:
        looked_up: Elements of the incoming gradient.
        table: Elements of the table's gradient; 0 where it is no activation.
    """
    return Scratch(looked_up, True) if table >= looked_up else Scratch(looked_up - table)


def scratch(
    kind: str,
    position: int,
    inputs: tuple[Shape, ...],
    result: Shape,
    is_alone: bool = True,
    is_weight: bool = False,
    size_B: int = 4,
) -> Scratch:
    """What lies beside the gradient of input number `position` of an operator, in elements of `size_B`.

    Args:
        kind: The operator's type.
        position: Of the input.
        inputs: Shapes of its inputs.
        result: Shape of its output.
        is_alone: No other input has a gradient.
        is_weight: The gradient is that of a weight, and counted as no activation.
        size_B: Bytes of an element.

    Returns:
        First come the copies and what is to be summed up, then the latter and the sum.
    """
    own, whole = math.prod(inputs[position]), math.prod(result)
    is_summed = position >= SUMMED.get(kind, len(inputs))
    computed = whole if is_summed else math.prod(before_sum(kind, inputs[position], result))
    if kind in FACTORS:
        factors = FACTORS[kind]
        tensors = (factors.alone if is_alone else factors.tensors) + (computed != own)
        return Scratch(tensors * whole + factors.masks * whole // size_B, factors.from_all and is_alone)
    if kind in BY_DIVIDEND and computed != own:
        return Scratch(computed, not is_alone)
    if kind in MEANS:
        return Scratch(MEANS[kind] * own)
    # Rows along another dim than the first one are added up along the first, and then transposed.
    if kind == "Gather" and not position and result != inputs[1] + inputs[0][1:]:
        return Scratch(own)
    copied, counted = _transposed_elements(kind, position, inputs, result), 0 if is_weight else own
    if kind == "Dense":  # the input and its copy, the copy and the product, the product and the gradient
        return Scratch(max(2 * copied, copied + own, 2 * counted) - counted, True) if copied else Scratch(0)
    elements, place = (copied, counted) if computed == own else (computed + max(copied - counted, 0), computed)
    return Scratch(elements, bool(copied) and math.prod(inputs[1 - position]) <= place)


def _transposed_elements(kind: str, position: int, inputs: tuple[Shape, ...], result: Shape) -> int:
    if kind == "Dense" and position == 1 and len(inputs) == 2:
        return math.prod(inputs[0])
    if kind not in TRANSPOSING:
        return 0
    # The incoming gradient is brought into the order of the rows, too.
    by_rows = position == 0 and len(inputs[0]) == 2 < len(result)
    return math.prod(inputs[1 - position]) + (math.prod(result) if by_rows else 0)
