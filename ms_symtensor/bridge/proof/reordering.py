"""The passes of a compiled pipeline stage in another order than MindSpore's own.

MindSpore orders the passes of micro-batches by Depend nodes, between what begins and what ends them. Here these are taken off,
and the nodes are listed pass by pass in the order that is wanted: what is sent, received and added up follows that list
(`ordering`). On local processes a Send waits for its Receive. So all ranks exchange in one order: that in which passes end
where F takes 1 and a whole backward pass 2.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ms_symtensor.bridge.compiler.mindir_values import set_nodes
from ms_symtensor.errors import ExecutionError
from ms_symtensor.program.schedules.scheduler import Turn
from ms_symtensor.scheduling.problem import Action, Kind, Part, Problem
from ms_symtensor.scheduling.published import ONE
from ms_symtensor.scheduling.simulator import simulate

_BACKWARD = "Gradients/"

Pass = tuple[int, bool]
"""Micro-batch, and whether it goes backward."""
Place = tuple[float, int]
"""When, and, of what is then, what comes first."""
_END: Place = (float("inf"), 0)


@dataclass(frozen=True)
class Places:
    """Where the passes of a rank begin in a step, and when it sends and receives what they give."""

    passes: Mapping[Pass, Place]
    borders: Mapping[tuple[str, bool, int], Place]
    """By Send or Receive, whether it goes backward, and micro-batch."""


def places(orders: Sequence[Sequence[Turn]], stage: int) -> Places:
    """Those of the ranks of `stage`, where all stages take their passes in these orders.

    Errors: InputError where they wait for each other for ever.
    """
    stages, number = len(orders), len(orders[0]) // 2
    parts = tuple(Part(each, 1.0, 1.0, 1.0) for each in range(stages))
    limits, nothing = (float("inf"),) * stages, (0.0,) * stages
    of = Problem(ONE, parts, (tuple(range(stages)),), number, limits, nothing, nothing)
    actions = [
        [Action(each, each, turn.micro_batch, Kind.WHOLE if turn.is_backward else Kind.FORWARD) for turn in order]
        for each, order in enumerate(orders)
    ]
    begins_s = simulate(of, actions).begins_s
    begun = [
        {(turn.micro_batch, turn.is_backward): begin_s for turn, begin_s in zip(order, of_stage, strict=True)}
        for order, of_stage in zip(orders, begins_s, strict=True)
    ]

    def ended(sender: int, micro: int, is_backward: bool) -> Place:
        return begun[sender][micro, is_backward] + 1.0 + is_backward, sender - stages

    borders = {}
    for micro, is_backward in begun[stage]:
        onward = -1 if is_backward else 1
        if 0 <= stage + onward < stages:
            borders["Send", is_backward, micro] = ended(stage, micro, is_backward)
        if 0 <= stage - onward < stages:
            borders["Receive", is_backward, micro] = ended(stage - onward, micro, is_backward)
    return Places({one: (begin_s, 0) for one, begin_s in begun[stage].items()}, borders)


def reorder(model: Any, wanted: Places) -> None:
    """List the nodes of `model` (a `mind_ir_pb2.ModelProto`), a stage with one model chunk, by their places.

    ExecutionError where stages exchange more than one tensor for a micro-batch and pass: then its passes cannot be told apart.
    """
    graph = model.graph
    kinds = {primitive.name: primitive for primitive in model.primitives}
    nodes = {node.output[0]: node for node in graph.node}
    order = list(nodes)
    kind_of = {name: _kind(node, kinds) for name, node in nodes.items()}
    micros = _micros(nodes, kind_of, kinds, {micro for micro, _ in wanted.passes})
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
            if name in readers.get(node.input[1], ()) and node.input[1] != node.input[0]:
                readers[node.input[1]].remove(name)
            node.input[1] = node.input[0]
    own: dict[str, Place | None] = {name: one if one is None else wanted.passes[one] for name, one in passes.items()}
    for name, one in passes.items():
        if one is not None and kind_of[name] in ("Send", "Receive"):
            own[name] = wanted.borders[kind_of[name], one[1], one[0]]
            if kind_of[name] == "Receive":  # what it waits for belongs to its pass, and comes before it
                own |= {other: own[name] for other in nodes[name].input if kind_of.get(other) == "Depend"}
    set_nodes(graph, [nodes[name] for name in _listed(nodes, order, readers, own)])


def _kind(node: Any, kinds: Mapping[str, Any]) -> str:
    primitive = kinds.get(node.op_type.removeprefix("REF::"))
    return str(node.op_type if primitive is None else primitive.op_type)


def _pass_of(node: Any, micro: int | None) -> Pass | None:
    return None if micro is None else (micro, node.domain.startswith(_BACKWARD))


def _micros(
    nodes: Mapping[str, Any], kind_of: Mapping[str, str], kinds: Mapping[str, Any], numbers: set[int]
) -> dict[str, int | None]:
    """The micro-batch of every node: that of what it receives or sends, of what it reads, or of the first that reads it.

    MindSpore counts the tags of all programs of a process on, so that the lowest one is that of the first micro-batch.
    """
    found: dict[str, int | None] = dict.fromkeys(nodes)
    borders: dict[tuple[str, bool], list[int]] = {}
    for name, node in nodes.items():
        if kind_of[name] in ("Send", "Receive"):
            primitive = kinds[node.op_type.removeprefix("REF::")]
            tag = next(attribute.i for attribute in primitive.attribute if attribute.name == "sr_tag")
            found[name] = tag
            borders.setdefault((kind_of[name], node.domain.startswith(_BACKWARD)), []).append(tag)
    shift = min((tag for tags in borders.values() for tag in tags), default=0) - min(numbers)
    found = {name: None if tag is None else tag - shift for name, tag in found.items()}
    if any(sorted(tags) != sorted(number + shift for number in numbers) for tags in borders.values()):
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
    nodes: Mapping[str, Any],
    order: Sequence[str],
    readers: Mapping[str, Sequence[str]],
    own: Mapping[str, Place | None],
) -> list[str]:
    """The nodes, each after what it reads, by their places; what belongs to none as late as its readers allow, or at the end."""
    at = {name: number for number, name in enumerate(order)}
    urgency: dict[str, Place] = {}
    missing = {name: len(set(nodes[name].input) & readers.keys()) for name in order}
    for name in reversed(order):
        first = min((urgency[reader] for reader in readers[name]), default=_END)
        urgency[name] = own[name] or first
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
