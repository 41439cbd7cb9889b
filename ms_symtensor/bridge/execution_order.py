"""In which order a compiled program runs where it has a choice: as the network is written, and backwards through it.

MindSpore's listing is one topological order of many; the backend chooses later. Predicted programs follow the network, so
their peaks can be compared only if compiled ones do too.
"""

from collections.abc import Iterable, Iterator

from ms_symtensor.bridge.collectives import is_backward, is_recomputed
from ms_symtensor.bridge.compile import CompiledProgram
from ms_symtensor.bridge.mindir import Node
from ms_symtensor.tensor.graph import Graph, OpOutput, Source, TupleInput

_INSERTED = ("redistribution", "parallel_optimizer")  # in the instance names of what moves tensors and gathers weights
_SUMS = ("AllReduce", "ReduceScatter")
_BEFORE, _AFTER = -0.5, 0.25  # places around that of an operator


def ranks(program: CompiledProgram, graph: Graph) -> dict[str, float]:
    """The place of every node of `program`, compiled from the network of `graph`; lower ones come first."""
    forward = _forward(program, graph)
    return {**forward, **_backward(program, forward)}


def _forward(program: CompiledProgram, graph: Graph) -> dict[str, float]:
    """Operators as in the network, partial sums right after them, everything else right before its first reader."""
    nodes = [node for node in program.nodes if not is_backward(node) and not is_recomputed(node)]
    found = _operators(nodes, graph)
    for node in nodes:
        if node.name not in found and node.type in _SUMS and not _is_inserted(node):
            made = [found[op] for op in producers(node.inputs) if op in found]
            if made:
                found[node.name] = max(made) + _AFTER
    first: dict[str, float] = {}
    for node in reversed(nodes):
        if node.name not in found:
            found[node.name] = first.get(node.name, float(len(graph.ops)))
        for op in producers(node.inputs):
            first[op] = min(first.get(op, found[node.name]), _earlier(found[node.name]))
    return found


def _earlier(place: float) -> float:
    return place if place % 1 == 0.5 else place // 1 + _BEFORE


def _operators(nodes: Iterable[Node], graph: Graph) -> dict[str, float]:
    """The operators of the network among `nodes`, with their numbers in it.

    MindSpore counts operators of a type within a cell, and those that it inserts too: their order is that of the network.
    """
    written: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for index, op in enumerate(graph.ops):
        written.setdefault((_scope(op.name), op.type), []).append((_count(op.name), index))
    compiled: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for node in nodes:
        if not _is_inserted(node):
            compiled.setdefault((_scope(node.name), node.type), []).append((_count(node.name), node.name))
    found = {}
    for key, names in compiled.items():
        if len(names) == len(written.get(key, ())):
            for (_, name), (_, index) in zip(sorted(names), sorted(written[key]), strict=True):
                found[name] = float(index)
    return found


def _scope(name: str) -> str:
    """The cells of a full name, without the cell that wraps the network."""
    cells = name.split("/")[1:-1]
    return "/".join(cells[1:] if cells and cells[0].startswith("network-") else cells)


def _count(name: str) -> int:
    number = name.rpartition("-op")[2]
    return int(number) if number.isdigit() else 0


def _is_inserted(node: Node) -> bool:
    return any(mark in node.instance for mark in _INSERTED)


def _backward(program: CompiledProgram, forward: dict[str, float]) -> dict[str, float]:
    """Gradients go backwards through the forward operators, with which MindSpore marks them.

    A sum of gradients comes right before its first reader, anything else without a mark (its forward operator was a duplicate
    and is gone) right after what it reads.
    """
    place = {n.attribute("unique_id"): -forward[n.name] for n in program.nodes if n.name in forward}
    place.pop(None, None)
    found: dict[str, float] = {}
    behind = [node for node in program.nodes if is_backward(node)]
    for node in behind:
        rank = place.get(node.attribute("forward_unique_id"))
        if rank is None and node.type == "AddN":
            continue
        made = [found[op] for op in producers(node.inputs) if op in found]
        found[node.name] = rank if rank is not None else max(made, default=min(place.values(), default=0.0))
    first: dict[str, float] = {}
    for node in reversed(behind):
        if node.name not in found and node.name in first:
            found[node.name] = first[node.name]
        if node.name in found:
            for op in producers(node.inputs):
                first[op] = min(first.get(op, found[node.name]), found[node.name])
    return found


def producers(sources: Iterable[Source]) -> Iterator[str]:
    """The operators whose outputs `sources` are."""
    for source in sources:
        if isinstance(source, TupleInput):
            yield from producers(source.items)
        elif isinstance(source, OpOutput):
            yield source.op
