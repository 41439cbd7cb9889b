"""Reshapes that only further Reshapes read, seen through Casts: MindSpore leaves their input as it lies, in its own shape.

The last Reshape then takes the tensor from the layout that the first one found, and what stands between works on that.
"""

from dataclasses import replace

from ms_symtensor.tensor.graph import IDLE, Constant, Graph, Op, OpOutput, ParameterRef, Source

PASSING = frozenset({"Cast", "StopGradient"})
"""Operators whose layout is that of their input."""


def with_idle_reshapes(graph: Graph) -> Graph:
    """`graph` with these Reshapes marked IDLE: they, and the operators of PASSING behind them, keep the shape of their input."""
    idle = {op.name for op in graph.ops if op.type == "Reshape" and _is_idle(graph, op)}
    if not idle:
        return graph
    shapes: dict[Source, tuple[int, ...]] = {}
    ops = []
    for op in graph.ops:
        source = op.inputs[0] if op.inputs else None
        if op.name in idle:
            attributes = tuple(sorted([*op.attributes, (IDLE, True)]))
            kind = graph.type_of(source) if source is not None else None
            assert source is not None and kind is not None
            op = _in_shape(replace(op, attributes=attributes), shapes.get(source, kind.shape))
            shapes[OpOutput(op.name)] = op.outputs[0].shape
        elif op.type in PASSING and source in shapes:
            op = _in_shape(op, shapes[source])
            shapes[OpOutput(op.name)] = op.outputs[0].shape
        ops.append(op)
    return replace(graph, ops=tuple(ops))


def _is_idle(graph: Graph, op: Op) -> bool:
    root = op.inputs[0]
    while isinstance(root, OpOutput) and graph.op_by_name[root.op].type in {*PASSING, "Reshape"}:
        root = graph.op_by_name[root.op].inputs[0]
    return not isinstance(root, ParameterRef | Constant) and _reshaped_alone(graph, OpOutput(op.name))


def _reshaped_alone(graph: Graph, source: OpOutput) -> bool:
    """Whether `source` is used, and by Reshapes alone, seen through operators of PASSING."""
    users = [user for user, _ in graph.users.get(source, ())]
    if not users or source == graph.output:
        return False
    return all(
        user.type == "Reshape" or (user.type in PASSING and _reshaped_alone(graph, OpOutput(user.name)))
        for user in users
    )


def _in_shape(op: Op, shape: tuple[int, ...]) -> Op:
    return replace(op, outputs=(replace(op.outputs[0], shape=shape),))
