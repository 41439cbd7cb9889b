"""Values and types in MindSpore's mind_ir protobuf."""

from collections.abc import Iterable
from typing import Any

import numpy

from ms_symtensor.tensor.graph import Attribute, Constant, Source, TensorType, TupleInput

_DTYPES = {
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "FLOAT64": "float64",
}  # the others are spelled as MindSpore's own, in capitals
_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_NUMPY = {name: name for name in (*_INTEGERS, "float16", "float32", "float64", "bool")} | {"bfloat16": "uint16"}
_MOST_ELEMENTS = 1 << 18
"""Of a vector that is read: more than the classes of a vocabulary (empirical)."""


class ValueReader:
    """Reads attributes; the enumerations come from MindSpore's own protobuf module."""

    def __init__(self) -> None:
        from mindspore.train import mind_ir_pb2

        self._kinds = {number: name for name, number in mind_ir_pb2.AttributeProto.AttributeType.items()}
        self._dtypes: dict[int, str] = {
            number: _DTYPES.get(name, name.lower()) for name, number in mind_ir_pb2.TensorProto.DataType.items()
        }

    def dtype_number(self, dtype: str) -> int:
        """What a TensorProto says for `dtype`."""
        return next(number for number, name in self._dtypes.items() if name == dtype)

    def tensor(self, proto: Any) -> TensorType:
        """The type of a TensorProto."""
        return TensorType(tuple(proto.dims), self._dtypes[proto.data_type])

    def input_types(self, proto: Any) -> tuple[TensorType, ...]:
        """The tensors of a graph input (a ValueInfoProto): one, or the elements of a tuple."""
        if len(proto.tensor):
            return tuple(self.tensor(tensor) for tensor in proto.tensor)
        return self.types(proto.attr_info)

    def types(self, proto: Any) -> tuple[TensorType, ...]:
        """The tensors of a `shape` attribute: one, the elements of a tuple (nested ones flat), or none for a scalar."""
        kind: str = self._kinds[proto.type]
        if kind in ("TENSORS", "TENSOR"):
            return tuple(self.tensor(tensor) for tensor in proto.tensors)
        if kind in ("TUPLE", "LIST"):
            return tuple(t for value in proto.values for t in self.types(value))
        return ()

    def constant(self, proto: Any) -> Source:
        kind: str = self._kinds[proto.type]
        if kind in ("TENSORS", "TENSOR"):
            kind_of_tensor = self.tensor(proto.tensors[0])
            return Constant(tensor=kind_of_tensor, elements=_elements(proto.tensors[0].raw_data, kind_of_tensor))
        if kind in ("TUPLE", "LIST") and any(self._kinds[v.type] in ("TENSORS", "TENSOR") for v in proto.values):
            return TupleInput(tuple(self.constant(value) for value in proto.values))
        return Constant(self.attribute(proto))

    def attribute(self, proto: Any) -> Attribute:
        kind: str = self._kinds[proto.type]
        if kind in ("TUPLE", "LIST"):
            return tuple(self.attribute(value) for value in proto.values)
        if kind == "BOOL":
            return bool(proto.ints[0] if len(proto.ints) else proto.i)
        if kind.startswith(("INT", "UINT")):
            return int(proto.ints[0] if len(proto.ints) else proto.i)
        if kind in ("FLOAT", "FLOAT16", "BFLOAT16"):
            return _shortest(proto.floats[0] if len(proto.floats) else proto.f)
        if kind == "DOUBLE":
            return float(proto.doubles[0] if len(proto.doubles) else proto.d)
        if kind == "STRING":
            text: bytes = proto.strings[0] if len(proto.strings) else proto.s
            return text.decode("utf-8", "replace")
        if kind in ("TENSORS", "TENSOR"):
            return ", ".join(str(self.tensor(tensor)) for tensor in proto.tensors)
        if kind in ("NONE", "UMONAD", "IOMONAD", "UNDEFINED"):
            return None
        return kind.lower()


def set_nodes(graph: Any, nodes: Iterable[Any]) -> None:
    """Make `nodes`, some of which may be those of `graph` (a GraphProto), its nodes."""
    kept = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def _elements(data: bytes, kind: TensorType) -> tuple[float, ...] | None:
    """What a constant tensor holds (`Constant.elements`)."""
    if kind.dtype not in _NUMPY or not data:
        return None
    array = numpy.frombuffer(data, _NUMPY[kind.dtype])
    if len(array) != kind.element_num:
        return None
    if (array == array[0]).all():
        array = array[:1]
    elif len(kind.shape) != 1 or len(array) > _MOST_ELEMENTS:
        return None
    if kind.dtype == "bfloat16":  # the upper half of a float32
        array = (array.astype(numpy.uint32) << 16).view(numpy.float32)
    return tuple(array.tolist())


def _shortest(value: float) -> float:
    """The float32 number `value` in its shortest decimal form: 1e-06 rather than 9.999999974752427e-07."""
    return float(f"{value:.7g}")
