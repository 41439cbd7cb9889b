"""Collectives in one order on all ranks, and sums in place one after the other.

On an NPU they run on one stream, in the order in which the compiler wrote them. MindSpore's CPU runtime starts whatever has its
inputs, on several threads: two collectives of one group would meet in different orders and exchange their tensors, and what
micro-batches add to one tensor at the same time could get lost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ms_symtensor.bridge.compiler.mindir_values import set_nodes
from ms_symtensor.errors import ExecutionError

_COLLECTIVES = {"AllReduce", "AllGather", "Broadcast", "Barrier"}  # what is left when others have been replaced
_IN_PLACE = {"AssignAdd", "Assign"}
_DEPEND = "symtensor_Depend"


@dataclass(frozen=True)
class Meeting:
    """A collective of a program: the ranks that must come together for it. `name` is the operator's full name."""

    name: str
    kind: str
    ranks: tuple[int, ...]


def order_collectives(model: Any, groups: Mapping[str, tuple[int, ...]]) -> tuple[Meeting, ...]:
    """Make every collective and every sum in place of `model` (a `mind_ir_pb2.ModelProto`) wait for the one before it; the
    order of the collectives.

    `groups`: the global ranks of communication groups.
    """
    kinds = {primitive.name: primitive for primitive in model.primitives}
    found: list[Meeting] = []
    depends = False
    for graph in (model.graph, *model.functions):
        tensors = {proto.name: proto for proto in graph.parameter}
        tensors |= {proto.name: proto.tensor[0] for proto in graph.input if len(proto.tensor) == 1}
        tensors |= {
            node.output[0]: node.attribute[0].tensors[0]
            for node in graph.node
            if node.op_type == "Constant" and len(node.attribute[0].tensors) == 1
        }
        shapes: dict[str, Any] = {}
        nodes = []
        last = None
        for node in graph.node:
            primitive = kinds.get(node.op_type.removeprefix("REF::"))
            kind = "" if primitive is None else primitive.op_type
            if kind in _COLLECTIVES or kind in _IN_PLACE:
                waits = 1 if kind in _IN_PLACE else 0  # the first operand of these is what they change
                if last is not None:
                    nodes.append(_depend(node, waits, last))
                    _set_shape(nodes[-1], shapes.get(node.input[waits]), tensors.get(node.input[waits]))
                    node.input[waits] = nodes[-1].output[0]
                    depends = True
                last = node.output[0]
            if primitive is not None and kind in _COLLECTIVES:
                group = next(a.s.decode() for a in primitive.attribute if a.name == "group")
                found.append(Meeting(node.domain or node.name, kind, groups[group]))
            nodes.append(node)
            shapes[node.output[0]] = next((a for a in node.attribute if a.name == "shape"), None)
        set_nodes(graph, nodes)
    if depends:
        depend = model.primitives.add()
        depend.name, depend.op_type, depend.prim_type = _DEPEND, "Depend", depend.PRIMITIVE
    return tuple(found)


def require_meetings(ranks: Sequence[Sequence[Meeting]]) -> None:
    """ExecutionError, naming who waits where, unless the ranks, each in its own order, come together for every collective."""
    at = [0] * len(ranks)

    def waiting(rank: int) -> Meeting | None:
        return ranks[rank][at[rank]] if at[rank] < len(ranks[rank]) else None

    moved = True
    while moved:
        moved = False
        for rank in range(len(ranks)):
            while (meeting := waiting(rank)) is not None:
                there = [waiting(other) for other in meeting.ranks]
                if any(other is None or (other.kind, other.ranks) != (meeting.kind, meeting.ranks) for other in there):
                    break
                for other in meeting.ranks:
                    at[other] += 1
                moved = True
    stuck = [f"rank {rank} in {m.name} with ranks {m.ranks}" for rank in range(len(ranks)) if (m := waiting(rank))]
    if stuck:
        raise ExecutionError(f"the ranks wait for each other for ever: {'; '.join(stuck[:4])}")


def _depend(node: Any, position: int, last: str) -> Any:
    """A node that delivers input `position` of `node` once `last` is there."""
    made = type(node)()
    made.name = f"{node.output[0]}_after"
    made.output.append(made.name)
    made.input.extend([node.input[position], last])
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
