"""The peak of live activations of a compiled pipeline stage, in the order that its control edges tell.

MindSpore orders the micro-batches of a stage by control edges between what begins and ends their forward and backward passes
(its `ReorderForForward` and `ReorderForBackward`). Within these, a runtime takes what is ready: here as in `compiled_memory`,
gradients of weights first, the rest of the backward pass backwards, what is computed again right before its first reader.
"""

import heapq
from collections.abc import Collection, Mapping

from ms_symtensor.bridge.compiled.collectives import is_backward, is_recomputed
from ms_symtensor.bridge.compiled.compiled_memory import backward_ranks
from ms_symtensor.bridge.compiled.gradient_sums import ACCUMULATED
from ms_symtensor.bridge.compiled.tensor_numbers import CARRIES_GRADIENT, TensorNumbers, producers
from ms_symtensor.bridge.compiler.compile import CompiledProgram
from ms_symtensor.bridge.compiler.node_graph import Node
from ms_symtensor.program.liveness import VIEWS, Step, peak_B
from ms_symtensor.tensor.graph import ParameterRef, Source

_IN_PLACE = frozenset({"AssignAdd", "Assign", "Send"})
"""Their results are parameters, or no tensors at all."""


def compiled_stage_peak_B(program: CompiledProgram) -> int:
    """Peak bytes of live tensors of one rank of a stage; parameters, inputs and the sums of gradients are not counted."""
    numbers = TensorNumbers(program)
    sums = _sums_of_gradients(program)
    steps = [
        Step(
            numbers.read_by(node),
            numbers.made_by(node),
            is_backward(node),
            node.type in VIEWS,
        )
        for node in execution_order(program)
    ]
    free = {number for node in program.nodes if node.name in sums for number in numbers.made_by(node)}
    return peak_B(steps, numbers.sizes_B, free)


def execution_order(program: CompiledProgram) -> list[Node]:
    """The nodes of `program`, every one after what it reads and what it waits for."""
    again = {node.name for node in program.nodes if is_recomputed(node)}
    first = _Order(program)
    missing: dict[str, int] = {}
    readers: dict[str, list[str]] = {}
    needs = _needs(program, again)
    for name, wanted in needs.items():
        missing[name] = len(wanted)
        for other in wanted:
            readers.setdefault(other, []).append(name)
    ready = [(first.urgency(name), name) for name, count in missing.items() if not count]
    heapq.heapify(ready)
    found: list[str] = []
    while ready:
        _, name = heapq.heappop(ready)
        found += [*_copies(program, name, again), name]
        for reader in readers.get(name, ()):
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, (first.urgency(reader), reader))
    return [program.node_by_name[name] for name in found]


class _Order:
    """What goes first of what is ready: gradients of weights, then pass by pass (as MindSpore lists them), then by rank."""

    def __init__(self, program: CompiledProgram) -> None:
        self._nodes = program.node_by_name
        self._index = {node.name: index for index, node in enumerate(program.nodes)}
        self._ranks = backward_ranks(program)
        self._gradients = _gradients(program)
        self._micro = _micro_batches(program)
        self._passes: dict[tuple[bool, int | None], int] = {}
        for node in program.nodes:
            if not is_recomputed(node):
                self._passes.setdefault((is_backward(node), self._micro[node.name]), len(self._passes))

    def urgency(self, name: str) -> tuple[bool, int, float, int]:
        behind = is_backward(self._nodes[name])
        rank = self._ranks.get(name, 0.0) if behind else 0.0
        return name not in self._gradients, self._passes[behind, self._micro[name]], rank, self._index[name]


def _needs(program: CompiledProgram, again: Collection[str]) -> Mapping[str, set[str]]:
    """What every node needs first, itself or through the copies in `again`, which are made for their first reader."""
    found: dict[str, set[str]] = {}
    for node in program.nodes:
        wanted: set[str] = set()
        for other in (*producers(node.inputs), *node.after):
            wanted |= found[other] if other in again else {other}
        found[node.name] = wanted
    return {name: wanted for name, wanted in found.items() if name not in again}


def _copies(program: CompiledProgram, name: str, left: set[str]) -> list[str]:
    """The copies `left` that a node reads, each after those that it reads; they are taken off."""
    found: list[str] = []
    for other in producers(program.node_by_name[name].inputs):
        if other in left:
            left.discard(other)
            found += [*_copies(program, other, left), other]
    return found


def _micro_batches(program: CompiledProgram) -> dict[str, int | None]:
    """The micro-batch of every node: MindSpore's mark, or that of what it reads, or else the first of what reads it."""
    found: dict[str, int | None] = {}
    for node in program.nodes:
        mark = node.attribute("micro")
        if isinstance(mark, int) and "pipeline_param" not in dict(node.marks):
            found[node.name] = mark
            continue
        read = [m for name in producers(node.inputs) if (m := found.get(name)) is not None]
        found[node.name] = max(read, default=None)
    shared = {name for name, micro in found.items() if micro is None}
    for node in reversed(program.nodes):  # readers stand behind what they read
        if (micro := found[node.name]) is not None:
            for name in shared.intersection(producers(node.inputs)):
                known = found[name]
                found[name] = micro if known is None else min(known, micro)
    return found


def _is_sum(source: Source) -> bool:
    """Whether gradients add up in this parameter."""
    return isinstance(source, ParameterRef) and source.name.startswith(ACCUMULATED)


def _sums_of_gradients(program: CompiledProgram) -> frozenset[str]:
    """The nodes that make no tensor of their own: gradients are added in place, and brought together in the sums."""
    return frozenset(n.name for n in program.nodes if n.type in _IN_PLACE or any(map(_is_sum, n.inputs)))


def _gradients(program: CompiledProgram) -> frozenset[str]:
    """The nodes on the way of a weight's gradient to where it is added up, their ends included."""
    found: set[str] = set()
    todo = [n.name for n in program.nodes if any(map(_is_sum, n.inputs))]
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        node = program.node_by_name[name]
        if node.type in CARRIES_GRADIENT or any(map(_is_sum, node.inputs)):
            todo += producers(node.inputs)
    return frozenset(found)
