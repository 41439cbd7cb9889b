"""Which tensors of a graph have a gradient, those that a trainable parameter reaches through differentiable operators; and which
ones gradients read.
"""

from collections.abc import Mapping
from dataclasses import replace

from ms_symtensor.errors import InputError
from ms_symtensor.ops.signature import Signature
from ms_symtensor.tensor.dtype import has_gradients
from ms_symtensor.tensor.graph import (
    BPROP,
    BPROP_INPUTS,
    BPROP_OUTPUTS,
    Graph,
    Op,
    OpOutput,
    ParameterRef,
    Source,
    TensorType,
    flat,
)

PASSED_ON = {
    **dict.fromkeys(("Add", "AddExt", "AddN", "InplaceAddExt"), None),
    **dict.fromkeys(("Sub", "SubExt", "InplaceSubExt"), (0,)),
}
"""Operators whose gradient is the incoming one, unchanged, for these inputs (None: all) where they have the output's shape."""

ADDED = {"Dense": 2}
"""Operators with an input that is added to their product, by its position: its gradient is a sum, and reads no factor. Kernels of
convolutions compute it with the other gradients.
"""


def require_loss(graph: Graph) -> TensorType:
    """The type of the loss; InputError if the network returns anything else."""
    loss = graph.type_of(graph.output)
    if loss is None or "float" not in loss.dtype:
        raise InputError(f"{graph.name} does not return its loss alone, one tensor of floats: return nothing else")
    return loss


def passes_on(kind: str, position: int, shape: tuple[int, ...], result: tuple[int, ...]) -> bool:
    """Whether the gradient of an operator's input of that `shape` is that of its `result`, so that nothing computes it."""
    if kind not in PASSED_ON or shape != result:
        return False
    positions = PASSED_ON[kind]
    return positions is None or position in positions


def differentiable_sources(graph: Graph, signatures: Mapping[str, Signature]) -> frozenset[Source]:
    """Sources (operator outputs and parameters) through which a gradient flows back: from the result to a parameter."""
    found: set[Source] = {ParameterRef(p.name) for p in graph.parameters if p.requires_grad}
    for op in graph.ops:
        chosen = signatures[op.name].differentiable
        inputs = graph.tensor_inputs(op)
        wanted = inputs if chosen is None else tuple(inputs[i] for i in chosen)
        if any(s in found for s in wanted) and not op.attribute("stop_gradient", False):
            found.update(s for s, t in zip(op.results, op.outputs, strict=True) if has_gradients(t.dtype))
    reached: set[Source] = set(flat((graph.output,)))
    for op in reversed(graph.ops):
        if any(s in reached and s in found for s in op.results):
            chosen = signatures[op.name].differentiable
            inputs = graph.tensor_inputs(op)
            reached.update(inputs if chosen is None else tuple(inputs[i] for i in chosen))
    return frozenset(found & reached)


def gradient_inputs(graph: Graph, signatures: Mapping[str, Signature], found: frozenset[Source], name: str) -> int:
    """How many tensor inputs of operator `name` need a gradient that it computes; 0 where its outputs have none."""
    op = graph.op_by_name[name]
    if found.isdisjoint(op.results):
        return 0
    chosen = signatures[name].differentiable
    inputs = graph.tensor_inputs(op)
    positions = range(len(inputs)) if chosen is None else chosen
    types = [graph.type_of(source) for source in inputs]
    return sum(
        inputs[i] in found and not ((kind := types[i]) and passes_on(op.type, i, kind.shape, op.outputs[0].shape))
        for i in positions
    )


def is_kept(graph: Graph, sig: Signature, found: frozenset[Source], op: Op, position: int) -> bool:
    """Whether the gradient of `op` reads its tensor input number `position`.

    The gradient of an input of a bilinear operator reads the other inputs only: a factor is not kept where nothing else
    needs a gradient (a product with a constant).
    """
    if position not in sig.keeps_inputs or found.isdisjoint(op.results):
        return False
    inputs = graph.tensor_inputs(op)
    return not sig.bilinear or any(s in found for i, s in enumerate(inputs) if i != position)


def kept_outputs(graph: Graph, sig: Signature, found: frozenset[Source], op: Op) -> tuple[int, ...]:
    """The outputs of `op` that its gradient reads: none where only the input has one whose reads none (`x / constant`)."""
    others = [s for i, s in enumerate(graph.tensor_inputs(op)) if i != sig.reads_no_output]
    return sig.keeps_outputs if sig.reads_no_output is None or not found.isdisjoint(others) else ()


def gradient_users(graph: Graph, signatures: Mapping[str, Signature], found: frozenset[Source], source: Source) -> int:
    """How many users of `source` send a gradient back to it."""
    return sum(sends_gradient(signatures, found, user, position) for user, position in graph.users.get(source, ()))


def sends_gradient(signatures: Mapping[str, Signature], found: frozenset[Source], user: Op, position: int) -> bool:
    """Whether operator `user` sends a gradient back to its tensor input number `position`."""
    chosen = signatures[user.name].differentiable
    arrives = not found.isdisjoint(user.results)
    return arrives and (chosen is None or position in chosen)


def read_outside(graph: Graph, op: Op, sig: Signature) -> Signature:
    """What `op` means in a cell with its own backward pass (`bprop`): that is given what went into the cell and what came out of
    it, and nothing else of the cell is kept.
    """
    cell = op.attribute(BPROP)
    if cell is None:
        return sig

    def is_inner(source: Source) -> bool:
        if not isinstance(source, OpOutput) or source == graph.output:
            return False
        around = (graph.op_by_name[source.op], *(user for user, _ in graph.users.get(source, ())))
        return all(one.attribute(BPROP) == cell for one in around)

    def comes_from_outside(source: Source) -> bool:
        return not isinstance(source, OpOutput) or graph.op_by_name[source.op].attribute(BPROP) != cell

    inputs = graph.tensor_inputs(op)
    given = [p for p, source in enumerate(inputs) if op.attribute(BPROP_INPUTS) and comes_from_outside(source)]
    left = [p for p, source in enumerate(op.results) if op.attribute(BPROP_OUTPUTS) and not is_inner(source)]
    return replace(sig, keeps_inputs=tuple(given), keeps_outputs=tuple(left), bilinear=False)
