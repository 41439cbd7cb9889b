"""Element types behind a Morph whose own inference tells a wrong one (MindFormers' embedding gives that of its indices)."""

from collections.abc import Iterator
from dataclasses import replace

from ms_symtensor.tensor.graph import Graph, Op, OpOutput, TensorType, TupleInput


def with_types_of_bodies(graph: Graph) -> Graph:
    """`graph` with outputs of the element types that the bodies of its operators deliver, and so on behind these.

    An operator that hands on the wrong type hands on the right one; what gives another type (Cast) is left as it is.
    """
    right: dict[OpOutput, tuple[str, str]] = {}  # the type that was told, and the one that is
    ops = tuple(_corrected(graph, op, right) for op in graph.ops)
    return replace(graph, ops=ops) if right else graph


def _corrected(graph: Graph, op: Op, right: dict[OpOutput, tuple[str, str]]) -> Op:
    arriving = [right[s] for s in graph.tensor_inputs(op) if isinstance(s, OpOutput) and s in right]
    delivered = list(_delivered(op.body)) if op.body is not None else [dict(arriving).get(t.dtype) for t in op.outputs]
    if op.type == "Cast":
        return op
    outputs = []
    for index, (told, dtype) in enumerate(zip(op.outputs, delivered, strict=False)):
        if dtype is not None and dtype != told.dtype:
            right[OpOutput(op.name, index)] = told.dtype, dtype
            told = replace(told, dtype=dtype)
        outputs.append(told)
    return replace(op, outputs=(*outputs, *op.outputs[len(outputs) :]))


def _delivered(body: Graph) -> Iterator[str | None]:
    results = body.output.items if isinstance(body.output, TupleInput) else (body.output,)
    for source in results:
        kind: TensorType | None = body.type_of(source)
        yield None if kind is None else kind.dtype
