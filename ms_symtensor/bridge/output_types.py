"""Types of outputs that MindSpore's protobuf leaves out: the elements of a tuple that nobody takes."""

from ms_symtensor.bridge.anf import AnfGraph, Node
from ms_symtensor.tensor.graph import TensorType


def complete(node: Node, graph: AnfGraph) -> tuple[TensorType, ...]:
    return node.outputs
