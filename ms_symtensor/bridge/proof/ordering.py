"""Collectives in one order on all ranks.

On an NPU they run on one stream, in the order in which the compiler wrote them. MindSpore's CPU runtime starts whatever has its
inputs, on several threads: two collectives of one group would meet in different orders and exchange their tensors.
"""

from typing import Any

_COLLECTIVES = {
    "AllReduce",
    "AllGather",
    "ReduceScatter",
    "AlltoAll",
    "AllToAll",
    "Broadcast",
    "Send",
    "Receive",
    "Barrier",
}
_DEPEND = "symtensor_Depend"


def order_collectives(model: Any) -> None:
    """Make every collective of `model` (a `mind_ir_pb2.ModelProto`) wait for the one before it, in place.

    Programs of all ranks are written in the same order, so that no two ranks wait for each other.
    """
    kinds = {primitive.name: primitive for primitive in model.primitives}
    found = False
    for graph in (model.graph, *model.functions):
        tensors = {proto.name: proto for proto in graph.parameter}
        tensors |= {proto.name: proto.tensor[0] for proto in graph.input if len(proto.tensor) == 1}
        shapes: dict[str, Any] = {}
        nodes = []
        last = None
        for node in graph.node:
            primitive = kinds.get(node.op_type.removeprefix("REF::"))
            if primitive is not None and primitive.op_type in _COLLECTIVES:
                if last is not None:
                    nodes.append(_depend(node, last))
                    _set_shape(nodes[-1], shapes.get(node.input[0]), tensors.get(node.input[0]))
                    node.input[0] = nodes[-1].output[0]
                    found = True
                last = node.output[0]
            nodes.append(node)
            shapes[node.output[0]] = next((a for a in node.attribute if a.name == "shape"), None)
        kept = [type(node).FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(kept)
    if found:
        depend = model.primitives.add()
        depend.name, depend.op_type, depend.prim_type = _DEPEND, "Depend", depend.PRIMITIVE


def _depend(node: Any, last: str) -> Any:
    """A node that delivers the first input of `node` once `last` is there."""
    made = type(node)()
    made.name = f"{node.output[0]}_after"
    made.output.append(made.name)
    made.input.extend([node.input[0], last])
    made.op_type = f"REF::{_DEPEND}"
    return made


def _set_shape(node: Any, shape: Any, tensor: Any) -> None:
    """`node` delivers what has the attribute `shape`, or is the TensorProto `tensor`."""
    attribute = node.attribute.add()
    if shape is not None:
        attribute.CopyFrom(shape)
        return
    attribute.name, attribute.type = "shape", attribute.AttributeType.Value("TENSORS")
    made = attribute.tensors.add()
    made.dims.extend(tensor.dims)
    made.data_type = tensor.data_type
