"""Operators of a graph that is built by hand, with the arguments that MindSpore gives them."""

import struct

from model_zoo.config import TransformerConfig
from model_zoo.emitter import Argument, Emitter, Value
from model_zoo.phase import EIGHT_BITS
from ms_symtensor.tensor.graph import Attribute, Constant, Source, TensorType

_TYPE_ID = {"float16": 42, "float32": 43, "bfloat16": 45}
"""MindSpore's numbers of element types, as Cast takes them."""


def float32(value: float) -> float:
    """`value` rounded to float32, as MindSpore keeps its scalars, in the seven decimal digits that capture reads."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return float(f"{rounded:.7g}")


class Operators:
    """Emits operators; `primitive` is the attribute of the cell under which each stands."""

    def __init__(self, config: TransformerConfig) -> None:
        self.config = config
        self.emit = Emitter(config.lazy_inline)
        self._casts: dict[tuple[Source, str], Value] = {}

    def unary(self, op_type: str, primitive: str, x: Value, **attributes: Attribute) -> Value:
        return self.emit.op(op_type, primitive, (x,), x.type, **attributes)[0]

    def binary(self, op_type: str, primitive: str, x: Value, y: Value) -> Value:
        """An element-wise operator whose result has the shape of `x`."""
        return self.emit.op(op_type, primitive, (x, y), x.type)[0]

    def cast(self, primitive: str, x: Value, dtype: str) -> Value:
        if x.type.dtype == dtype:
            return x  # MindSpore drops a Cast that changes nothing
        if (x.source, dtype) not in self._casts:  # and merges equal ones
            result = TensorType(x.shape, dtype)
            self._casts[x.source, dtype] = self.emit.op("Cast", primitive, (x, Constant(_TYPE_ID[dtype])), result)[0]
        return self._casts[x.source, dtype]

    def reshape(self, primitive: str, x: Value, shape: tuple[int, ...]) -> Value:
        return self.emit.op("Reshape", primitive, (x, Constant(shape)), TensorType(shape, x.dtype))[0]

    def transpose(self, primitive: str, x: Value, order: tuple[int, ...]) -> Value:
        result = TensorType(tuple(x.shape[i] for i in order), x.dtype)
        return self.emit.op("Transpose", primitive, (x, Constant(order)), result)[0]

    def swap_heads_and_sequence(self, primitive: str, x: Value) -> Value:
        return self.transpose(primitive, x, (0, 2, 1, 3))

    def concat(self, primitive: str, parts: list[Value], axis: int) -> Value:
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        result = TensorType(tuple(shape), parts[0].dtype)
        return self.emit.op("Concat", primitive, (parts, Constant(axis)), result)[0]

    def matmul(self, x: Value, weight: Value, primitive: str = "matmul") -> Value:
        """x [m, k] @ weight [n, k] transposed."""
        result = TensorType((x.shape[0], weight.shape[0]), x.dtype)
        return self.emit.op("MatMul", primitive, (x, weight, Constant(False), Constant(True)), result)[0]

    def reduce(
        self,
        op_type: str,
        primitive: str,
        x: Value,
        axes: tuple[int, ...],
        keep_dims: bool,
        *more: Argument,
        **attributes: Attribute,
    ) -> Value:
        gone = {axis % len(x.shape) for axis in axes}
        kept = tuple(1 if i in gone else n for i, n in enumerate(x.shape) if keep_dims or i not in gone)
        result = TensorType(kept, x.dtype)
        arguments = (x, Constant(axes), Constant(keep_dims), *more)
        return self.emit.op(op_type, primitive, arguments, result, **attributes)[0]

    def sum(self, primitive: str, x: Value, axes: tuple[int, ...], keep_dims: bool) -> Value:
        return self.reduce("ReduceSum", primitive, x, axes, keep_dims, Constant(False))

    def table(self, shape: tuple[int, ...], dtype: str) -> Value:
        """A constant tensor."""
        tensor = TensorType(shape, dtype)
        return Value(Constant(tensor=tensor), tensor)

    def weight(self, name: str, shape: tuple[int, ...], trains: bool = True) -> Value:
        """A parameter that trains, or a frozen one in the compute type."""
        dtype = self.config.param_dtype if trains else self.config.compute_dtype
        return self.emit.parameter(name, shape, dtype, trains)

    def matrix(self, name: str, shape: tuple[int, ...]) -> Value:
        """The weight of a linear layer or of experts; in 8 bits where they have scales."""
        if self.config.has_scales:
            return self.emit.parameter(name, shape, EIGHT_BITS, False)
        return self.weight(name, shape, self.config.trains_base)
