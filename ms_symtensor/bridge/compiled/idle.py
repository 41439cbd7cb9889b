"""Collectives of a compiled training step that move zeros: MindSpore differentiates all that a recomputed cell returns, though
the loss depends on a part of it only, and leaves what the other part needs in the backward pass.
"""

from ms_symtensor.bridge.compiled.collectives import KINDS, is_backward, is_recomputed
from ms_symtensor.bridge.compiler.compile import CompiledProgram
from ms_symtensor.tensor.graph import InputRef, OpOutput, flat


def collectives_of_zeros(compiled: CompiledProgram) -> frozenset[str]:
    """The names of collectives in the backward pass, recomputed ones included, on which no gradient of the loss depends.

    Gradients are linear in the initial gradient, the last input of the step (on a pipeline stage: in what is received), so those
    without it are zero.
    """
    if not compiled.graph.inputs:
        return frozenset()
    seed = InputRef(compiled.graph.inputs[-1][0])
    live: set[str] = set()
    for node in compiled.nodes:
        received = node.type == "Receive" and is_backward(node)
        if received or any(s == seed or (isinstance(s, OpOutput) and s.op in live) for s in flat(node.inputs)):
            live.add(node.name)
    if not live:
        return frozenset()
    needed: set[str] = set()
    idle = []
    for node in reversed(compiled.nodes):
        backward = is_backward(node)
        is_needed = node.name in live if backward else not is_recomputed(node) or node.name in needed
        if is_needed:
            needed.update(s.op for s in flat(node.inputs) if isinstance(s, OpOutput))
        elif node.type in KINDS:
            idle.append(node.name)
    return frozenset(idle)
