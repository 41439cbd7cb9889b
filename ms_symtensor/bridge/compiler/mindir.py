"""MindSpore's graph protobuf (mind_ir) as frozen data, calls expanded and the bookkeeping of the IR resolved away.

Load, Depend, MakeTuple, TupleGetItem, UpdateState and their like do not appear: an input of an operator names its
real source, in the terms of `ms_symtensor.tensor.graph`. What they say about the order stays, in `Node.after`. A block that
MindSpore shares between its calls (`@lazy_inline`) appears once per call, with the names and parameters of that call.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ms_symtensor.bridge.compiler.mindir_values import ValueReader
from ms_symtensor.bridge.compiler.node_graph import Node, NodeGraph
from ms_symtensor.bridge.compiler.renaming import Renaming
from ms_symtensor.bridge.compiler.stop_gradient import STAND_IN
from ms_symtensor.errors import CompilerError
from ms_symtensor.ops.instead import INSTEAD
from ms_symtensor.tensor.graph import (
    Attribute,
    Constant,
    InputRef,
    OpOutput,
    ParameterRef,
    Source,
    TupleInput,
)

_FORWARDED = {"Load", "Depend", "Return", "identity", "StopGradient"}  # deliver their first input
_TUPLES = {"MakeTuple", "MakeList", "make_list"}
_GET_ITEM = {"TupleGetItem", "ListGetItem", "RealTupleGetItem"}
_NO_VALUE = {"UpdateState", "EnvironCreate"}
_ORDERS = {"Depend", "UpdateState"}  # deliver their first input, or nothing, after the others are there
_BRANCHES = {"Switch", "SwitchLayer", "switch_layer"}
_SHARED_PARAMETER = re.compile(r"\W*CR_(.+)")  # what a shared block calls a parameter that it takes as an input


def read_graph(model: Any) -> NodeGraph:
    """The graph in `model` (a `mind_ir_pb2.ModelProto`). CompilerError if its control flow depends on tensors."""
    reader = _GraphReader(model)
    graph = model.graph
    prefix = f"{graph.name}:"
    inputs = [(proto.name.removeprefix(prefix), reader.values.input_types(proto)) for proto in graph.input]
    parameters = [(proto.name.removeprefix(prefix), reader.values.tensor(proto)) for proto in graph.parameter]
    if shared := {name for name, _ in inputs} & {name for name, _ in parameters}:
        raise CompilerError(f"{sorted(shared)[0]!r} names an input and a parameter of the network: rename one")
    values: dict[str, _Value] = {prefix + name: InputRef(name) for name, _ in inputs}
    values |= {prefix + name: ParameterRef(name) for name, _ in parameters}
    output, _ = reader.run(graph, values, {}, Renaming())
    return NodeGraph(
        nodes=tuple(reader.nodes.values()),
        inputs=tuple((name, types[0]) for name, types in inputs if len(types) == 1),
        parameters=tuple(parameters),
        output=_source(output),
    )


@dataclass(frozen=True)
class _Closure:
    """A function with its first arguments: the backward pass of a shared block."""

    function: str
    arguments: tuple["_Value", ...]
    renaming: Renaming


@dataclass(frozen=True)
class _Tuple:
    items: tuple["_Value", ...]


_Value = Source | _Closure | _Tuple
_Waits = dict[str, frozenset[str]]
"""By the name of a value: the operators that its readers wait for, besides that which makes it."""
_Result = tuple[_Value, frozenset[str]]


def _all_of(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*sets)


def _operators(value: _Value) -> Iterator[str]:
    """The operators that make `value`."""
    if isinstance(value, _Tuple | TupleInput):
        for item in value.items:
            yield from _operators(item)
    elif isinstance(value, OpOutput):
        yield value.op


def _source(value: _Value) -> Source:
    if isinstance(value, _Tuple):
        return TupleInput(tuple(_source(item) for item in value.items))
    if isinstance(value, _Closure):
        return Constant(f"function {value.function}")
    return value


class _GraphReader:
    def __init__(self, model: Any) -> None:
        self.values = ValueReader()
        self.nodes: dict[str, Node] = {}
        self._functions = {function.name: function for function in model.functions}
        self._primitives = {proto.name: proto for proto in model.primitives}
        # A constant is written in the first function that uses it, and used by name in the others.
        self._constants = {
            proto.output[0]: self.values.constant(proto.attribute[0])
            for function in (model.graph, *model.functions)
            for proto in function.node
            if proto.op_type == "Constant"
        }
        self._attributes: dict[str, dict[str, Attribute]] = {
            proto.name: {a.name: self.values.attribute(a) for a in proto.attribute} for proto in model.primitives
        }

    def run(self, function: Any, values: dict[str, _Value], waits: _Waits, renaming: Renaming) -> _Result:
        """The result of `function`, `values` and `waits` holding its arguments; its operators are appended to `nodes`."""
        for proto in function.node:
            if proto.op_type != "Constant":
                operands = tuple(self._value(name, values, renaming) for name in proto.input)
                behind = {name: waits[name] for name in proto.input if name in waits}
                found, waiting = self._result(proto, operands, behind, values, renaming)
                values[proto.output[0]] = found
                if waiting:
                    waits[proto.output[0]] = waiting
        results = tuple(self._value(proto.name, values, renaming) for proto in function.output)
        waiting = _all_of(waits[proto.name] for proto in function.output if proto.name in waits)
        return results[0] if len(results) == 1 else _Tuple(results), waiting

    def _value(self, name: str, values: dict[str, _Value], renaming: Renaming) -> _Value:
        if name in values:
            return values[name]
        if name in self._constants:
            return self._constants[name]
        if name in self._functions:
            return _Closure(name, (), renaming)
        raise CompilerError(f"MindSpore's graph uses {name.rpartition(':')[2]!r}, which it does not define")

    def _result(
        self, proto: Any, operands: tuple[_Value, ...], behind: _Waits, values: dict[str, _Value], renaming: Renaming
    ) -> _Result:
        """What `proto` delivers, and the operators that its readers wait for besides; `behind`: those of its operands."""
        callee = proto.op_type.removeprefix("REF::")
        if callee in self._functions:
            return self._call(proto, _Closure(callee, (), renaming), operands, behind)
        if callee in values:
            closure = values[callee]
            if not isinstance(closure, _Closure):
                raise CompilerError(f"{proto.domain} calls a value that is no function: {_no_control_flow}")
            return self._call(proto, closure, operands, behind)
        primitive = self._primitives.get(callee)
        kind = primitive.op_type if primitive is not None else callee
        waiting = _all_of(behind.values())
        if kind in _BRANCHES:
            raise CompilerError(_why_branching(proto.domain))
        if kind == "Partial":
            closure = operands[0]
            if not isinstance(closure, _Closure):
                raise CompilerError(
                    f"{proto.domain} binds arguments to a value that is no function: {_no_control_flow}"
                )
            return replace(closure, arguments=closure.arguments + operands[1:]), waiting
        if kind in _ORDERS:
            waiting |= frozenset(name for operand in operands[1:] for name in _operators(operand))
        if kind in _FORWARDED:
            return operands[0], waiting
        if kind in _TUPLES:
            return _Tuple(operands), waiting
        if kind in _GET_ITEM:
            return _item(operands, proto.domain), waiting
        if kind in _NO_VALUE:
            return Constant(), waiting
        return self._append(proto, kind, operands, waiting, renaming), frozenset()

    def _append(
        self, proto: Any, kind: str, operands: tuple[_Value, ...], waiting: frozenset[str], renaming: Renaming
    ) -> OpOutput:
        primitive = self._primitives.get(proto.op_type.removeprefix("REF::"))
        attributes = self._attributes[primitive.name] if primitive is not None else {}
        marks = {a.name: self.values.attribute(a) for source in (proto.primal_attr, proto.node_attr) for a in source}
        name = renaming.full_name(proto.domain or proto.name)
        if kind == STAND_IN:
            kind, name = "StopGradient", name.replace(STAND_IN, "StopGradient")
        name = self._unique(name)
        types = next((self.values.types(a) for a in proto.attribute if a.name == "shape"), ())
        self.nodes[name] = Node(
            name=name,
            type=kind,
            instance=primitive.instance_name if primitive is not None else "",
            inputs=tuple(_source(operand) for operand in operands),
            outputs=types,
            attributes=renaming.attributes(attributes),
            marks=renaming.attributes(marks),
            after=tuple(sorted(waiting)),
        )
        return OpOutput(name)

    def _call(self, proto: Any, closure: _Closure, operands: Sequence[_Value], behind: _Waits) -> _Result:
        function = self._functions[closure.function]
        arguments = (*closure.arguments, *operands)
        names = [formal.name for formal in function.input]
        if len(names) != len(arguments):
            raise CompilerError(
                f"MindSpore's graph calls {closure.function} with {len(arguments)} arguments for {len(names)}"
            )
        renaming = closure.renaming
        for name, argument in zip(names, arguments, strict=True):
            formal = _SHARED_PARAMETER.fullmatch(name.rpartition(":")[2])
            if formal and isinstance(argument, ParameterRef):
                renaming = Renaming.between(formal.group(1), argument.name) or renaming
        values: dict[str, _Value] = dict(zip(names, arguments, strict=True))
        given = zip(names[len(closure.arguments) :], proto.input, strict=True)
        result, waiting = self.run(function, values, {name: behind[a] for name, a in given if a in behind}, renaming)
        return _with_renaming(result, renaming), waiting

    def _unique(self, name: str) -> str:
        if name not in self.nodes:
            return name
        number = 2
        while f"{name}#{number}" in self.nodes:
            number += 1
        return f"{name}#{number}"


_no_control_flow = "write the network without control flow that depends on tensors"


def _why_branching(name: str) -> str:
    """What to say of an operator called `name` that branches on a tensor."""
    if gradient := re.search(r"/Grad_(\w+)/", name):
        _, written = INSTEAD.get(gradient[1], ("", "it with other operators"))
        return f"MindSpore's gradient of {gradient[1]} branches on a tensor, and cannot be read: write {written}"
    of_library = "mint's cross_entropy with label_smoothing has some, that of ops none"
    return f"{name} branches on a tensor: {_no_control_flow} ({of_library})"


def _with_renaming(value: _Value, renaming: Renaming) -> _Value:
    """Closures that a call returns belong to the block that was called."""
    if isinstance(value, _Closure):
        return replace(value, renaming=renaming)
    if isinstance(value, _Tuple):
        return _Tuple(tuple(_with_renaming(item, renaming) for item in value.items))
    return value


def _item(operands: tuple[_Value, ...], place: str) -> _Value:
    source, position = operands[0], operands[1]
    index = position.value if isinstance(position, Constant) else None
    if not isinstance(index, int):
        raise CompilerError(f"{place} takes an element of a tuple by a tensor: use a constant index")
    match source:
        case _Tuple(items) | TupleInput(items):
            return items[index]
        case Constant(value) if isinstance(value, tuple):
            return Constant(value[index])
        case OpOutput(op):
            return OpOutput(op, index)
    raise CompilerError(f"{place} takes an element of {source}, which has none")
