"""The peak of live activations of a program: what must lie in device memory at once, beside weights and gradients."""

import heapq
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from ms_symtensor.program.program import Node, Phase, Program

FUSED_IN_PLACE = "FusedInPlace"
VIEWS = frozenset(
    {"Reshape", "ExpandDims", "Squeeze", "StopGradient", "Depend", "TupleGetItem", "Load", "MakeTuple", "UpdateState"}
    | {FUSED_IN_PLACE}
)
"""Kinds of node whose output takes the memory of their first input."""


def is_view(kind: str) -> bool:
    """Whether the output of a node of that `kind` takes the memory of its first input: of one that changes it in place, too."""
    return kind in VIEWS or kind.startswith("Inplace")


class Step(NamedTuple):
    """A node as far as memory is concerned: tensors by number, and in which part of the program it stands. `scratch` is there
    only while it runs.

    Steps of the backward pass with a lower `rank` go first where there is a choice.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    is_backward: bool
    is_view: bool = False
    is_recomputed: bool = False
    rank: float = 0.0
    scratch: int | None = None
    read_first: tuple[int, ...] = ()


Lives = Mapping[int, tuple[int, int]]
"""For every tensor that owns memory: the step that makes it, and the last step that reads it or a view of it."""


def program_steps(program: Program) -> list[Step]:
    """The nodes of `program` as steps, in its order."""
    return node_steps(program.nodes)


def node_steps(nodes: Sequence[Node]) -> list[Step]:
    """`nodes` as steps, in their order."""
    return [
        Step(
            n.inputs,
            n.outputs,
            n.phase is not Phase.FORWARD,
            is_view(n.kind),
            n.phase is Phase.RECOMPUTE,
            scratch=n.scratch,
            read_first=n.read_first,
        )
        for n in nodes
    ]


def activation_peak_B(program: Program) -> int:
    """Peak bytes of live activations on one rank. Parameters, inputs and parameter gradients are not counted."""
    sizes = {i: t.size_B for i, t in enumerate(program.tensors)}
    return peak_B(program_steps(program), sizes, program.kept)


def peak_B(steps: Sequence[Step], sizes_B: Mapping[int, int], kept: Collection[int]) -> int:
    """Peak bytes of live tensors when `steps` run in the given order; `kept` tensors are free."""
    return max(live_B(lives(steps, kept), sizes_B, len(steps)), default=0)


def lives(steps: Sequence[Step], kept: Collection[int]) -> Lives:
    """When every tensor lives. A view shares its source's memory; `kept` tensors are left out."""
    root = owners(steps)
    found: dict[int, tuple[int, int]] = {}
    for index, step in enumerate(steps):
        if step.scratch is not None:
            found[step.scratch] = index, index
        for tensor in step.outputs:
            owner = root.get(tensor, tensor)
            if owner not in kept:
                found[owner] = (found[owner][0] if owner in found else index, index)
        for tensor in step.inputs:
            owner = root.get(tensor, tensor)
            if owner in found:
                first, last = found[owner]
                found[owner] = first, max(last, index - 1) if tensor in step.read_first else index
    return found


def owners(steps: Sequence[Step]) -> Mapping[int, int]:
    """For every view the tensor whose memory it takes."""
    found: dict[int, int] = {}
    for step in steps:
        if step.is_view and step.inputs:
            found.update((o, found.get(step.inputs[0], step.inputs[0])) for o in step.outputs)
    return found


def live_B(of: Lives, sizes_B: Mapping[int, int], step_num: int) -> list[int]:
    """Bytes alive during each of `step_num` steps."""
    change = [0] * (step_num + 1)
    for tensor, (first, last) in of.items():
        change[first] += sizes_B.get(tensor, 0)
        change[last + 1] -= sizes_B.get(tensor, 0)
    return list(accumulate(change))[:step_num]


def schedule(steps: Sequence[Step], kept: Collection[int]) -> list[int]:
    """An order of `steps`, by number, that a runtime with memory in mind would take; a compiler's listing is only topological.

    The forward pass stays as listed. In the backward pass a step runs as soon as what it reads is there: first those whose
    results are all in `kept` (weight gradients, which free what they read), of these the sums of such ones, then by rank, then as
    listed. What is recomputed is computed right before its first reader.
    """
    behind = [i for i, s in enumerate(steps) if s.is_backward and not s.is_recomputed]
    copies = {t: i for i, s in enumerate(steps) if s.is_recomputed for t in s.outputs}
    made_behind = {t for i in behind for t in steps[i].outputs}
    readers: dict[int, list[int]] = {}
    missing = {}
    for number in behind:
        needs = {t for t in steps[number].inputs if t in made_behind}
        missing[number] = len(needs)
        for tensor in needs:
            readers.setdefault(tensor, []).append(number)

    def urgency(number: int) -> tuple[bool, bool, float, int]:
        step = steps[number]
        is_kept, reads_kept = (all(t in kept for t in of) for of in (step.outputs, step.inputs))
        return not is_kept, is_kept and not reads_kept, step.rank, number

    ready = [urgency(number) for number in behind if missing[number] == 0]
    heapq.heapify(ready)
    ordered = [i for i, s in enumerate(steps) if not s.is_backward and not s.is_recomputed]
    while ready:
        number = heapq.heappop(ready)[-1]
        ordered += [*_copied(number, steps, copies), number]
        for tensor in steps[number].outputs:
            for reader in readers.get(tensor, ()):
                missing[reader] -= 1
                if missing[reader] == 0:
                    heapq.heappush(ready, urgency(reader))
    return ordered


def _copied(number: int, steps: Sequence[Step], copies: dict[int, int]) -> list[int]:
    """Of `copies`, by what they make, those that a step needs, after those that they need; they are taken out."""
    needed = []
    for tensor in steps[number].inputs:
        copy = copies.get(tensor)
        if copy is not None:
            for made in steps[copy].outputs:
                del copies[made]
            needed += [*_copied(copy, steps, copies), copy]
    return needed
