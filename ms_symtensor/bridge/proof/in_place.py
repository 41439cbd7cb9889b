"""What an operator in place has changed, read by the name of its result.

A gradient may change a tensor and then read it by its old name, behind a `Depend` on the change (those of `mint.topk` and
`mint.cummax`). MindSpore's CPU runtime gives a result of its own there, and leaves what has the old name as it was.
"""

from typing import Any


def read_results(model: Any) -> None:
    """In `model` (a `mind_ir_pb2.ModelProto`), let every `Depend` of a tensor on its change give the changed one, in place."""
    kinds = {f"REF::{primitive.name}": primitive.op_type for primitive in model.primitives}
    for graph in (model.graph, *model.functions):
        made = {node.output[0]: node for node in graph.node}
        for node in graph.node:
            if kinds.get(node.op_type) != "Depend" or node.input[1] not in made:
                continue
            change = made[node.input[1]]
            if kinds.get(change.op_type, "").startswith("Inplace") and change.input[0] == node.input[0]:
                node.input[0] = node.input[1]
