"""Weights of `@lazy_inline` at optimizer level 3, which MindSpore casts before it gathers them.

It writes the gather first, differentiates, and then moves the Cast ahead: gathers have the type in use, and the gradient is
scattered in the type that is stored. Compiled by MindSpore 2.9 and 2.10; at levels 1 and 2 the gather stays first.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from ms_symtensor.program.program import Node, Phase, Role
from ms_symtensor.tensor.graph import TensorType


def cast_first(nodes: Sequence[Node], tensors: list[TensorType], parameters: Collection[str]) -> list[Node]:
    """`nodes` with the Cast ahead of the gather of these `parameters`; changes the types of gathered `tensors`."""
    readers = Counter(t for n in nodes for t in n.inputs)
    moved = {n.outputs[0]: n for n in nodes if _of_weight(n, "AllGather", parameters) and readers[n.outputs[0]] == 1}
    casts = {n.inputs[0]: n for n in nodes if _of_weight(n, "Cast", parameters) and n.inputs[0] in moved}
    for gathered, cast in casts.items():
        tensors[gathered] = replace(tensors[moved[gathered].inputs[0]], dtype=tensors[cast.outputs[0]].dtype)

    def placed(node: Node) -> Node:
        if node.outputs and node.outputs[0] in casts:  # the gather
            return casts[node.outputs[0]]._replace(inputs=node.inputs, outputs=node.outputs, phase=node.phase)
        if node.inputs and casts.get(node.inputs[0]) is node:
            return moved[node.inputs[0]]._replace(inputs=node.inputs, outputs=node.outputs, phase=node.phase)
        return node

    return [placed(node) for node in nodes]


def _of_weight(node: Node, kind: str, parameters: Collection[str]) -> bool:
    is_forward = node.phase is not Phase.BACKWARD
    return node.kind == kind and node.role is Role.WEIGHT and is_forward and node.parameter in parameters
