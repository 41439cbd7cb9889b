"""What the activations of a pipeline stage need: those of several micro-batches at once.

Several micro-batches (`passes`) lie in memory, all of them but one between their forward and their backward pass:

    peak = weights + max over passes of (sum over runs of waiting x kept + moment)

with the moment of the one that passes, and, where stages are interleaved, what is still to be sent. A micro-batch has its
samples cut out of the batch. Weights in use (gathered, or cast) stay for all micro-batches. The gradient of a weight is there
until it is added up. Where stages are interleaved, a weight that several operators read as it is stored is copied for every
micro-batch: MindSpore loads it anew in each (its network is inlined late), and puts a TensorMove behind what it loads more than
once and reads more than once. It puts none into blocks that are recomputed by `cell.recompute()`, whatever they keep. Without
optimizer sharding every micro-batch casts the weights that it reads, too; in such blocks it casts them again for the backward
pass. With it, every micro-batch casts those that come from a further stage, and those that several operators read (two heads of
one table), for each of these. A weight that is transposed for the gradient of what it is multiplied with is transposed once for
all micro-batches, and so is whatever is made of weights alone (`weight.T`). Views (`mint.chunk`) have every micro-batch load
weights anew, too, interleaved or not: those that are read behind the first one, and on one stage all. Where stages are not
interleaved, recomputed blocks have such copies as well, which their backward pass reads.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from ms_symtensor.program.liveness import Lives, live_B, lives, owners, program_steps
from ms_symtensor.program.passes import Pass
from ms_symtensor.program.pipeline import Pipeline
from ms_symtensor.program.program import Node, Phase, Program, Role
from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.program.scratch import TRANSPOSING
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.program.stage_program import StageProgram

_TRANSPOSED = frozenset(f"{kind}Grad" for kind in TRANSPOSING)
"""Kinds of nodes that read a transposed copy."""

ByBlock = Mapping[str | None, int]
"""Bytes by the repeated block that made them; None: outside of blocks."""

Run = Sequence[str | None]
"""The blocks of a run in order, each by the name of one that is like it; (None,) where there are none."""


class Moments(NamedTuple):
    """Bytes of a micro-batch in a block, or in a run of them: what waits after its forward pass, and what is there at most
    while it passes `forward`, while the `last` one does, whose weights go one by one, and while it passes `backward`.
    """

    kept_B: int
    forward_B: int
    last_B: int
    backward_B: int

    def of(self, one: Pass) -> int:
        """What is there at most in a pass."""
        if one.is_backward:
            return self.backward_B
        return self.last_B if one.is_late else self.forward_B


class Peak(NamedTuple):
    """The bytes at a stage's peak: weights in use, what `waiting` micro-batches of every run keep, and the moment of another."""

    weights_B: int
    waiting: tuple[int, ...]
    kept_B: tuple[int, ...]
    moment_B: int

    @property
    def total_B(self) -> int:
        return self.weights_B + self.moment_B + sum(n * each for n, each in zip(self.waiting, self.kept_B, strict=True))


@dataclass(frozen=True)
class MicroBatch:
    """Bytes that one micro-batch needs on a stage, step by step: `live_B`, without weights in use.

    `behind[step]`: whether the step is one of the backward pass; `blocks[step]`: the block it belongs to, or, outside of
    blocks, the next one, or the last one. `kept_B` wait from the forward pass to the backward pass of these blocks, `waits` are
    the tensors that do, each with the block whose backward pass reads it last. `weights_B`
    are the weights in use, `weights_behind_B` those of them that the backward pass reads; `dropped_B[step]` those of the others
    that this step or a later one reads.
    """

    live_B: tuple[int, ...]
    behind: tuple[bool, ...]
    blocks: tuple[str | None, ...]
    kept_B: ByBlock
    weights_B: ByBlock
    weights_behind_B: ByBlock
    dropped_B: tuple[int, ...]
    waits: Mapping[int, str | None]

    def peak(self, runs: Sequence[Run], every: Iterable[Pass]) -> Peak:
        """The peak over `every` pass on a stage that holds these `runs`; after the last forward pass its weights go."""
        return max(self.at_each(runs, every), key=lambda peak: peak.total_B)

    def at_each(self, runs: Sequence[Run], every: Iterable[Pass]) -> Iterator[Peak]:
        """What is there at most in each of these passes, in their order; arguments as of `peak`."""
        weights_B, behind_B = (self.held_B(of, runs) for of in (self.weights_B, self.weights_behind_B))
        yield from peaks([self.of_run(run) for run in runs], weights_B, behind_B, every)

    def of_run(self, run: Run) -> Moments:
        """What a micro-batch needs in a model chunk."""
        return in_a_row(self.moments[block] for block in run)

    def held_B(self, of: ByBlock, runs: Sequence[Run]) -> int:
        """The sum of bytes over the blocks of `runs`, and what is outside of blocks."""
        inside = sum(of.get(block, 0) for run in runs for block in run if block is not None)
        return inside + of.get(None, 0)

    @cached_property
    def moments(self) -> Mapping[str | None, Moments]:
        """What a micro-batch needs in every block, without what those before it keep."""
        found: dict[str | None, Moments] = {}
        before_B = 0
        for block in dict.fromkeys(self.blocks):
            steps = [step for step, its in enumerate(self.blocks) if its == block]
            ahead, behind = ([step for step in steps if self.behind[step] == late] for late in (False, True))
            found[block] = Moments(
                self.kept_B.get(block, 0),
                max((self.live_B[step] - before_B for step in ahead), default=0),
                max((self.live_B[step] + self.dropped_B[step] - before_B for step in ahead), default=0),
                max((self.live_B[step] - before_B for step in behind), default=0),
            )
            before_B += found[block].kept_B
        return found


def in_a_row(blocks: Iterable[Moments]) -> Moments:
    """What a micro-batch needs in `blocks` that follow each other."""
    before_B = forward_B = last_B = backward_B = 0
    for one in blocks:
        forward_B = max(forward_B, before_B + one.forward_B)
        last_B = max(last_B, before_B + one.last_B)
        backward_B = max(backward_B, before_B + one.backward_B)
        before_B += one.kept_B
    return Moments(before_B, forward_B, last_B, backward_B)


def peaks(runs: Sequence[Moments], weights_B: int, weights_behind_B: int, every: Iterable[Pass]) -> Iterator[Peak]:
    """What is there at most in each of these passes, in their order, on a stage of such `runs`; weights as of `MicroBatch`."""
    kept_B = tuple(run.kept_B for run in runs)
    for one in every:
        yield Peak(weights_behind_B if one.is_late else weights_B, one.waiting, kept_B, runs[one.run].of(one))


def micro_batch(micro: Program, level: OptimizerLevel, interleaved: bool) -> MicroBatch:
    """What one micro-batch needs whose program is `micro`; `level`: of optimizer sharding; `interleaved`: on a stage of several
    runs.
    """
    steps = program_steps(micro)
    sizes = {i: t.size_B for i, t in enumerate(micro.tensors)}
    several = _read_by_several(micro.nodes) if interleaved else {}
    sizes |= {tensor: count * sizes[tensor] for tensor, count in several.items()}
    made_in = {t: n.block for n in micro.nodes for t in n.outputs}
    blocks = _blocks(micro.nodes)
    casts_each = interleaved and level is OptimizerLevel.NONE
    weights = _weights(micro.nodes, interleaved, casts_each)
    weights |= frozenset() if interleaved else _of_weights_alone(micro, weights)
    weights -= several.keys() | micro.kept
    behind = tuple(step.is_backward for step in steps)
    owner = owners(steps)
    reads = [{owner.get(t, t) for t in n.inputs} for n in micro.nodes]
    used = {
        t for n, read in zip(micro.nodes, reads, strict=True) if weights.isdisjoint(n.outputs) for t in read & weights
    }
    used_behind = {t for read, late in zip(reads, behind, strict=True) if late for t in read & used}
    copies = _transposed(micro, weights)
    sizes |= {n.scratch: max(0, sizes[n.scratch] - size_B) for n, size_B in copies if n.scratch is not None}
    alive = lives(steps, (micro.kept - frozenset(_passing(micro, level is OptimizerLevel.LEVEL2))) | used)
    alive = {**alive, **_copies(micro, interleaved), **_samples(micro, reads)}
    if casts_each:
        again = _cast_again(micro, alive, behind)
        alive, sizes = {**alive, **again}, {**sizes, **{~tensor: size_B for tensor, size_B in sizes.items()}}
    forward = sum(not late for late in behind)
    last_read = {t: step for step, read in enumerate(reads) for t in read & (used - used_behind)}

    waiting = {t: blocks[last] for t, (first, last) in alive.items() if first < forward <= last and t not in weights}

    def by_block(tensors: Iterable[int], of: Mapping[int, str | None] = made_in) -> ByBlock:
        found: dict[str | None, int] = {}
        for tensor in tensors:
            found[of[tensor]] = found.get(of[tensor], 0) + sizes[tensor]
        return found

    return MicroBatch(
        tuple(live_B(alive, sizes, len(steps))),
        behind,
        blocks,
        by_block(waiting, waiting),
        _added(by_block(used), copies),
        _added(by_block(used_behind), copies),
        tuple(sum(sizes[t] for t, last in last_read.items() if last >= step) for step in range(len(steps))),
        waiting,
    )


def _transposed(micro: Program, weights: Collection[int]) -> list[tuple[Node, int]]:
    """The nodes that transpose a weight, each with the bytes of the copy, which all micro-batches share."""
    found: dict[int, tuple[Node, int]] = {}
    for node in micro.nodes:
        if node.scratch is not None and node.kind in _TRANSPOSED:
            read = (t for t in node.inputs if t in weights or t in micro.held)
            found |= {t: (node, micro.tensors[t].size_B) for t in read}
    return list(found.values())


def _added(sizes_B: ByBlock, more: Iterable[tuple[Node, int]]) -> ByBlock:
    """`sizes_B` and the bytes that nodes have `more`, by their blocks."""
    found = dict(sizes_B)
    for node, size_B in more:
        found[node.block] = found.get(node.block, 0) + size_B
    return found


def _samples(micro: Program, reads: Sequence[Collection[int]]) -> Lives:
    """The inputs, as `lives`: from the first step that `reads` one, or a view of it, until the last one has."""
    found: dict[int, tuple[int, int]] = {}
    for step, read in enumerate(reads):
        found |= {tensor: (found.get(tensor, (step, step))[0], step) for tensor in micro.given.intersection(read)}
    return found


def _copies(micro: Program, interleaved: bool) -> Lives:
    """The weights that a micro-batch copies, as `lives`: from the first reader on, until the last one has read."""
    if not (interleaved or micro.loads_anew):
        return {}
    without = micro.recomputed if interleaved else frozenset()
    read: dict[int, list[int]] = {}
    for step, node in enumerate(micro.nodes):
        if node.role not in (Role.WEIGHT, Role.BORDER) and node.block not in without:
            loads = interleaved or step in micro.loads_anew
            for tensor in micro.held.intersection(node.inputs):
                if loads or tensor in read:
                    read.setdefault(tensor, []).append(step)
    return {tensor: (steps[0], steps[-1]) for tensor, steps in read.items() if len(steps) > 1}


def _cast_again(micro: Program, alive: Lives, behind: Sequence[bool]) -> Lives:
    """The weights that recomputed blocks cast for the backward pass again: their lives in the forward pass, and, under `~tensor`,
    those of the second casts.
    """
    made = {t for n in micro.nodes if n.role is Role.WEIGHT and n.block in micro.recomputed for t in n.outputs}
    casts = made & alive.keys()
    read: dict[int, list[int]] = {}
    for step, node in enumerate(micro.nodes):
        for tensor in casts.intersection(node.inputs):
            read.setdefault(tensor, []).append(step)
    found: dict[int, tuple[int, int]] = {}
    for tensor, steps in read.items():
        ahead, late = ([step for step in steps if behind[step] == side] for side in (False, True))
        if ahead and late:
            found |= {tensor: (alive[tensor][0], ahead[-1]), ~tensor: (late[0], late[-1])}
    return found


def stage_in_flight(program: StageProgram) -> float:
    """Micro-batches whose activations a rank of the stage keeps at once, on average over its model chunks."""
    pipeline = program.pipeline
    return PipelineSchedule.of(pipeline).in_flight(program.stage, pipeline.stage_num).mean


def stage_activation_peak_B(program: StageProgram) -> int:
    """Peak bytes of live activations on a rank of the stage. Parameters and the sums of their gradients are not counted."""
    return stage_peak(program).total_B


def stage_peak(program: StageProgram) -> Peak:
    """What lies in memory at that peak."""
    runs = runs_of_stage(program)
    return OneMicroBatch.of(program, runs).peak(program.stage, program.pipeline, runs)


@dataclass(frozen=True)
class OneMicroBatch:
    """What a stage's micro-batch needs, and bytes of the largest tensor that is sent where stages are interleaved: what a pass
    has made is sent when the next one has begun.
    """

    micro: MicroBatch
    sent_B: int

    @classmethod
    def of(cls, program: StageProgram, runs: Sequence[Run]) -> "OneMicroBatch":
        """That of `program`, which holds these `runs`."""
        run_of = {block: number for number, run in enumerate(runs) for block in run if block is not None}
        micro = program.micro if len(runs) == 1 else _run_by_run(program.micro, run_of)
        found = micro_batch(micro, program.level, program.pipeline.needs_config)
        return cls(found, 0 if len(runs) == 1 else _sent_B(micro))

    def peak(self, stage: int, pipeline: Pipeline, runs: Sequence[Run]) -> Peak:
        """The peak on `stage` of `pipeline`, whose `runs` are of blocks like those of the program."""
        every = PipelineSchedule.of(pipeline).passes(stage, pipeline.stage_num)
        peak = self.micro.peak(runs, every)
        return peak._replace(moment_B=peak.moment_B + self.sent_B)


def runs_of_stage(program: StageProgram) -> list[list[str]]:
    """The blocks of every run of the stage."""
    blocks = iter(program.graph.blocks)
    return [[next(blocks) for _ in run] for run in program.pipeline.layers[program.stage]]


def _sent_B(micro: Program) -> int:
    """Bytes of the largest tensor that a micro-batch sends; weights that others read are sent before the first one."""
    sends = (node for node in micro.nodes if node.kind == "Send" and node.parameter is None)
    sent = (micro.tensors[t] for node in sends for t in node.inputs)
    return max((kind.size_B for kind in sent), default=0)


def _run_by_run(micro: Program, run_of: Mapping[str, int]) -> Program:
    """`micro` with the nodes of one run after those of another, backward from the last one: what stages exchange connects runs,
    nothing within the stage, so that they may be listed in any order.
    """
    made: dict[int, int] = {}
    found: list[int | None] = []
    for node in micro.nodes:
        run = run_of.get(node.block or "", max((made[t] for t in node.inputs if t in made), default=None))
        found.append(run)
        made.update({} if run is None else dict.fromkeys(node.outputs, run))
    read: dict[int, int] = {}
    for number, node in reversed(list(enumerate(micro.nodes))):
        if (run := found[number]) is None:
            run = found[number] = min((read[t] for t in node.outputs if t in read), default=0)
        read.update((t, min(run, read.get(t, run))) for t in node.inputs)
    order = sorted(
        range(len(found)),
        key=lambda n: (False, found[n] or 0) if micro.nodes[n].phase is Phase.FORWARD else (True, -(found[n] or 0)),
    )
    return replace(micro, nodes=tuple(micro.nodes[n] for n in order))


def _blocks(nodes: Sequence[Node]) -> tuple[str | None, ...]:
    """The block of every node; of one outside of blocks the next one, or the last one."""
    block: str | None = None
    found = [block := n.block or block for n in reversed(nodes)][::-1]
    last = next((n.block for n in reversed(nodes) if n.block), None)
    return tuple(one or last for one in found)


def _weights(nodes: Sequence[Node], interleaved: bool, casts_each: bool) -> frozenset[int]:
    """The tensors that are weights in use: received from a stage, gathered, or cast, unless every micro-batch `casts_each`. Where
    stages are interleaved every micro-batch casts those that are received.
    """
    received, made = set[int](), set[int]()
    for n in nodes:
        if n.role is Role.BORDER and n.parameter is not None and n.phase is Phase.FORWARD:
            received.update(n.outputs)
        elif n.role is Role.WEIGHT and not casts_each and not (interleaved and received.intersection(n.inputs)):
            made.update(n.outputs)
    return frozenset(received | made)


def _of_weights_alone(micro: Program, weights: Collection[int]) -> frozenset[int]:
    """What the forward pass makes of weights and constants alone, such as `weight.T`, and what is moved of that."""
    found = {*weights, *micro.held}
    others = {*micro.given, *(t for n in micro.nodes for t in n.outputs)} - found
    for number, n in enumerate(micro.nodes):
        is_shared = n.phase is Phase.FORWARD and number not in micro.loads_anew
        if is_shared and not found.isdisjoint(n.inputs) and others.isdisjoint(n.inputs):
            found.update(n.outputs)
            others.difference_update(n.outputs)
    return frozenset(found - micro.held)


def _read_by_several(nodes: Sequence[Node]) -> Mapping[int, int]:
    """The casts of weights that several operators outside of blocks read ahead of the backward pass, and how many do."""
    casts = {t for n in nodes if n.role is Role.WEIGHT and n.kind == "Cast" and n.block is None for t in n.outputs}
    ahead = (n for n in nodes if n.role is Role.WORK and n.phase is Phase.FORWARD)
    read = Counter(t for n in ahead for t in casts.intersection(n.inputs))
    return {tensor: count for tensor, count in read.items() if count > 1}


def _passing(micro: Program, scatters_gradients: bool) -> Iterator[int]:
    """Gradients of weights that exist for a moment, in every micro-batch. What is reduced once is the sum of all; a gradient that
    no ReduceScatter reads is added to it in the type in use, without a cast.
    """
    scatters = (n for n in micro.nodes if scatters_gradients and n.role is Role.SYNC and n.kind == "ReduceScatter")
    scattered = {node.parameter for node in scatters}
    for node in micro.nodes:
        if node.role is Role.SYNC:
            passes = node.parameter in scattered and node.kind not in ("AllReduce", "AssignAdd")
        else:
            passes = node.phase is not Phase.FORWARD and node.role is not Role.BORDER
        if passes:
            yield from (t for t in node.outputs if t in micro.kept)
