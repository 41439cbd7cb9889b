"""What a run-time runs as one kernel, where MindSpore's graph has several operators.

A cell of a class that is fused (the zoo's Norm, RotaryEmbedding, GatedFeedForward, …) reads and writes in each pass what crosses
its border, in one kernel; its products stay kernels of their own. What the cell makes for itself alone is not kept: its backward
kernel reads what the forward one read. Three words stand for what products and optimizers take along: "bias" (a product adds
it), "weight_casts" (weights are stored in the type in which they are used), and "gradient_accumulation" (a product adds the
gradient of its weight to that of the step).
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from ms_symtensor.ops.signature import Unit
from ms_symtensor.program.meanings import Meanings
from ms_symtensor.program.program import Node, Phase, Program, Role
from ms_symtensor.tensor.graph import Graph, Op

FUSED = "Fused"
"""The kind of a kernel that stands for several operators."""

BIAS, WEIGHT_CASTS, ACCUMULATION = "bias", "weight_casts", "gradient_accumulation"


def fused_cells(graph: Graph, known: Meanings, fuses: frozenset[str]) -> dict[str, str]:
    """The operators of `graph` that are not kernels of their own, each with its fused cell; "" for a bias that a product adds."""
    found = {}
    for op in graph.ops if fuses else ():
        cell = "" if BIAS in fuses and op.primitive == "add_bias" else _cell(op, known, fuses)
        if cell is not None:
            found[op.name] = cell
    return found


def is_free(node: Node, cells: Mapping[str, str], fuses: frozenset[str]) -> bool:
    """Whether `node` of a program is taken along by another kernel."""
    if node.role is Role.WORK:
        return cells.get(node.op) == ""
    if node.kind == "Cast" and node.role is Role.WEIGHT:
        return WEIGHT_CASTS in fuses
    return node.kind == "AssignAdd" and node.role is Role.SYNC and ACCUMULATION in fuses


def fused(program: Program, cells: Mapping[str, str]) -> Program:
    """`program` with one node of kind `FUSED` for the operators of every cell in each pass (`fused_cells`)."""
    groups: dict[tuple[str, Phase], list[Node]] = {}
    group_of: dict[int, tuple[str, Phase]] = {}  # by position in the program
    for position, node in enumerate(program.nodes):
        if node.role is Role.WORK and cells.get(node.op):
            group_of[position] = cells[node.op], node.phase
            groups.setdefault(group_of[position], []).append(node)
    if not groups:
        return program
    made_in = {t: key for key, nodes in groups.items() for node in nodes for t in node.outputs}
    read_outside: set[int] = set()
    for position, node in enumerate(program.nodes):
        cell = group_of.get(position, ("", None))[0]
        read_outside.update(t for t in node.inputs if t in made_in and made_in[t][0] != cell)
    read = {t for node in program.nodes for t in node.inputs}
    taken = {
        key: tuple(dict.fromkeys(t for node in nodes for t in node.inputs if made_in.get(t) != key))
        for key, nodes in groups.items()
    }

    def instead(tensor: int) -> tuple[int, ...]:
        """What is read in another pass in place of a tensor that its cell made for itself alone."""
        if tensor not in made_in or tensor in read_outside:
            return (tensor,)
        return tuple(t for source in taken[made_in[tensor]] for t in instead(source))

    nodes: list[Node] = []
    last = {key: position for position, key in group_of.items()}
    for position, node in enumerate(program.nodes):
        group = group_of.get(position)
        if group is None:
            nodes.append(node)
        elif last[group] == position:
            inputs = tuple(dict.fromkeys(t for source in taken[group] for t in instead(source)))
            made = [t for one in groups[group] for t in one.outputs]
            outputs = tuple(t for t in made if t in read_outside or t not in read)
            one = groups[group][0]
            nodes.append(one._replace(kind=FUSED, inputs=inputs, outputs=outputs, scratch=None))
    return replace(program, nodes=tuple(nodes))


_CLASS = re.compile(r"[^/]*-([A-Za-z0-9_]+)")


def _cell(op: Op, known: Meanings, fuses: frozenset[str]) -> str | None:
    """The outermost fused cell that `op` stands in; None for one that does the work of a product, and for views."""
    if known[op.name][1].unit is Unit.CUBE or op.type == "Reshape":
        return None
    path = op.name.split("/")[:-1]
    for end, cell in enumerate(path):
        found = _CLASS.fullmatch(cell)
        if found is not None and found[1] in fuses:
            return "/".join(path[: end + 1])
    return None
