"""Functions of a program, in MindSpore's protobuf, written out where they are called.

Interleaved pipeline stages keep their blocks as functions, which return their backward passes as functions too. MindSpore's CPU
runtime cuts a program at every call, and then runs such programs wrongly: what a block gives is zero.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ms_symtensor.bridge.compiler.mindir_values import ValueReader, set_nodes
from ms_symtensor.errors import ExecutionError
from ms_symtensor.tensor.graph import Constant

_REFERENCE = "REF::"
_BRANCHES = {"Switch", "SwitchLayer", "switch_layer"}


@dataclass(frozen=True)
class _Tensor:
    """What a node of the program gives, by its name there: a tensor, a tuple of them, or a constant."""

    name: str


@dataclass(frozen=True)
class _Tuple:
    """The parts of a tuple; `name` is that of the node that makes it, if it has no functions among its parts."""

    items: tuple["_Value", ...]
    name: str | None


@dataclass(frozen=True)
class _Closure:
    """A function with its first arguments."""

    function: str
    arguments: tuple["_Value", ...]


_Value = _Tensor | _Tuple | _Closure


def inline_functions(model: Any) -> None:
    """Write out every function of `model` (a `mind_ir_pb2.ModelProto`) where it is called, in place.

    ExecutionError where it depends on a tensor which function is called.
    """
    if not model.functions:
        return
    inliner = _Inliner(model)
    graph = model.graph
    values: dict[str, _Value] = {proto.name: _Tensor(proto.name) for proto in (*graph.input, *graph.parameter)}
    inliner.run(graph, values, "")
    for proto in graph.output:
        proto.name = inliner.name(values[proto.name], proto.name)
    set_nodes(graph, inliner.nodes)
    del model.functions[:]


class _Inliner:
    """Collects the nodes of the whole program: constants, which all functions know by name, first."""

    def __init__(self, model: Any) -> None:
        self._functions = {function.name: function for function in model.functions}
        self._kinds = {primitive.name: primitive.op_type for primitive in model.primitives}
        constants = [n for g in (model.graph, *model.functions) for n in g.node if n.op_type == "Constant"]
        self.nodes: list[Any] = list(constants)
        values = ValueReader()
        self._constants = {node.output[0]: values.constant(node.attribute[0]) for node in constants}
        self._calls = 0

    def run(self, graph: Any, values: dict[str, _Value], prefix: str) -> None:
        """Append the nodes of `graph`, whose arguments are in `values`, and put into these what its nodes give."""
        for node in graph.node:
            if node.op_type != "Constant":
                values[node.output[0]] = self._result(node, values, prefix)

    def name(self, value: _Value, where: str) -> str:
        """The node that gives `value`."""
        if isinstance(value, _Closure) or value.name is None:
            raise ExecutionError(f"{where}: a function where a tensor is expected: this cannot be proved")
        return value.name

    def _value(self, name: str, values: dict[str, _Value]) -> _Value:
        if name in values:
            return values[name]
        return _Closure(name, ()) if name in self._functions else _Tensor(name)

    def _result(self, node: Any, values: dict[str, _Value], prefix: str) -> _Value:
        callee = node.op_type.removeprefix(_REFERENCE)
        operands = [self._value(name, values) for name in node.input]
        if callee in self._functions:
            return self._call(_Closure(callee, ()), operands)
        called = values.get(callee)
        if isinstance(called, _Closure):
            return self._call(called, operands)
        kind = self._kinds.get(callee, callee)
        if called is not None or kind in _BRANCHES:
            raise ExecutionError(f"{node.domain or node.name}: which function is called depends on a tensor")
        if kind == "Partial":
            function, *arguments = operands
            assert isinstance(function, _Closure), f"{node.name} binds the arguments of no function"
            return _Closure(function.function, (*function.arguments, *arguments))
        if kind == "TupleGetItem" and isinstance(operands[0], _Tuple):
            return operands[0].items[self._index(node)]
        if kind == "Depend" and _has_functions(operands[0]):
            return operands[0]  # it is called later, and what it reads is there by then
        if kind == "MakeTuple" and any(map(_has_functions, operands)):
            return _Tuple(tuple(operands), None)
        name = self._append(node, operands, prefix)
        return _Tuple(tuple(operands), name) if kind == "MakeTuple" else _Tensor(name)

    def _index(self, node: Any) -> int:
        index = self._constants.get(node.input[1])
        assert isinstance(index, Constant) and isinstance(index.value, int), f"{node.name}: an index that is no number"
        return index.value

    def _append(self, node: Any, operands: Sequence[_Value], prefix: str) -> str:
        copy = type(node)()
        copy.CopyFrom(node)
        copy.name = copy.output[0] = prefix + node.output[0]
        del copy.input[:]
        copy.input.extend(name for operand in operands for name in self._names(operand))
        self.nodes.append(copy)
        return str(copy.output[0])

    def _names(self, value: _Value) -> Iterator[str]:
        """What a node that reads `value` reads: of a tuple with functions in it the tensors (it only waits for them)."""
        if isinstance(value, _Tuple) and value.name is None:
            for item in value.items:
                yield from self._names(item)
        elif not isinstance(value, _Closure):
            assert value.name is not None
            yield value.name

    def _call(self, closure: _Closure, operands: Sequence[_Value]) -> _Value:
        function = self._functions[closure.function]
        prefix = f"symtensor_call{self._calls}_"
        self._calls += 1
        arguments = (*closure.arguments, *operands)
        values = {proto.name: given for proto, given in zip(function.input, arguments, strict=True)}
        self.run(function, values, prefix)
        results = tuple(self._value(proto.name, values) for proto in function.output)
        return results[0] if len(results) == 1 else _Tuple(results, None)


def _has_functions(value: _Value) -> bool:
    return isinstance(value, _Closure) or (isinstance(value, _Tuple) and any(map(_has_functions, value.items)))
