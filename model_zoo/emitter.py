"""Writes a `Graph` operator by operator, naming and ordering as MindSpore does."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from ms_symtensor.tensor.graph import (
    Attribute,
    Constant,
    Graph,
    InputRef,
    Op,
    OpOutput,
    Parameter,
    ParameterRef,
    Source,
    TensorType,
    TupleInput,
)

Shared = TypeVar("Shared")

_UNOWNED = ("Cast", "StopGradient")
"""MindSpore may merge equal ones, so a captured graph does not tell whose primitive they are; nobody needs to know."""


@dataclass(frozen=True)
class Value:
    """A tensor on its way through the network."""

    source: Source
    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> str:
        return self.type.dtype


Argument = Value | Constant | list[Value]
"""What an operator takes: a tensor, a compile-time value, or several tensors as one tuple."""


@dataclass(frozen=True)
class _Cell:
    """Where operators are emitted: the `scope` and `path` of a cell, and the repeated block it is or lies in."""

    scope: str = "Default"
    path: tuple[str, ...] = ()
    block: str | None = None

    def child(self, attribute: str, class_name: str) -> "_Cell":
        path = (*self.path, attribute)
        block = ".".join(path) if self.block is None and attribute.isdigit() else self.block
        return _Cell(f"{self.scope}/{attribute}-{class_name}", path, block)


class Emitter:
    """Collects operators in the order of the calls; `graph` puts them in MindSpore's order and gives them their names.

    MindSpore runs operators in the order in which a depth-first walk from the result leaves them, and counts the
    operators of a type within a scope in that order; so names are known at the end, and numbers stand in until then.
    """

    def __init__(self, lazy_inline: bool = False) -> None:
        """`lazy_inline`: MindSpore compiles transformer blocks of a kind once for all."""
        self._lazy_inline = lazy_inline
        self._cell = _Cell()
        self._drafts: list[tuple[str, Op]] = []
        self._after: dict[str, Value] = {}
        self._inputs: list[tuple[str, TensorType]] = []
        self._parameters: dict[str, Parameter] = {}

    @property
    def path(self) -> tuple[str, ...]:
        """Where the current cell stands."""
        return self._cell.path

    @contextmanager
    def cell(self, attribute: str, class_name: str) -> Iterator[None]:
        """Inside, operators belong to the child cell `attribute` of the current cell."""
        before = self._cell
        self._cell = before.child(attribute, class_name)
        try:
            yield
        finally:
            self._cell = before

    def input(self, name: str, shape: tuple[int, ...], dtype: str) -> Value:
        value = Value(InputRef(name), TensorType(shape, dtype))
        self._inputs.append((name, value.type))
        return value

    def parameter(self, name: str, shape: tuple[int, ...], dtype: str, trains: bool = True) -> Value:
        """The parameter `name` of the current cell."""
        full_name = ".".join((*self._cell.path, name))
        kind = TensorType(shape, dtype)
        self._parameters[full_name] = Parameter(full_name, kind, trains, in_shared_block=self._shares_blocks())
        return Value(ParameterRef(full_name), self._parameters[full_name].type)

    def _shares_blocks(self) -> bool:
        return self._lazy_inline and any(part.endswith("-TransformerBlock") for part in self._cell.scope.split("/"))

    def op(
        self,
        op_type: str,
        primitive: str,
        arguments: tuple[Argument, ...],
        *outputs: TensorType,
        **attributes: Attribute,
    ) -> tuple[Value, ...]:
        """Emit an operator of the current cell, whose primitive stands there under the attribute `primitive`."""
        draft = str(len(self._drafts))
        is_owned = op_type not in _UNOWNED
        op = Op(
            name=draft,
            type=op_type,
            inputs=tuple(_source(argument) for argument in arguments),
            outputs=outputs,
            attributes=tuple(sorted(attributes.items())),
            cell=self._cell.path if is_owned else (),
            primitive=primitive if is_owned else "",
            block=self._cell.block,
        )
        self._drafts.append((self._cell.scope, op))
        return tuple(Value(OpOutput(draft, index), output) for index, output in enumerate(outputs))

    def depend(self, value: Value, other: Value) -> None:
        """The first input of what makes `value` waits for `other`, which nobody reads (ops.depend)."""
        (number,) = _producers(value.source)
        self._after[str(number)] = other

    def graph(self, name: str, output: Value, parameter_order: tuple[str, ...]) -> Graph:
        """The graph that delivers `output`; `parameter_order`: attribute names as cells define them, first to last.

        Equal constants, attributes and types are one object: blocks share them.
        """
        names: dict[str, str] = {}
        known: dict[str, Any] = {}

        def once(value: Shared) -> Shared:
            return cast(Shared, known.setdefault(repr(value), value))  # True and 1 are equal, and not the same

        counts: Counter[tuple[str, str]] = Counter()
        ops = []
        for number in self._execution_order(output.source):
            scope, op = self._drafts[number]
            names[op.name] = f"{scope}/{op.type}-op{counts[scope, op.type]}"
            counts[scope, op.type] += 1
            inputs = tuple(_named(source, names, once) for source in op.inputs)
            outputs, attributes = once(op.outputs), once(op.attributes)
            ops.append(Op(names[op.name], op.type, inputs, outputs, attributes, op.cell, op.primitive, op.block))
        position = {part: index for index, part in enumerate(parameter_order)}
        ordered = sorted(
            self._parameters, key=lambda p: [int(part) if part.isdigit() else position[part] for part in p.split(".")]
        )
        return Graph(
            name=name,
            inputs=tuple(self._inputs),
            parameters=tuple(self._parameters[p] for p in ordered),
            ops=tuple(ops),
            output=_named(output.source, names, once),
        )

    def _execution_order(self, output: Source) -> Iterator[int]:
        """Draft numbers, every operator after what it needs, first inputs first; a stack, as networks are deep."""
        done: set[int] = set()
        stack = [(number, False) for number in _producers(output)]
        while stack:
            number, ready = stack.pop()
            if ready:
                yield number
            elif number not in done:
                done.add(number)
                stack.append((number, True))
                sources = [*self._drafts[number][1].inputs]
                if str(number) in self._after:
                    sources.insert(1, self._after[str(number)].source)
                inputs = [producer for source in sources for producer in _producers(source)]
                stack.extend((producer, False) for producer in reversed(inputs) if producer not in done)


def _source(argument: Argument) -> Source:
    if isinstance(argument, list):
        return TupleInput(tuple(value.source for value in argument))
    return argument.source if isinstance(argument, Value) else argument


def _producers(source: Source) -> list[int]:
    if isinstance(source, TupleInput):
        return [number for item in source.items for number in _producers(item)]
    return [int(source.op)] if isinstance(source, OpOutput) else []


def _named(source: Source, names: dict[str, str], once: Callable[[Constant], Constant]) -> Source:
    match source:
        case OpOutput(op, index):
            return OpOutput(names[op], index)
        case TupleInput(items):
            return TupleInput(tuple(_named(item, names, once) for item in items))
        case Constant():
            return once(source)
    return source
