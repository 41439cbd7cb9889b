"""What waits for what of a compiled program's gathers of weights, by its control edges."""

from collections.abc import Mapping

from ms_symtensor.bridge.compiled.collectives import is_backward, is_recomputed
from ms_symtensor.bridge.compiler.compile import CompiledProgram
from ms_symtensor.bridge.compiler.node_graph import Node
from ms_symtensor.program.gather_order import Pair, reader_of
from ms_symtensor.tensor.graph import OpOutput, flat

_OF = "mirror_user_id"
"""MindSpore's mark of the parameter that a collective belongs to."""


def compiled_gather_order(program: CompiledProgram) -> tuple[Pair, ...]:
    """What waits for gathers of the forward pass: other gathers, and readers of gathers."""
    gathers = {
        node.name: str(node.attribute(_OF, ""))
        for node in program.nodes
        if node.type == "AllGather" and node.attribute(_OF) and not is_backward(node) and not is_recomputed(node)
    }
    return tuple(
        (gathers[before], waiting)
        for node in program.nodes
        for before in node.after
        if before in gathers and (waiting := _waiting(node, gathers))
    )


def _waiting(node: Node, gathers: Mapping[str, str]) -> str:
    """What `node` is in a pair; empty: nothing of the forward pass. A recomputed reader has the edges of the first one."""
    if node.name in gathers:
        return gathers[node.name]
    read = [gathers[s.op] for s in flat(node.inputs) if isinstance(s, OpOutput) and s.op in gathers]
    return reader_of(read[0]) if read and not (is_backward(node) or is_recomputed(node)) else ""
