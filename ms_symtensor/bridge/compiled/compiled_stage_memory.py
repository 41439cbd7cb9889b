"""The peak of live activations of a compiled pipeline stage, in the order that its control edges tell.

MindSpore orders the micro-batches of a stage by control edges between what begins and ends their forward and backward passes
(its `ReorderForForward` and `ReorderForBackward`). Within these, a runtime takes what is ready: here as in `compiled_memory`,
gradients of weights first, the rest of the backward pass backwards, what is recomputed, or made of inputs alone (labels),
right before its first reader.
"""

import heapq
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet

from ms_symtensor.bridge.compiled.collectives import is_backward, is_recomputed
from ms_symtensor.bridge.compiled.compiled_memory import backward_ranks, transposed_ahead
from ms_symtensor.bridge.compiled.gradient_sums import ACCUMULATED
from ms_symtensor.bridge.compiled.tensor_numbers import CARRIES_GRADIENT, TensorNumbers, producers
from ms_symtensor.bridge.compiler.compile import CompiledProgram
from ms_symtensor.bridge.compiler.node_graph import Node
from ms_symtensor.program.liveness import Step, is_view, peak_B
from ms_symtensor.program.schedules.scheduler import Turn
from ms_symtensor.tensor.graph import ParameterRef, Source

Pass = tuple[bool, int | None, int | None]
"""Whether it goes backward, the model chunk, and the micro-batch."""

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
            is_view(node.type),
        )
        for node in execution_order(program)
    ]
    free = {number for node in program.nodes if node.name in sums for number in numbers.made_by(node)}
    return peak_B(steps, numbers.sizes_B, free)


def execution_order(program: CompiledProgram) -> list[Node]:
    """The nodes of `program`, every one after what it reads and what it waits for."""
    recomputation = _made_late(program)
    first = _Order(program)
    missing: dict[str, int] = {}
    readers: dict[str, list[str]] = {}
    needs = _needs(program, recomputation)
    for name, wanted in needs.items():
        missing[name] = len(wanted)
        for other in wanted:
            readers.setdefault(other, []).append(name)
    ready = [(first.urgency(name), name) for name, count in missing.items() if not count]
    heapq.heapify(ready)
    found: list[str] = []
    while ready:
        _, name = heapq.heappop(ready)
        found += [*_copies(program, name, recomputation), name]
        for reader in readers.get(name, ()):
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, (first.urgency(reader), reader))
    return [program.node_by_name[name] for name in found]


def order_of_passes(program: CompiledProgram, work: Collection[str]) -> list[Turn]:
    """The passes of micro-batches in the order in which the first operator of the types `work` of each is taken."""
    runs, micros = (_marked(program, what) for what in ("chunk", "micro"))
    turns = (
        Turn(micros[node.name] or 0, runs[node.name] or 0, is_backward(node))
        for node in execution_order(program)
        if node.type in work
    )
    return list(dict.fromkeys(turns))


class _Order:
    """What goes first of what is ready: gradients of weights, then pass by pass (as MindSpore lists them), then by rank."""

    def __init__(self, program: CompiledProgram) -> None:
        self._nodes = program.node_by_name
        self._index = {node.name: index for index, node in enumerate(program.nodes)}
        self._ranks = backward_ranks(program)
        self._gradients = _gradients(program)
        self._marks = [_marked(program, what) for what in ("chunk", "micro")]
        self._passes: dict[Pass, int] = {}
        for node in program.nodes:
            if not is_recomputed(node):
                self._passes.setdefault(self._pass_of(node.name), len(self._passes))

    def urgency(self, name: str) -> tuple[bool, int, float, int]:
        rank = self._ranks.get(name, 0.0) if is_backward(self._nodes[name]) else 0.0
        return name not in self._gradients, self._passes[self._pass_of(name)], rank, self._index[name]

    def _pass_of(self, name: str) -> Pass:
        """The pass that a node belongs to."""
        run, micro = (of[name] for of in self._marks)
        return is_backward(self._nodes[name]), run, micro


def _needs(program: CompiledProgram, recomputation: Collection[str]) -> Mapping[str, set[str]]:
    """What every node needs first, itself or through the copies in `recomputation`, which are made for their first reader."""
    found: dict[str, set[str]] = {}
    for node in program.nodes:
        wanted: set[str] = set()
        for other in (*producers(node.inputs), *node.after):
            wanted |= found[other] if other in recomputation else {other}
        found[node.name] = wanted
    return {name: wanted for name, wanted in found.items() if name not in recomputation}


def _made_late(program: CompiledProgram) -> set[str]:
    """The nodes that are made for their first reader: what is recomputed, copies of weights, what is transposed for gradients,
    and what depends on nothing but inputs and constants, unless something waits for it.

    Where stages are interleaved not all copies are marked, but what reads a copy ahead of the backward pass is one, and so is
    what nothing but copies read.
    """
    recomputation: set[str] = set()
    plain = set[str]()
    received = {node.name for node in program.nodes if node.type == "Receive" and "pipeline_param" in dict(node.marks)}
    copies = {node.name for node in program.nodes if node.type == "TensorMove" or _casts_weight(node, received)}
    copies |= transposed_ahead(program)
    for node in program.nodes:
        read = [*producers(node.inputs)]
        if is_recomputed(node) or (
            not is_backward(node) and not recomputation.isdisjoint(read) and node.type not in _IN_PLACE
        ):
            recomputation.add(node.name)
        elif not (is_backward(node) or any(map(_is_weight, node.inputs)) or node.type in ("Receive", "Send")):
            plain |= {node.name} if plain.issuperset(read) else set()
    waited_for = {name for node in program.nodes for name in node.after}
    return recomputation | _read_by_copies_alone(program, recomputation, waited_for) | copies | (plain - waited_for)


def _read_by_copies_alone(program: CompiledProgram, copies: AbstractSet[str], waited_for: AbstractSet[str]) -> set[str]:
    """The nodes of the forward pass that nothing reads but `copies`, or others of these, and that are not `waited_for`."""
    found, read_by_copies, read_by_others = set[str](), set[str](), set(waited_for)
    for node in reversed(program.nodes):
        is_free = node.name in read_by_copies and node.name not in read_by_others
        if is_free and not is_backward(node) and node.type not in (*_IN_PLACE, "Receive"):
            found.add(node.name)
        read_by = read_by_copies if node.name in copies or node.name in found else read_by_others
        read_by.update(producers(node.inputs))
    return found


def _casts_weight(node: Node, received: AbstractSet[str]) -> bool:
    """Whether it casts a parameter, or one that is `received` from the stage that has it."""
    is_weight = any(map(_is_weight, node.inputs)) or not received.isdisjoint(producers(node.inputs))
    return node.type == "Cast" and is_weight and not is_backward(node)


def _is_weight(source: Source) -> bool:
    return isinstance(source, ParameterRef)


def _copies(program: CompiledProgram, name: str, left: set[str]) -> list[str]:
    """The copies `left` that a node reads, each after those that it reads; they are taken off."""
    found: list[str] = []
    for other in producers(program.node_by_name[name].inputs):
        if other in left:
            left.discard(other)
            found += [*_copies(program, other, left), other]
    return found


def _marked(program: CompiledProgram, what: str) -> dict[str, int | None]:
    """The micro-batch ("micro"), or the run of blocks ("chunk"), of every node: MindSpore's mark, or that of what it reads, or
    else the first of what reads it. Gathers of weights have the mark of the last micro-batch, and are of all.
    """
    found: dict[str, int | None] = {}
    for node in program.nodes:
        mark = node.attribute(what)
        is_of_weight = node.type == "AllGather" and any(map(_is_weight, node.inputs))
        if isinstance(mark, int) and "pipeline_param" not in dict(node.marks) and not is_of_weight:
            found[node.name] = mark
            continue
        read = [m for name in producers(node.inputs) if (m := found.get(name)) is not None]
        found[node.name] = max(read, default=None)
    shared = {name for name, mark in found.items() if mark is None}
    for node in reversed(program.nodes):  # readers stand behind what they read
        if (own := found[node.name]) is not None:
            for name in shared.intersection(producers(node.inputs)):
                known = found[name]
                found[name] = own if known is None else min(known, own)
    return found


def _is_sum(source: Source) -> bool:
    """Whether gradients add up in this parameter."""
    return isinstance(source, ParameterRef) and source.name.startswith(ACCUMULATED)


def _sums_of_gradients(program: CompiledProgram) -> frozenset[str]:
    """The nodes that make no tensor of their own: gradients are added in place, and reduced in the sums."""
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
        if node.type in CARRIES_GRADIENT | {"Transpose"} or any(map(_is_sum, node.inputs)):
            todo += producers(node.inputs)
    return frozenset(found)
