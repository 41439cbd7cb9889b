"""What MindSpore compiled, as frozen data: operators, their inputs and the tensors that they deliver."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property

from ms_symtensor.tensor.graph import (
    Attribute,
    Constant,
    InputRef,
    OpOutput,
    ParameterRef,
    Source,
    TensorType,
    replaced,
)


@dataclass(frozen=True)
class Node:
    """One operator of MindSpore's graph: `name` is its full name, `instance` the name of the primitive object.

    `attributes` are the primitive's, `marks` those that MindSpore's passes left on this use of it (recompute, origins).
    `after` names operators that it waits for without reading them (Depend, UpdateState).
    """

    name: str
    type: str
    instance: str
    inputs: tuple[Source, ...]
    outputs: tuple[TensorType, ...]
    attributes: tuple[tuple[str, Attribute], ...]
    marks: tuple[tuple[str, Attribute], ...] = ()
    after: tuple[str, ...] = ()

    @property
    def scope(self) -> str:
        return self.name.rpartition("/")[0]

    @cached_property
    def _attribute(self) -> dict[str, Attribute]:
        return {**dict(self.attributes), **dict(self.marks)}

    def attribute(self, name: str, default: Attribute = None) -> Attribute:
        return self._attribute.get(name, default)


@dataclass(frozen=True)
class NodeGraph:
    """Operators in the order in which MindSpore writes them (each after its inputs), inputs and parameters."""

    nodes: tuple[Node, ...]
    inputs: tuple[tuple[str, TensorType], ...]
    parameters: tuple[tuple[str, TensorType], ...]
    output: Source

    def type_of(self, source: Source) -> TensorType | None:
        """The tensor type that `source` delivers, None where it is no single tensor."""
        match source:
            case OpOutput(op, index):
                outputs = self.node_by_name[op].outputs
                return outputs[index] if index < len(outputs) else None
            case ParameterRef(name):
                return self._parameter_types.get(name)
            case InputRef(name):
                return self._input_types.get(name)
            case Constant(tensor=tensor):
                return tensor
            case _:
                return None

    @cached_property
    def node_by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def _parameter_types(self) -> dict[str, TensorType]:
        return dict(self.parameters)

    @cached_property
    def _input_types(self) -> dict[str, TensorType]:
        return dict(self.inputs)

    def rewired(self, left_out: Collection[str], leaf: Callable[[Source], Source]) -> "NodeGraph":
        """This graph without the nodes `left_out`; every source, those in tuples included, is what `leaf` makes of it."""
        nodes = (
            replace(node, inputs=tuple(replaced(source, leaf) for source in node.inputs))
            for node in self.nodes
            if node.name not in left_out
        )
        return replace(self, nodes=tuple(nodes), output=replaced(self.output, leaf))
