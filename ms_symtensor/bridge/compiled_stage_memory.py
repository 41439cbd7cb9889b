"""The peak of live activations of a compiled pipeline stage, its micro-batches in the order of 1F1B.

MindSpore's graph orders its micro-batches by control edges; here the order is that of the schedule: a stage runs as many
forward passes ahead as later stages need, then one backward and one forward pass in turn (see program.stage_memory).
"""

from collections.abc import Iterator

from ms_symtensor.bridge.collectives import is_backward, is_recomputed
from ms_symtensor.bridge.compile import CompiledProgram
from ms_symtensor.bridge.compiled_memory import backward_ranks, producers
from ms_symtensor.bridge.gradient_sums import ACCUMULATED
from ms_symtensor.bridge.mindir import Node
from ms_symtensor.program.liveness import VIEWS, Step, peak_B, schedule
from ms_symtensor.tensor.graph import OpOutput, ParameterRef

_ENDS = frozenset({"AssignAdd", "Assign"})
_CARRIES_GRADIENT = frozenset({"AllReduce", "ReduceScatter", "Cast", "AddN"})


def compiled_stage_peak_B(program: CompiledProgram, in_flight: int) -> int:
    """Peak bytes of live tensors of one rank of a pipeline stage; parameters, inputs and their gradients are not counted.

    `in_flight`: micro-batches whose activations the stage keeps at once.
    """
    micro = _micro_batches(program)
    number = {(n.name, i): j for j, (n, i) in enumerate((n, i) for n in program.nodes for i in range(len(n.outputs)))}
    sizes = {number[n.name, i]: kind.size_B for n in program.nodes for i, kind in enumerate(n.outputs)}
    kept = {number[name, 0] for name in _gradients(program) if (name, 0) in number}
    ranks = backward_ranks(program)
    indices = {name: [number[name, i] for i in range(len(node.outputs))] for name, node in program.node_by_name.items()}

    def step(node: Node) -> Step:
        inputs = tuple(t for name in producers(node.inputs) for t in indices[name])
        behind = is_backward(node) or is_recomputed(node)
        return Step(
            inputs,
            tuple(indices[node.name]),
            behind,
            node.type in VIEWS,
            is_recomputed(node),
            ranks.get(node.name, 0.0),
        )

    forward: dict[int, list[Step]] = {}
    backward: dict[int, list[Step]] = {}
    for one in sorted({m for m in micro.values() if m is not None}):
        steps = [step(n) for n in program.nodes if micro[n.name] == one]
        ordered = [steps[i] for i in schedule(steps, kept)]
        forward[one] = [s for s in ordered if not s.is_backward]
        backward[one] = [s for s in ordered if s.is_backward]
    first = [step(n) for n in program.nodes if micro[n.name] is None and not is_backward(n)]
    order = [
        s
        for behind, one in _one_forward_one_backward(len(forward), in_flight)
        for s in (backward if behind else forward)[one]
    ]
    return peak_B(_weights_late(first, order), sizes, kept)


def _one_forward_one_backward(micro_batch_num: int, in_flight: int) -> Iterator[tuple[bool, int]]:
    """(backward?, micro-batch) in the order in which a stage runs them."""
    yield from ((False, one) for one in range(in_flight))
    for one in range(micro_batch_num):
        yield True, one
        if one + in_flight < micro_batch_num:
            yield False, one + in_flight


def _weights_late(first: list[Step], order: list[Step]) -> list[Step]:
    """`order` with the steps that all micro-batches share (weights are gathered and cast) before their first reader."""
    makers = {t: s for s in first for t in s.outputs}
    done: set[int] = set()
    found: list[Step] = []

    def emit(step: Step) -> None:
        for tensor in step.inputs:
            maker = makers.get(tensor)
            if maker is not None and id(maker) not in done:
                done.add(id(maker))
                emit(maker)
        found.append(step)

    for step in order:
        emit(step)
    return found


def _micro_batches(program: CompiledProgram) -> dict[str, int | None]:
    """The micro-batch of every node: MindSpore's mark, or that of what it reads; None for what all share."""
    found: dict[str, int | None] = {}
    for node in program.nodes:
        mark = node.attribute("micro")
        if isinstance(mark, int) and "pipeline_param" not in dict(node.marks):
            found[node.name] = mark
            continue
        read = [m for name in producers(node.inputs) if (m := found.get(name)) is not None]
        found[node.name] = max(read, default=None)
    return found


def _gradients(program: CompiledProgram) -> set[str]:
    """The nodes whose results are gradients of parameters on their way to where they add up."""
    found: set[str] = set()
    todo = [
        name
        for node in program.nodes
        if node.type in _ENDS and isinstance(node.inputs[0], ParameterRef)
        and node.inputs[0].name.startswith(ACCUMULATED)
        for name in (*producers(node.inputs[1:]), node.name)
    ]  # fmt: skip
    todo += [
        n.name
        for n in program.nodes
        if any(isinstance(s, ParameterRef) and s.name.startswith(ACCUMULATED) for s in n.inputs)
    ]
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        node = program.node_by_name[name]
        if node.type in _CARRIES_GRADIENT or node.type in _ENDS:
            todo += [s.op for s in node.inputs if isinstance(s, OpOutput)] if node.type in _CARRIES_GRADIENT else []
    return found
