"""What the activations of a pipeline stage need: those of several micro-batches at once.

Under 1F1B stage i of P runs min(M, P - i) forward passes before the first backward pass (Narayanan et al. 2021, "Efficient
Large-Scale Language Model Training on GPU Clusters", section 2.2), and then one of each in turn; MindSpore's control edges say
so too. So that many micro-batches lie in memory, all of them but one at the end of their forward pass:

    peak = weights + (in flight - 1) kept + moment

Weights in use (gathered, or cast) stay for all micro-batches. The gradient of a weight is there until it is added up.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ms_symtensor.program.liveness import live_B, lives, program_steps
from ms_symtensor.program.pipeline import in_flight
from ms_symtensor.program.program import Node, Phase, Role
from ms_symtensor.program.stage_program import StageProgram


@dataclass(frozen=True)
class MicroBatch:
    """Bytes that one micro-batch needs on a stage, step by step: `live_B`, without weights in use.

    `behind[step]`: whether the step is one of the backward pass. `kept_B` wait from the forward to the backward pass.
    `weights_B` are the weights in use, `weights_behind_B` those of them that the backward pass reads.
    """

    live_B: tuple[int, ...]
    behind: tuple[bool, ...]
    kept_B: int
    weights_B: int
    weights_behind_B: int

    def peak_B(self, flight: int, micro_batch_num: int) -> int:
        """The peak with so many micro-batches `flight`ing of all; after the last forward pass its weights are dropped."""
        left_B = self.weights_behind_B if flight == micro_batch_num else self.weights_B
        steps = zip(self.live_B, self.behind, strict=True)
        at_once_B = max((live + (left_B if late else self.weights_B) for live, late in steps), default=0)
        return at_once_B + (flight - 1) * self.kept_B


def micro_batch(program: StageProgram) -> MicroBatch:
    """What one micro-batch of the stage needs."""
    micro = program.micro
    steps = program_steps(micro)
    sizes = {i: t.size_B for i, t in enumerate(micro.tensors)}
    weights = _weights(micro.nodes)
    behind = tuple(step.is_backward for step in steps)
    used = {t for n in micro.nodes if n.role is not Role.WEIGHT for t in n.inputs if t in weights}
    used_behind = {t for n, late in zip(micro.nodes, behind, strict=True) if late for t in n.inputs if t in used}
    alive = lives(steps, (micro.kept - _passing(program)) | used)
    forward = sum(not late for late in behind)
    return MicroBatch(
        tuple(live_B(alive, sizes, len(steps))),
        behind,
        sum(sizes[t] for t, (first, last) in alive.items() if first < forward <= last and t not in weights),
        sum(sizes[t] for t in used),
        sum(sizes[t] for t in used_behind),
    )


def stage_in_flight(program: StageProgram) -> int:
    """Micro-batches whose activations a rank of the stage keeps at once."""
    pipeline = program.pipeline
    return in_flight(program.stage, pipeline.stage_num, pipeline.micro_batch_num, pipeline.interleave)


def stage_activation_peak_B(program: StageProgram) -> int:
    """Peak bytes of live activations on a rank of the stage. Parameters and the sums of their gradients are not counted."""
    return micro_batch(program).peak_B(stage_in_flight(program), program.pipeline.micro_batch_num)


def _weights(nodes: Iterable[Node]) -> frozenset[int]:
    """The tensors that are weights in use: cast, gathered, or received from another stage."""
    return frozenset(
        t
        for n in nodes
        if n.role is Role.WEIGHT or (n.role is Role.BORDER and n.parameter is not None and n.phase is Phase.FORWARD)
        for t in n.outputs
    )


def _passing(program: StageProgram) -> frozenset[int]:
    """Gradients of weights that exist for a moment, in every micro-batch. What is brought together once is the sum of all."""

    def passes(node: Node) -> bool:
        if node.role is Role.SYNC:
            return program.scatters_gradients and program.times(node) > 1
        return node.phase is not Phase.FORWARD and node.role is not Role.BORDER

    return frozenset(t for n in program.micro.nodes if passes(n) for t in n.outputs if t in program.micro.kept)
