"""The peak of live activations of a program: what must lie in device memory at once, beside weights and gradients."""

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ms_symtensor.program.program import Phase, Program

VIEWS = frozenset({"Reshape", "ExpandDims", "Squeeze", "Depend", "TupleGetItem", "Load", "MakeTuple", "UpdateState"})
"""Kinds of node that move no data: their output is their first input under another shape."""


@dataclass(frozen=True)
class Step:
    """A node as far as memory is concerned: tensors by number, and in which part of the program it stands."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    is_backward: bool
    is_view: bool = False
    is_recomputed: bool = False


def activation_peak_B(program: Program) -> int:
    """Peak bytes of live activations on one rank. Parameters, inputs and parameter gradients are not counted."""
    steps = [Step(n.inputs, n.outputs, n.phase is not Phase.FORWARD, n.kind in VIEWS) for n in program.nodes]
    sizes = {i: t.size_B for i, t in enumerate(program.tensors)}
    return peak_B(steps, sizes, program.kept)


def peak_B(steps: Sequence[Step], sizes_B: Mapping[int, int], kept: Collection[int]) -> int:
    """Peak bytes of live tensors when `steps` run in the given order.

    A tensor lives from its producer to its last reader; views share their source's memory; `kept` tensors are free.
    """
    root: dict[int, int] = {}
    for step in steps:
        if step.is_view and step.inputs:
            root.update((o, root.get(step.inputs[0], step.inputs[0])) for o in step.outputs)

    def owner(tensor: int) -> int:
        return root.get(tensor, tensor)

    last = {owner(t): i for i, step in enumerate(steps) for t in (*step.inputs, *step.outputs)}
    dying: dict[int, list[int]] = {}
    for tensor, index in last.items():
        dying.setdefault(index, []).append(tensor)
    live = peak = 0
    alive: set[int] = set()
    for index, step in enumerate(steps):
        for tensor in map(owner, step.outputs):
            if tensor not in alive and tensor not in kept:
                alive.add(tensor)
                live += sizes_B.get(tensor, 0)
        peak = max(peak, live)
        for tensor in dying.get(index, ()):
            if tensor in alive:
                alive.remove(tensor)
                live -= sizes_B.get(tensor, 0)
    return peak


def scheduled(steps: Sequence[Step], kept: Collection[int]) -> list[Step]:
    """`steps` in an order that a runtime with memory in mind would take; a compiler's listing is only topological.

    The forward pass stays as listed. In the backward pass a step runs as soon as what it reads is there: first those whose
    results are all in `kept` (weight gradients, which free what they read) and what is recomputed for them alone, then
    the earliest listed.
    """
    forward = [s for s in steps if not s.is_backward]
    behind = [s for s in steps if s.is_backward]
    made_behind = {t for s in behind for t in s.outputs}
    readers: dict[int, list[int]] = {}
    missing = []
    for number, step in enumerate(behind):
        needs = {t for t in step.inputs if t in made_behind}
        missing.append(len(needs))
        for tensor in needs:
            readers.setdefault(tensor, []).append(number)

    aside = [False] * len(behind)
    for number in reversed(range(len(behind))):
        step = behind[number]
        aside[number] = all(t in kept for t in step.outputs) or (
            step.is_recomputed and all(aside[r] for t in step.outputs for r in readers.get(t, ()))
        )

    def urgency(number: int) -> tuple[bool, int]:
        return not aside[number], number

    ready = [urgency(n) for n, count in enumerate(missing) if count == 0]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, number = heapq.heappop(ready)
        ordered.append(behind[number])
        for tensor in behind[number].outputs:
            for reader in readers.get(tensor, ()):
                missing[reader] -= 1
                if missing[reader] == 0:
                    heapq.heappush(ready, urgency(reader))
    return forward + ordered
