"""MindSpore's graph protobuf (anf_ir) as frozen data, with the bookkeeping of its IR resolved away.

Load, Depend, MakeTuple, TupleGetItem, UpdateState and their like do not appear: an input of an operator names its
real source, in the terms of `ms_symtensor.tensor.graph`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ms_symtensor.errors import CompilerError
from ms_symtensor.tensor.graph import (
    Attribute,
    Constant,
    InputRef,
    OpOutput,
    ParameterRef,
    Source,
    TensorType,
    TupleInput,
)

_FORWARDED = {"Load", "Depend", "depend", "load", "return", "Return", "identity", "StopGradient"}  # value = first input
_TUPLES = {"MakeTuple", "make_tuple", "MakeList", "make_list", "MakeTupleDynamic"}
_GET_ITEM = {"TupleGetItem", "tuple_getitem", "ListGetItem", "list_getitem", "RealTupleGetItem"}
_NO_VALUE = {"UpdateState", "updatestate", "partial", "Partial"}


@dataclass(frozen=True)
class Node:
    """One operator of MindSpore's graph: `name` is its full name, `instance` the name of the primitive object."""

    name: str
    type: str
    scope: str
    instance: str
    inputs: tuple[Source, ...]
    outputs: tuple[TensorType, ...]
    attributes: tuple[tuple[str, Attribute], ...]

    @cached_property
    def _attribute(self) -> dict[str, Attribute]:
        return dict(self.attributes)

    def attribute(self, name: str, default: Attribute = None) -> Attribute:
        return self._attribute.get(name, default)


@dataclass(frozen=True)
class AnfGraph:
    """Operators in execution order, and the types of the graph's inputs and parameters."""

    nodes: tuple[Node, ...]
    inputs: tuple[tuple[str, TensorType], ...]
    parameters: tuple[tuple[str, TensorType], ...]
    output: Source


def read_graph(model: Any, parameter_names: set[str]) -> AnfGraph:
    """The graph in `model` (an `anf_ir_pb2.ModelProto`); `parameter_names` tells parameters from inputs.

    CompilerError if it calls sub-graphs (`@lazy_inline`, control flow), whose operators the protobuf does not hold.
    """
    graph = model.graph
    values = _ValueReader()
    sources: dict[str, Source] = {item.key: values.source(item.value) for item in graph.const_vals}
    inputs, parameters = [], []
    for proto in graph.parameters:
        is_parameter = proto.name in parameter_names
        sources[proto.name] = ParameterRef(proto.name) if is_parameter else InputRef(proto.name)
        types = values.types(proto.type)
        if len(types) == 1:
            (parameters if is_parameter else inputs).append((proto.name, types[0]))
    drafts: dict[str, tuple[Any, tuple[Source, ...], list[TensorType]]] = {}
    for proto in graph.node:
        operands = tuple(sources[edge.name] for edge in proto.input)
        if not proto.op_type:
            raise CompilerError(
                f"the graph calls a sub-graph at {proto.full_name or proto.scope!r} whose operators MindSpore does not show:"
                " remove control flow that depends on tensors"
            )
        if proto.op_type in _FORWARDED:
            sources[proto.name] = operands[0]
        elif proto.op_type in _TUPLES:
            sources[proto.name] = TupleInput(operands)
        elif proto.op_type in _NO_VALUE:
            sources[proto.name] = Constant()
        elif proto.op_type in _GET_ITEM:
            item = _get_item(operands)
            sources[proto.name] = item
            if isinstance(item, OpOutput) and item.op in drafts and (known := values.types(proto.output_type)):
                outputs = drafts[item.op][2]
                if item.index < len(outputs):
                    outputs[item.index] = known[0]
        else:
            name = _unique(proto.full_name or f"{proto.scope}/{proto.op_type}-{proto.name}", drafts)
            sources[proto.name] = OpOutput(name)
            drafts[name] = (proto, operands, list(values.types(proto.output_type)))
    nodes = tuple(
        Node(
            name,
            proto.op_type,
            proto.scope,
            proto.instance_name,
            operands,
            tuple(outputs),
            tuple((a.name, values.attribute(a.value)) for a in proto.attribute),
        )
        for name, (proto, operands, outputs) in drafts.items()
    )
    results = tuple(sources[proto.name] for proto in graph.outputs)
    output = results[0] if len(results) == 1 else TupleInput(results)
    return AnfGraph(nodes, tuple(inputs), tuple(parameters), output)


def _get_item(operands: tuple[Source, ...]) -> Source:
    source, position = operands[0], operands[1]
    index = position.value if isinstance(position, Constant) else None
    if not isinstance(index, int):
        raise CompilerError("a tuple is indexed by a value that is not known at compile time: use a constant index")
    if isinstance(source, TupleInput):
        return source.items[index]
    if isinstance(source, Constant) and isinstance(source.value, tuple):
        return Constant(source.value[index])
    if isinstance(source, OpOutput):
        return OpOutput(source.op, index)
    return source


def _unique(name: str, taken: dict[str, Any]) -> str:
    if name not in taken:
        return name
    number = 2
    while f"{name}#{number}" in taken:
        number += 1
    return f"{name}#{number}"


class _ValueReader:
    """Values and types of the protobuf, whose enumeration has to come from MindSpore's own module."""

    def __init__(self) -> None:
        from mindspore.train import anf_ir_pb2

        names = {number: name.removeprefix("DT_").lower() for name, number in anf_ir_pb2.DataType.items()}
        self._names: dict[int, str] = names
        self._readers: dict[str, Callable[[Any], Attribute]] = {
            "bool": lambda v: v.bool_val,
            "string": lambda v: v.str_val,
            "float16": lambda v: v.float_val,
            "bfloat16": lambda v: v.float_val,
            "float32": lambda v: v.float_val,
            "float64": lambda v: v.double_val,
            **{f"int{bits}": lambda v: v.int_val for bits in (8, 16, 32, 64)},
            **{f"uint{bits}": lambda v: v.uint_val for bits in (8, 16, 32, 64)},
        }

    def types(self, proto: Any) -> tuple[TensorType, ...]:
        """The tensors of a type: one, the elements of a tuple (nested ones flat), or none for a scalar."""
        kind = self._names[proto.data_type]
        if kind == "tensor":
            return (self._tensor(proto.tensor_type),)
        if kind in ("tuple", "list"):
            return tuple(t for element in proto.sequence_type.elem_types for t in self.types(element))
        return ()

    def _tensor(self, proto: Any) -> TensorType:
        return TensorType(tuple(d.size for d in proto.shape.dim), self._names[proto.elem_type])

    def source(self, proto: Any) -> Source:
        if self._names[proto.dtype] == "tensor":
            return Constant(tensor=self._tensor_value(proto.tensor_val))
        if self._names[proto.dtype] in ("tuple", "list") and any(self._names[v.dtype] == "tensor" for v in proto.values):
            return TupleInput(tuple(self.source(value) for value in proto.values))
        return Constant(self.attribute(proto))

    def _tensor_value(self, proto: Any) -> TensorType:
        return TensorType(tuple(proto.dims), self._names[proto.data_type])

    def attribute(self, proto: Any) -> Attribute:
        kind = self._names[proto.dtype]
        if kind in self._readers:
            return self._readers[kind](proto)
        if kind in ("tuple", "list"):
            return tuple(self.attribute(value) for value in proto.values)
        if kind == "tensor":
            return str(self._tensor_value(proto.tensor_val))
        if kind == "type":
            name = self._names[proto.type_val.data_type]
            return self._names[proto.type_val.tensor_type.elem_type] if name == "tensor" else name
        if kind in ("none", "undefined"):
            return proto.str_val or None
        return proto.str_val or kind
