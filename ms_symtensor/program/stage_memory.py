"""What the activations of a pipeline stage need: those of several micro-batches at once.

Under 1F1B stage i of P runs min(M, P - i) forward passes before the first backward pass (Narayanan et al. 2021, "Efficient
Large-Scale Language Model Training on GPU Clusters", section 2.2), and then one of each in turn; MindSpore's control edges say
so too. So that many micro-batches lie in memory, all of them but one at the end of their forward pass:

    peak = weights + (in flight - 1) kept + moment

Weights in use (gathered, or cast) stay for all micro-batches. The gradient of a weight is there until it is added up.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil

from ms_symtensor.program.liveness import live_B, lives, program_steps
from ms_symtensor.program.pipeline import in_flight
from ms_symtensor.program.program import Node, Phase, Program, Role
from ms_symtensor.program.stage_program import StageProgram

ByBlock = Mapping[str | None, int]
"""Bytes by the repeated block that made them; None: outside of blocks."""


@dataclass(frozen=True)
class MicroBatch:
    """Bytes that one micro-batch needs on a stage, step by step: `live_B`, without weights in use.

    `behind[step]`: whether the step is one of the backward pass; `blocks[step]`: the block it belongs to. `kept_B` wait from
    the forward to the backward pass. `weights_B` are the weights in use, `weights_behind_B` those of them that the backward
    pass reads; `dropped_B[step]` those of the others that this step or a later one reads.
    """

    live_B: tuple[int, ...]
    behind: tuple[bool, ...]
    blocks: tuple[str | None, ...]
    kept_B: ByBlock
    weights_B: ByBlock
    weights_behind_B: ByBlock
    dropped_B: tuple[int, ...]

    def peak_B(self, flight: float, micro_batch_num: int) -> int:
        """The peak with `flight` of `micro_batch_num` micro-batches at once; after the last forward pass its weights go."""
        whole_B, behind_B, kept_B = (sum(of.values()) for of in (self.weights_B, self.weights_behind_B, self.kept_B))
        if flight < micro_batch_num:
            return max(self.live_B, default=0) + whole_B + ceil((flight - 1) * kept_B)
        last_B = max((live + dropped for live, dropped in zip(self.live_B, self.dropped_B, strict=True)), default=0)
        forward_B = max((live for live, late in zip(self.live_B, self.behind, strict=True) if not late), default=0)
        before_B = forward_B + whole_B + ceil(max(flight - 2, 0) * kept_B) if flight > 1 else 0
        return max(last_B + behind_B + ceil((flight - 1) * kept_B), before_B)

    def longer(self, middle: str, last: str, count: int) -> "MicroBatch":
        """The same with `count` further blocks like `middle` between it and `last`, both of a run of equal blocks; -1: without
        `middle`.

        What a further block keeps waits while `last` and what follows it run forward, until `last` has run backward.
        """
        inside = [step for step, block in enumerate(self.blocks) if block == last]
        waiting_B = count * self.kept_B.get(middle, 0)

        def more(of: ByBlock) -> ByBlock:
            return {**of, middle: (1 + count) * of.get(middle, 0)}

        found = replace(
            self,
            live_B=tuple(n + waiting_B * (inside[0] <= step <= inside[-1]) for step, n in enumerate(self.live_B)),
            kept_B=more(self.kept_B),
            weights_B=more(self.weights_B),
            weights_behind_B=more(self.weights_behind_B),
        )
        return found if count >= 0 else found._without(middle)

    def _without(self, block: str) -> "MicroBatch":
        """The same but for the steps of `block`."""
        left = [step for step, its in enumerate(self.blocks) if its != block]
        return replace(
            self,
            live_B=tuple(self.live_B[step] for step in left),
            behind=tuple(self.behind[step] for step in left),
            blocks=tuple(self.blocks[step] for step in left),
            dropped_B=tuple(self.dropped_B[step] for step in left),
        )


def micro_batch(micro: Program, scatters_gradients: bool) -> MicroBatch:
    """What one micro-batch needs whose program is `micro`; `scatters_gradients`: before they add up (level2)."""
    steps = program_steps(micro)
    sizes = {i: t.size_B for i, t in enumerate(micro.tensors)}
    made_in = {t: n.block for n in micro.nodes for t in n.outputs}
    weights = _weights(micro.nodes)
    behind = tuple(step.is_backward for step in steps)
    used = {t for n in micro.nodes if n.role is not Role.WEIGHT for t in n.inputs if t in weights}
    used_behind = {t for n, late in zip(micro.nodes, behind, strict=True) if late for t in n.inputs if t in used}
    alive = lives(steps, (micro.kept - frozenset(_passing(micro, scatters_gradients))) | used)
    forward = sum(not late for late in behind)
    last_read = {t: step for step, n in enumerate(micro.nodes) for t in n.inputs if t in used - used_behind}

    def by_block(tensors: Iterable[int]) -> ByBlock:
        found: dict[str | None, int] = {}
        for tensor in tensors:
            found[made_in[tensor]] = found.get(made_in[tensor], 0) + sizes[tensor]
        return found

    return MicroBatch(
        tuple(live_B(alive, sizes, len(steps))),
        behind,
        tuple(n.block for n in micro.nodes),
        by_block(t for t, (first, last) in alive.items() if first < forward <= last and t not in weights),
        by_block(used),
        by_block(used_behind),
        tuple(sum(sizes[t] for t, last in last_read.items() if last >= step) for step in range(len(steps))),
    )


def stage_in_flight(program: StageProgram) -> float:
    """Micro-batches whose activations a rank of the stage keeps at once."""
    pipeline = program.pipeline
    return in_flight(program.stage, pipeline.stage_num, pipeline.micro_batch_num, pipeline.interleave)


def stage_activation_peak_B(program: StageProgram) -> int:
    """Peak bytes of live activations on a rank of the stage. Parameters and the sums of their gradients are not counted."""
    one = micro_batch(program.micro, program.scatters_gradients)
    return one.peak_B(stage_in_flight(program), program.pipeline.micro_batch_num)


def _weights(nodes: Iterable[Node]) -> frozenset[int]:
    """The tensors that are weights in use: cast, gathered, or received from another stage."""

    def is_weight(n: Node) -> bool:
        return n.role is Role.WEIGHT or (n.role is Role.BORDER and n.parameter is not None and n.phase is Phase.FORWARD)

    return frozenset(t for n in nodes if is_weight(n) for t in n.outputs)


def _passing(micro: Program, scatters_gradients: bool) -> Iterator[int]:
    """Gradients of weights that exist for a moment, in every micro-batch. What is brought together once is the sum of all."""
    for node in micro.nodes:
        if node.role is Role.SYNC:
            passes = scatters_gradients and node.kind != "AllReduce"
        else:
            passes = node.phase is not Phase.FORWARD and node.role is not Role.BORDER
        if passes:
            yield from (t for t in node.outputs if t in micro.kept)
