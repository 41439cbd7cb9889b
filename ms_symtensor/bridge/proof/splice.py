"""Operators of a program, in MindSpore's protobuf, replaced by what functions that define them consist of.

They are no calls: at a call MindSpore's CPU runtime cuts the program into graphs of its own, which fails (`Invalid exit actor`)
where tensors are changed in place between them.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ms_symtensor.bridge.compiler.mindir_values import ValueReader, set_nodes
from ms_symtensor.errors import ExecutionError
from ms_symtensor.tensor.graph import Attribute, Constant, TensorType

_REFERENCE = "REF::"
Operand = TensorType | Constant | tuple[TensorType, ...] | None
"""A tensor's type, a constant (of a tensor: its type), those of a tuple that the program makes, or None for what has no value."""


@dataclass(frozen=True)
class Call:
    """One use of an operator: `name` is its full name in the network."""

    name: str
    type: str
    operands: tuple[Operand, ...]
    outputs: tuple[TensorType, ...]
    attributes: Mapping[str, Attribute]

    def constant(self, position: int) -> Attribute:
        """The value of a constant operand (positions from the end are negative); None where there is none."""
        operand = self.operands[position]
        return operand.value if isinstance(operand, Constant) else None

    def tensor(self, position: int) -> TensorType:
        operand = self.operands[position]
        if isinstance(operand, Constant) and operand.tensor is not None:
            return operand.tensor
        assert isinstance(operand, TensorType), f"{self.name}: operand {position} is no tensor"
        return operand

    def element(self, place: int | tuple[int, int]) -> TensorType:
        """The tensor at a position, or an element of the tuple there."""
        if isinstance(place, int):
            return self.tensor(place)
        made = self.operands[place[0]]
        assert isinstance(made, tuple), f"{self.name}: operand {place[0]} is no tuple of tensors"
        return made[place[1]]

    def tuple_length(self, position: int) -> int:
        """How many tensors the tuple at `position` has; 0 for what is none."""
        operand = self.operands[position]
        return len(operand) if isinstance(operand, tuple) else 0

    def is_tensor(self, position: int) -> bool:
        operand = self.operands[position]
        return isinstance(operand, TensorType) or (isinstance(operand, Constant) and operand.tensor is not None)


SUM = "AllReduce"
"""The step of a replacement that is a sum over the ranks of a group."""


@dataclass(frozen=True)
class Step:
    """A function (a `mind_ir_pb2.ModelProto`) or SUM; `output` is the type of the first tensor that it gives.

    `written`: which of the given tensors are the function's parameters, in the order of their names.

    With a `position`, the rank's place in the operator's group, the function takes that too, as an int32 scalar. The sum is
    over the operator's group, or over `group`.
    """

    function: Any
    output: TensorType
    position: int | None = None
    group: str | None = None
    written: tuple[int, ...] = ()


@dataclass(frozen=True)
class Replacement:
    """What stands for a call: the first of `steps` takes these of its operands, each further one what the last gave."""

    operands: tuple[int | tuple[int, int], ...]
    steps: tuple[Step, ...]


def replace_calls(model: Any, find: Callable[[Call], Replacement | None]) -> None:
    """In `model` (a `mind_ir_pb2.ModelProto`), replace every call for which `find` has a replacement, in place."""
    splicer = _Splicer(model, find)
    for graph in (model.graph, *list(model.functions)):
        splicer.rewrite(graph)


class _Splicer:
    def __init__(self, model: Any, find: Callable[[Call], Replacement | None]) -> None:
        self._model, self._find = model, find
        self._values = ValueReader()
        self._primitives = {primitive.name: primitive for primitive in model.primitives}
        self._attributes = {p.name: {a.name: self._values.attribute(a) for a in p.attribute} for p in model.primitives}
        self._operands: dict[str, Operand] = {}
        self._made: dict[str, tuple[str, ...]] = {}
        self._added: dict[int, dict[str, str]] = {}
        self._inlined_num = 0
        self._sums: dict[tuple[str, str | None], str] = {}
        for graph in (model.graph, *model.functions):
            self._operands |= dict(self._types(graph))

    def rewrite(self, graph: Any) -> None:
        nodes = []
        positions: dict[int, Any] = {}
        for node in graph.node:
            primitive = self._primitives.get(node.op_type.removeprefix(_REFERENCE))
            found = None if primitive is None else self._find(self._call(node, primitive))
            if found is not None:
                nodes += self._replaced(node, primitive, found, positions)
            else:
                nodes.append(node)
        set_nodes(graph, (*positions.values(), *nodes))

    def _types(self, graph: Any) -> Iterator[tuple[str, Operand]]:
        for proto in graph.input:
            types = self._values.input_types(proto)
            yield proto.name, types[0] if len(types) == 1 else None
        for proto in graph.parameter:
            yield proto.name, self._values.tensor(proto)
        for node in graph.node:
            if node.op_type == "Constant":
                source = self._values.constant(node.attribute[0])
                yield node.output[0], source if isinstance(source, Constant) else None
            else:
                types = self._outputs(node)
                primitive = self._primitives.get(node.op_type.removeprefix(_REFERENCE))
                is_made = primitive is not None and primitive.op_type == "MakeTuple" and len(types) == len(node.input)
                if is_made:
                    self._made[node.output[0]] = tuple(node.input)
                yield node.output[0], types if is_made else types[0] if len(types) == 1 else None

    def _outputs(self, node: Any) -> tuple[TensorType, ...]:
        return next((self._values.types(a) for a in node.attribute if a.name == "shape"), ())

    def _call(self, node: Any, primitive: Any) -> Call:
        operands = tuple(self._operands.get(name) for name in node.input)
        name = node.domain or node.name
        return Call(name, primitive.op_type, operands, self._outputs(node), self._attributes[primitive.name])

    def _replaced(self, node: Any, primitive: Any, found: Replacement, positions: dict[int, Any]) -> list[Any]:
        nodes = []
        given = [node.input[i] if isinstance(i, int) else self._made[node.input[i[0]]][i[1]] for i in found.operands]
        for number, step in enumerate(found.steps, 1):
            made = type(node)()
            made.CopyFrom(node)
            if number < len(found.steps):
                made.name = made.output[0] = f"{node.output[0]}_step{number}"
                self._set_type(made, step.output)
            if step.position is not None:
                if step.position not in positions:
                    name = f"symtensor_position{step.position}_{len(self._operands)}"
                    self._operands[name] = None
                    positions[step.position] = _scalar(type(node)(), name, step.position)
                given.append(positions[step.position].output[0])
            if step.function is SUM:
                made.op_type = _REFERENCE + self._sum(primitive, step.group)
                del made.input[:]
                made.input.extend(given)
                nodes.append(made)
            else:
                nodes += self._inlined(step.function, given, made, step.written)
            given = [made.output[0]]
        return nodes

    def _set_type(self, node: Any, kind: TensorType) -> None:
        shape = next(a for a in node.attribute if a.name == "shape")
        (tensor,) = shape.tensors
        tensor.data_type = self._values.dtype_number(kind.dtype)
        del tensor.dims[:]
        tensor.dims.extend(kind.shape)

    def _sum(self, primitive: Any, group: str | None) -> str:
        """The name of an AllReduce over `group`, or over the group of `primitive`."""
        key = primitive.name, group
        if key not in self._sums:
            made = self._model.primitives.add()
            made.CopyFrom(primitive)
            made.name, made.op_type = f"{primitive.name}_{SUM}", SUM
            _set_text(made, "op", "sum")
            if group is not None:
                _set_text(made, "group", group)
            self._sums[key] = made.name
        return self._sums[key]

    def _inlined(self, function: Any, given: list[str], call: Any, written: tuple[int, ...]) -> list[Any]:
        """The nodes of `function` on the tensors `given`; what it gives takes the name of the result of `call`."""
        graph, kind = function.graph, type(call)
        prefix = f"symtensor{self._inlined_num}_"
        self._inlined_num += 1
        read = [name for number, name in enumerate(given) if number not in written]
        names = {proto.name: name for proto, name in zip(graph.input, read, strict=True)}
        changed = sorted(proto.name for proto in graph.parameter)
        names |= {name: given[number] for name, number in zip(changed, written, strict=True)}
        if function.functions or graph.output[0].name in names:
            raise ExecutionError(f"{call.domain or call.name}: its definition is no plain sequence of operators")
        names[graph.output[0].name] = call.output[0]
        primitives = self._primitives_of(function)
        nodes = []
        for node in graph.node:
            copy = kind()
            copy.CopyFrom(node)
            copy.name = copy.output[0] = names.get(node.output[0], prefix + node.output[0])
            copy.domain = call.domain
            del copy.input[:]
            copy.input.extend(names.get(name, prefix + name) for name in node.input)
            callee = node.op_type.removeprefix(_REFERENCE)
            if callee in primitives:
                copy.op_type = _REFERENCE + primitives[callee]
            nodes.append(copy)
        return nodes

    def _primitives_of(self, function: Any) -> dict[str, str]:
        """The names under which the primitives of `function` have been added to the model."""
        if id(function) not in self._added:
            prefix = f"symtensor_function{len(self._added)}_"
            for primitive in function.primitives:
                copy = self._model.primitives.add()
                copy.CopyFrom(primitive)
                copy.name = prefix + copy.name
            self._added[id(function)] = {primitive.name: prefix + primitive.name for primitive in function.primitives}
        return self._added[id(function)]


def _set_text(primitive: Any, name: str, text: str) -> None:
    attribute = next((a for a in primitive.attribute if a.name == name), None)
    if attribute is None:
        attribute = primitive.attribute.add()
        attribute.name, attribute.type = name, attribute.AttributeType.Value("STRING")
    attribute.s = text.encode()


def _scalar(node: Any, name: str, value: int) -> Any:
    """`node` made the constant int32 tensor `value`."""
    node.name, node.op_type = name, "Constant"
    node.output.append(name)
    attribute = node.attribute.add()
    attribute.name, attribute.type = "value", attribute.AttributeType.Value("TENSORS")
    tensor = attribute.tensors.add()
    tensor.data_type, tensor.raw_data = tensor.DataType.Value("INT32"), value.to_bytes(4, sys.byteorder)
    return node
