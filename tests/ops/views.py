"""Operators for tests, written as text: `make("MatMul", "float16[8, 4], float16[4, 2] -> float16[8, 2]", False, False)`."""

import re

from ms_symtensor.ops.signature import OpView
from ms_symtensor.tensor.graph import Attribute, TensorType

_TENSOR = re.compile(r"(\w+)\[([-\d, ]*)\]")


def tensors(text: str) -> tuple[TensorType, ...]:
    return tuple(
        TensorType(tuple(int(n) for n in shape.split(",") if n.strip()), dtype)
        for dtype, shape in _TENSOR.findall(text)
    )


def make(
    kind: str, types: str, *arguments: Attribute, positions: tuple[int, ...] = (), **attributes: Attribute
) -> OpView:
    left, right = types.split("->")
    return OpView(kind, f"Default/{kind}-op0", tensors(left), tensors(right), arguments, attributes, positions)
