"""Dims that must not be cut because of what MindSpore makes of the gradient, which depends on the operators around."""

from collections.abc import Mapping

from ms_symtensor.ops.signature import Signature
from ms_symtensor.program.gradients import gradient_inputs, gradient_users
from ms_symtensor.tensor.graph import BPROP, Graph, Op, Source


def miscompiled_dims(
    graph: Graph, op: Op, signatures: Mapping[str, Signature], gradients: frozenset[Source]
) -> frozenset[str]:
    """The dims of `op` whose cut MindSpore compiles to another result, or to another gradient where one flows."""
    sig = signatures[op.name]
    if op.attribute(BPROP) is not None or not gradient_inputs(graph, signatures, gradients, op.name):
        return sig.miscompiled
    found = sig.miscompiled | sig.gradient_miscompiled
    return found | frozenset(sig.reduced) if _is_rewritten(graph, op, signatures, gradients) else found


def _is_rewritten(graph: Graph, op: Op, signatures: Mapping[str, Signature], gradients: frozenset[Source]) -> bool:
    """Whether a product of the AllReduced result of `op` and another tensor t has a gradient that MindSpore rewrites wrongly.

    The gradient of t is AllReduce(result) * dy there. Where t has another user, MindSpore 2.10 takes its sum with that user's
    gradient z for one of weight decay (its pass `adjust_all_reduce_mul_add`), AllReduce(result + z) * dy. t may be the result
    itself, squared.
    """
    for source in op.results[signatures[op.name].partial_output :][:1]:
        for user, position in graph.users.get(source, ()):
            if user.type != "Mul" or user.attribute(BPROP) is not None or gradients.isdisjoint(user.results):
                continue
            other = graph.tensor_inputs(user)[1 - position] if len(graph.tensor_inputs(user)) == 2 else None
            if other in gradients and gradient_users(graph, signatures, gradients, other) > 1:
                return True
    return False
