"""The passes of a compiled pipeline stage in another order than MindSpore's own.

MindSpore orders the passes of micro-batches by Depend nodes, between what begins and what ends them. Here these are taken off,
and the nodes are listed pass by pass in the order that is wanted: what is sent, received and added up follows that list
(`ordering`).
"""

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

from ms_symtensor.errors import ExecutionError
from ms_symtensor.program.schedules.scheduler import Turn

_BACKWARD = "Gradients/"

Pass = tuple[int, bool]
"""Micro-batch, and whether it goes backward."""


def reorder(model: Any, turns: Sequence[Turn]) -> None:
    """List the nodes of `model` (a `mind_ir_pb2.ModelProto`), a stage with one model chunk, in the order of `turns`.

    ExecutionError where stages exchange more than one tensor for a micro-batch and pass: then its passes cannot be told apart.
    """
    graph = model.graph
    kinds = {primitive.name: primitive for primitive in model.primitives}
    nodes = {node.output[0]: node for node in graph.node}
    order = list(nodes)
    kind_of = {name: _kind(node, kinds) for name, node in nodes.items()}
    micros = _micros(nodes, kind_of, kinds, {turn.micro_batch for turn in turns})
    passes = {name: _pass_of(nodes[name], micro) for name, micro in micros.items()}
    readers: dict[str, list[str]] = {name: [] for name in order}
    for name in order:
        for other in set(nodes[name].input) & readers.keys():
            readers[other].append(name)
    for name in order:
        node = nodes[name]
        mine = {passes[one] for one in (name, *readers[name])} - {None}
        waited = passes.get(node.input[1]) if kind_of[name] == "Depend" else None
        if waited is not None and mine - {waited}:  # one pass waits for another one
            node.input[1] = node.input[0]
    place: dict[Pass, int] = {(turn.micro_batch, turn.is_backward): number for number, turn in enumerate(turns)}
    listed = [nodes[name] for name in _listed(nodes, order, passes, place)]
    kept = [type(node).FromString(node.SerializeToString()) for node in listed]
    del graph.node[:]
    graph.node.extend(kept)


def _kind(node: Any, kinds: Mapping[str, Any]) -> str:
    primitive = kinds.get(node.op_type.removeprefix("REF::"))
    return str(node.op_type if primitive is None else primitive.op_type)


def _pass_of(node: Any, micro: int | None) -> Pass | None:
    return None if micro is None else (micro, node.domain.startswith(_BACKWARD))


def _micros(
    nodes: Mapping[str, Any], kind_of: Mapping[str, str], kinds: Mapping[str, Any], numbers: set[int]
) -> dict[str, int | None]:
    """The micro-batch of every node: that of what it receives or sends, of what it reads, or of the first that reads it."""
    found: dict[str, int | None] = dict.fromkeys(nodes)
    borders: dict[tuple[str, bool], list[int]] = {}
    for name, node in nodes.items():
        if kind_of[name] in ("Send", "Receive"):
            primitive = kinds[node.op_type.removeprefix("REF::")]
            tag = next(attribute.i for attribute in primitive.attribute if attribute.name == "sr_tag")
            found[name] = tag
            borders.setdefault((kind_of[name], node.domain.startswith(_BACKWARD)), []).append(tag)
    if any(sorted(tags) != sorted(numbers) for tags in borders.values()):
        raise ExecutionError(
            "stages exchange more than one tensor for a micro-batch, or a parameter: its passes cannot be put in another order"
        )
    for name in reversed(list(nodes)):  # what a Send reads: on the first stage nothing else tells
        micro = found[name]
        if micro is not None and not nodes[name].domain.startswith(_BACKWARD):
            for other in _data(nodes[name], kind_of[name]):
                known = found.get(other)
                if other in nodes and kind_of[other] not in ("Constant", "Send", "Receive"):
                    found[other] = micro if known is None else min(known, micro)
    for name, node in nodes.items():
        if found[name] is None:
            read = [m for other in _data(node, kind_of[name]) if (m := found.get(other)) is not None]
            found[name] = max(read, default=None)
    return found


def _data(node: Any, kind: str) -> list[str]:
    """What a node reads, without what it only waits for."""
    return list(node.input)[:1] if kind in ("Depend", "Receive") else list(node.input)


def _listed(
    nodes: Mapping[str, Any], order: Sequence[str], passes: Mapping[str, Pass | None], place: Mapping[Pass, int]
) -> list[str]:
    """The nodes, each after what it reads, pass by pass; what belongs to none as late as its readers allow, or at the end."""
    at = {name: number for number, name in enumerate(order)}
    last = len(place)
    urgency: dict[str, int] = {}
    readers: dict[str, list[str]] = {name: [] for name in order}
    missing = dict.fromkeys(order, 0)
    for name in order:
        for other in set(nodes[name].input):
            if other in readers:
                readers[other].append(name)
                missing[name] += 1
    for name in reversed(order):
        own = passes[name]
        first = min((urgency[reader] for reader in readers[name]), default=last)
        urgency[name] = first if own is None else place[own]
    ready = [(urgency[name], at[name]) for name, count in missing.items() if not count]
    heapq.heapify(ready)
    found: list[str] = []
    while ready:
        name = order[heapq.heappop(ready)[1]]
        found.append(name)
        for reader in readers[name]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, (urgency[reader], at[reader]))
    if len(found) != len(order):
        raise ExecutionError(
            "the passes of a stage cannot be put in that order: something in one waits for a later one"
        )
    return found
