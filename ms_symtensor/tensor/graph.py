"""The operator graph of a network: what a planner needs to know of it, frozen, with no framework attached.

A `Graph` holds the forward network with its loss. Operators carry MindSpore's own full names, so that a strategy found
on the graph can be written back onto the network. Bookkeeping nodes of MindSpore's IR (Load, Depend, MakeTuple,
TupleGetItem, UpdateState) do not appear: an input of an operator names its real source.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ms_symtensor.errors import InputError
from ms_symtensor.tensor.dtype import size_B

BPROP = "bprop"
"""An operator's attribute: the cell around it that has a backward pass of its own, written by the user."""

BPROP_INPUTS, BPROP_OUTPUTS = "bprop_inputs", "bprop_outputs"
"""Further attributes of these operators: that backward pass reads what went into the cell, or what came out of it."""

IDLE = "idle"
"""An attribute of a Reshape that only further Reshapes read: MindSpore leaves its input as it lies."""

LAZY_INLINE = "lazy_inline"
"""A graph's attribute, where cells with a Morph are in cells of `@lazy_inline`: the paths of these, with spaces between."""

Attribute = bool | int | float | str | None | tuple["Attribute", ...]


@dataclass(frozen=True)
class TensorType:
    """Shape and element type of a tensor, e.g. `TensorType((4096, 11008), "float16")`; -1 for what is known at run time only."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def element_num(self) -> int:
        return math.prod(self.shape)

    @property
    def is_known(self) -> bool:
        """Whether the shape is known before the network runs."""
        return min(self.shape, default=0) >= 0

    @property
    def size_B(self) -> int:
        """Bytes; InputError where they are known at run time only."""
        if not self.is_known:
            raise InputError(f"the size of a tensor {self} is known at run time only: it cannot be priced or planned")
        return self.element_num * size_B(self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class OpOutput:
    """Output number `index` of the operator with full name `op`."""

    op: str
    index: int = 0


@dataclass(frozen=True)
class ParameterRef:
    """A parameter of the network, by name."""

    name: str


@dataclass(frozen=True)
class InputRef:
    """An input of the network, by name."""

    name: str


@dataclass(frozen=True)
class Constant:
    """A value known at compile time: a scalar, None, a tuple of such; with `tensor`, a tensor of which only the type is kept.

    `elements`: what a captured tensor holds, one number where all are equal, or those of a short vector; None where that is not
    known. It is no part of what a graph is: neither compared nor written.
    """

    value: Attribute = None
    tensor: TensorType | None = None
    elements: tuple[float, ...] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class TupleInput:
    """Several sources given to an operator as one tuple, e.g. the tensors of Concat or AddN."""

    items: tuple["Source", ...]


Source = OpOutput | ParameterRef | InputRef | Constant | TupleInput


@dataclass(frozen=True)
class Parameter:
    """A trainable (or frozen) weight.

    `optimizer_shards`: whether the optimizer may share it among its copies (`Parameter.parallel_optimizer`).
    `in_shared_block`: it belongs to a cell that MindSpore compiles once for all its calls (`@lazy_inline`).
    """

    name: str
    type: TensorType
    requires_grad: bool = True
    optimizer_shards: bool = True
    in_shared_block: bool = False


JOINT = "+"
"""Between the names of the blocks of a period."""


@dataclass(frozen=True)
class Op:
    """One operator: `type` is MindSpore's primitive name, `name` its full name.

    `cell` is the path of attribute names from the network to the Python object that owns the primitive and
    `primitive` the attribute under which it stands there; both empty for a functional operator (`x + y`), which
    cannot be given a strategy. `block` names the instance of a repeated block it belongs to (`"layers.3"`), or is None. Where
    kinds of blocks take turns and a search lays out each turn alike, `period` names the blocks of one (`"layers.2+layers.3"`).

    `body` is what an operator that the user wrote in pieces (`Morph`) does on one device: local shapes, its inputs the
    operator's tensors in order, its collectives with the `ranks` of the group.
    """

    name: str
    type: str
    inputs: tuple[Source, ...]
    outputs: tuple[TensorType, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
    cell: tuple[str, ...] = ()
    primitive: str = ""
    block: str | None = None
    body: "Graph | None" = None
    period: str | None = None

    def attribute(self, name: str, default: Attribute = None) -> Attribute:
        return dict(self.attributes).get(name, default)

    @property
    def is_on_the_fly(self) -> bool:
        """Whether no cell owns its primitive (`x + y`), so that it takes no strategy but MindSpore's own."""
        return not self.primitive and self.body is None

    @property
    def reshapes(self) -> bool:
        """Whether it is a Reshape that brings its input into another layout; an IDLE one is none."""
        return self.type == "Reshape" and self.attribute(IDLE) is None

    @cached_property
    def results(self) -> tuple[OpOutput, ...]:
        """Its outputs, as others name them."""
        return tuple(OpOutput(self.name, index) for index in range(len(self.outputs)))


@dataclass(frozen=True)
class Graph:
    """A forward network with its loss, operators in topological order.

    `inputs` and `parameters` are in the network's order; `output` is the source of the (scalar) loss, or of the
    network's single result. `name` is the class of the network, for people.
    """

    name: str
    inputs: tuple[tuple[str, TensorType], ...]
    parameters: tuple[Parameter, ...]
    ops: tuple[Op, ...]
    output: Source
    attributes: tuple[tuple[str, Attribute], ...] = field(default=())

    def __hash__(self) -> int:
        return hash((self.name, self.inputs, len(self.ops)))  # what is known of a graph is looked up by it: quickly

    @cached_property
    def op_by_name(self) -> dict[str, Op]:
        return {op.name: op for op in self.ops}

    @cached_property
    def parameter_by_name(self) -> dict[str, Parameter]:
        return {p.name: p for p in self.parameters}

    @cached_property
    def derived(self) -> dict[str, Any]:
        """What packages above work out of the graph, by a name each: it does not change."""
        return {}

    @cached_property
    def input_types(self) -> dict[str, TensorType]:
        return dict(self.inputs)

    def type_of(self, source: Source) -> TensorType | None:
        """The tensor type that `source` delivers, None where it is no tensor (a scalar constant, a tuple)."""
        match source:
            case OpOutput(op, index):
                return self.op_by_name[op].outputs[index]
            case ParameterRef(name):
                return self.parameter_by_name[name].type
            case InputRef(name):
                return self.input_types[name]
            case Constant(tensor=tensor):
                return tensor
            case _:
                return None

    @cached_property
    def is_trained(self) -> bool:
        """Whether a parameter trains; else the program is a forward pass, as in serving."""
        return any(parameter.requires_grad for parameter in self.parameters)

    @cached_property
    def is_lazy_inline(self) -> bool:
        """Whether MindSpore compiles cells once for all their calls, the whole network or cells in it (`@lazy_inline`)."""
        return any(parameter.in_shared_block for parameter in self.parameters)

    def tensor_inputs(self, op: Op) -> tuple[Source, ...]:
        """The sources of `op` that are tensors, tuples opened: what a MindSpore strategy lists, in its order."""
        return self._tensor_inputs[op.name]

    @cached_property
    def _tensor_inputs(self) -> dict[str, tuple[Source, ...]]:
        return {op.name: tuple(filter(is_tensor, flat(op.inputs))) for op in self.ops}

    @cached_property
    def blocks(self) -> tuple[str, ...]:
        """The names of the repeated blocks, in order: what `Pipeline.layers` counts."""
        return tuple(dict.fromkeys(op.block for op in self.ops if op.block is not None))

    @cached_property
    def users(self) -> dict[Source, tuple[tuple[Op, int], ...]]:
        """For every source that is used: the operators that use it, and as which tensor input."""
        found: dict[Source, list[tuple[Op, int]]] = {}
        for op in self.ops:
            for position, source in enumerate(self.tensor_inputs(op)):
                found.setdefault(source, []).append((op, position))
        return {source: tuple(pairs) for source, pairs in found.items()}

    @cached_property
    def custom_backward(self) -> frozenset[str]:
        """Operators in cells with a backward pass of their own."""
        return frozenset(op.name for op in self.ops if any(name == BPROP for name, _ in op.attributes))

    def listed_users(self, source: Source) -> tuple[tuple[Op, int], ...]:
        """The `users` of `source`, in the order in which MindSpore's graph manager lists them."""
        users = self.users.get(source, ())
        return users if len(users) < 2 else self._users_from_result[source]

    @cached_property
    def _users_from_result(self) -> dict[Source, tuple[tuple[Op, int], ...]]:
        # How MindSpore lists them follows from the graph, not the other way round.
        from ms_symtensor.tensor.users import users_from_result

        return users_from_result(self)

    @cached_property
    def hash(self) -> str:
        """SHA-256 over the graph's canonical text: names a graph in strategy files."""
        # The file format knows the graph, not the other way round.
        from ms_symtensor.tensor.graph_text import canonical_text

        return hashlib.sha256(canonical_text(self).encode()).hexdigest()


def sources_of(op: Op) -> Iterator[Source]:
    """What `op` reads, tuples opened."""
    return flat(op.inputs)


def is_tensor(source: Source) -> bool:
    """Whether `source`, which is no tuple, is a tensor; a scalar constant is not."""
    return not isinstance(source, Constant) or source.tensor is not None


def makers_of(op: Op) -> list[str]:
    """The names of the operators that make what `op` reads, tuples opened."""
    return [source.op for source in sources_of(op) if isinstance(source, OpOutput)]


def makers_behind(graph: Graph, result: Source) -> set[str]:
    """The names of all operators that `result` is made by."""
    found: set[str] = set()
    waiting = [result.op] if isinstance(result, OpOutput) else []
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += makers_of(graph.op_by_name[name])
    return found


def replaced(source: Source, leaf: Callable[[Source], Source]) -> Source:
    """`source`, or every item of a tuple, as `leaf` tells."""
    if isinstance(source, TupleInput):
        return TupleInput(tuple(replaced(item, leaf) for item in source.items))
    return leaf(source)


def flat(sources: Iterable[Source]) -> Iterator[Source]:
    """`sources`, tuples opened."""
    every = tuple(sources)
    return _opened(every) if TupleInput in map(type, every) else iter(every)


def _opened(sources: Iterable[Source]) -> Iterator[Source]:
    for source in sources:
        if isinstance(source, TupleInput):
            yield from flat(source.items)
        else:
            yield source
