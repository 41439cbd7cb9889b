"""What an operator that the user wrote (`Morph`) costs: the operators and collectives inside it, at the shapes of one device."""

from collections.abc import Iterator, Sequence

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.move import node_cost
from ms_symtensor.cost.operator import evaluate
from ms_symtensor.ops.signature import OpView, Signature, view
from ms_symtensor.program.backward import MOVE_GRADIENT
from ms_symtensor.program.builder import Builder
from ms_symtensor.program.gradients import passes_on
from ms_symtensor.program.inner import inner_name, write_inside
from ms_symtensor.program.program import Node, Role
from ms_symtensor.tensor.graph import Op, TensorType


def work_inside(op: Op, sig: Signature) -> Iterator[tuple[str, OpView, Signature]]:
    """The operators inside `op` that do work: name in the program, view and signature, whose dims are not cut any more."""
    assert op.body is not None and sig.body is not None
    for inner in op.body.ops:
        if inner.name in sig.body:
            yield inner_name(op, inner), view(op.body, inner), sig.body[inner.name]


def inner_seconds(
    op: Op, sig: Signature, trains: Sequence[bool], cluster: Cluster, device_num: int
) -> tuple[float, float]:
    """Seconds forward and backward of all that is inside `op`; `trains` tells of its inputs which have a gradient."""
    assert sig.layouts is not None
    builder, needs = Builder(), set[int]()
    seen = {name: (of, its) for name, of, its in work_inside(op, sig)}
    given = []
    for kind, layout, grad in zip(op.body.inputs if op.body else (), sig.layouts.inputs, trains, strict=True):
        tensor = builder.tensor(TensorType(layout.slice_shape, kind[1].dtype))
        given.append((tensor, grad))
        if grad:
            needs.add(tensor)
    write_inside(builder, op, {op.name: sig}, needs, given, device_num, False, False)
    forward = backward = 0.0
    for node in builder.nodes:
        has_gradient = any(t in needs for t in node.outputs)
        if node.role is Role.WORK:
            of, its = seen[node.op]
            chosen = range(len(node.inputs)) if its.differentiable is None else its.differentiable
            wanted = {node.inputs[p] for p in chosen if node.inputs[p] in needs and not _passes_on(builder, node, p)}
            products = len(wanted) if has_gradient else 0
            cost = evaluate(of, its, products, [{}], cluster)
            forward += float(cost.forward_s[0])
            backward += float(cost.backward_s[0]) if products else 0.0
            continue
        read_B, made_B = (sum(builder.tensors[t].size_B for t in tensors) for tensors in (node.inputs, node.outputs))
        forward += node_cost(cluster, node.kind, node.group, read_B, made_B)
        if has_gradient:
            of_gradient = MOVE_GRADIENT.get(node.kind, node.kind)
            backward += node_cost(cluster, of_gradient, node.group, made_B, read_B)
    return forward, backward


def _passes_on(builder: Builder, node: Node, position: int) -> bool:
    own, result = (builder.tensors[t].shape for t in (node.inputs[position], node.outputs[0]))
    return passes_on(node.kind, position, own, result)
