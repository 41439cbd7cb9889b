"""What a run-time runs as one kernel, where MindSpore's graph has several operators.

A cell of a class that is fused (the zoo's Norm, RotaryEmbedding, GatedFeedForward, …) reads and writes in each pass what crosses
its border, in one kernel; its products stay kernels of their own. What the cell makes for itself alone is not kept: its backward
kernel reads what the forward one read, or a cast copy that another kernel keeps. Three words stand for what products and
optimizers take along: "bias" (a product adds it), "weight_casts" (weights are stored whole in the type in which they are used:
those in use are no activations), and "gradient_accumulation" (a product adds the gradient of its weight to that of the step);
three for losses: "label_indices" (labels are no one-hot rows as wide as the vocabulary), "loss_in_place" (the gradient of the
logits is written over them) and "loss_in_steps" (the forward pass takes the kernels of `LOSS_STEPS`).
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from ms_symtensor.ops.signature import Unit
from ms_symtensor.program.liveness import FUSED_IN_PLACE
from ms_symtensor.program.meanings import Meanings
from ms_symtensor.program.program import Node, Phase, Program, Role
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.tensor.graph import Graph, Op

FUSED = "Fused"
"""The kind of a kernel that stands for several operators."""

BIAS, WEIGHT_CASTS, ACCUMULATION = "bias", "weight_casts", "gradient_accumulation"
LABEL_INDICES, LOSS_IN_PLACE, LOSS_IN_STEPS = "label_indices", "loss_in_place", "loss_in_steps"
LOSS = "CrossEntropy"

LOSS_STEPS = (1, 2, 2, 1, 2)
"""How often each kernel of a loss reads or writes the logits: maximum, difference, exponential, sum, quotient.

Source: github.com/NVIDIA/Megatron-LM, megatron/core/tensor_parallel/cross_entropy.py, VocabParallelCrossEntropy; the same in
github.com/huggingface/nanotron, src/nanotron/parallel/tensor_parallel/functional.py.
"""


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


def fused_program(
    graph: Graph, program: Program | StageProgram, known: Meanings, fuses: frozenset[str]
) -> Program | StageProgram:
    """`program` of `graph`, or of a stage of it, with the kernels of a run-time that fuses `fuses`."""
    if not fuses:
        return program
    if isinstance(program, StageProgram):
        return replace(program, micro=fused(program.micro, fused_cells(program.graph, known, fuses), fuses))
    return fused(program, fused_cells(graph, known, fuses), fuses)


def fused(program: Program, cells: Mapping[str, str], fuses: frozenset[str]) -> Program:
    """`program` with one node of kind `FUSED` for the operators of every cell in each pass (`fused_cells`)."""
    if WEIGHT_CASTS in fuses:
        in_use = {t for node in program.nodes if node.role is Role.WEIGHT for t in node.outputs}
        program = replace(program, kept=program.kept | in_use)
    groups: dict[tuple[str, Phase], list[Node]] = {}
    group_of: dict[int, tuple[str, Phase]] = {}  # by position in the program
    made_in: dict[int, tuple[str, Phase]] = {}
    for position, node in enumerate(program.nodes):
        sources = {made_in.get(t) for t in node.inputs} if node.role is Role.ADD else set()
        if node.role is Role.WORK and cells.get(node.op):
            key = cells[node.op], node.phase
        elif len(sources) == 1 and (source := sources.pop()):
            key = source  # gradients meet that one cell makes
        else:
            continue
        group_of[position] = key
        groups.setdefault(key, []).append(node)
        made_in.update(dict.fromkeys(node.outputs, key))
    if not groups:
        return program
    read_outside: set[int] = set()
    for position, node in enumerate(program.nodes):
        cell = group_of.get(position, ("", None))[0]
        read_outside.update(t for t in node.inputs if t in made_in and made_in[t][0] != cell)
    read = {t for node in program.nodes for t in node.inputs}
    copies = {
        node.inputs[0]: node.outputs[0]
        for nodes in groups.values()
        for node in nodes
        if node.kind == "Cast" and node.outputs[0] in read_outside
    }
    taken = {
        key: tuple(dict.fromkeys(t for node in nodes for t in node.inputs if made_in.get(t) != key))
        for key, nodes in groups.items()
    }

    def instead(tensor: int) -> tuple[int, ...]:
        """What is read in another pass in place of a tensor that its cell made for itself alone."""
        if tensor not in made_in or tensor in read_outside:
            return (tensor,)
        if tensor in copies:
            return (copies[tensor],)
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
            outputs = tuple(t for t in made if t in read_outside or (t not in read and t in program.kept))
            kind = FUSED
            is_loss = group[0].endswith(f"-{LOSS}")
            if is_loss and LOSS_IN_PLACE in fuses and group[1] is Phase.BACKWARD:
                kind, inputs = FUSED_IN_PLACE, tuple(sorted(inputs, key=lambda t: -program.tensors[t].size_B))
            whole = groups[group][0]._replace(kind=kind, inputs=inputs, outputs=outputs, scratch=None)
            if is_loss and LOSS_IN_STEPS in fuses and group[1] is not Phase.BACKWARD:
                logits = max(inputs, key=lambda t: program.tensors[t].size_B)
                nodes += [whole._replace(inputs=(logits,) * often, outputs=()) for often in LOSS_STEPS[:-1]]
                whole = whole._replace(inputs=(*inputs, *(logits,) * (LOSS_STEPS[-1] - 1)))
            nodes.append(whole)
    return replace(program, nodes=tuple(nodes))


_CLASS = re.compile(r"[^/]*-([A-Za-z0-9_]+)")


def _cell(op: Op, known: Meanings, fuses: frozenset[str]) -> str | None:
    """The outermost fused cell that `op` stands in; None for one that does the work of a product, and for views."""
    if known[op.name][1].unit is Unit.CUBE or op.type == "Reshape":
        return None
    if op.type == "OneHot" and LABEL_INDICES not in fuses:
        return None
    path = op.name.split("/")[:-1]
    for end, cell in enumerate(path):
        found = _CLASS.fullmatch(cell)
        if found is not None and found[1] in fuses:
            return "/".join(path[: end + 1])
    return None
