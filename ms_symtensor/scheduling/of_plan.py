"""A plan's own stages as pieces: what F, B and W take and keep, from the price and the programs of its ranks.

W is what makes gradients of weights and nothing else: the nodes of the backward pass whose results go into sums of gradients
alone. An operator whose gradients stand in one entry of the bill shares its seconds out evenly among them.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ms_symtensor.cost.bill import Part as Item
from ms_symtensor.cost.node_time import NodeTime
from ms_symtensor.cost.stage_time import StageSeconds, pass_of
from ms_symtensor.errors import InputError
from ms_symtensor.program.program import Node, Phase, Program, Role
from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.program.stage_memory import OneMicroBatch, runs_of_stage
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.scheduling.placements import Network, Piece
from ms_symtensor.timeline.memory import StageMemory
from ms_symtensor.timeline.step import Step


def factor_of(text: str) -> float:
    """`1.5x` or `1.5`. Errors: InputError for what is no number above 0."""
    try:
        found = float(text.strip().removesuffix("x"))
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise InputError(f"--activation-memory is {text}: give a factor above 0, such as 1x or 1.5x")
    return found


def network_of(step: Step, activation_memory: float = 1.0) -> Network:
    """The stages of a plan, as its step prices them. A stage may keep `activation_memory` times as many bytes as the fullest one
    keeps of micro-batches in 1F1B, or in the plan's own schedule where that keeps more.

    Errors: InputError for a plan without stages.
    """
    pipeline = step.plan.pipeline
    if pipeline is None or pipeline.stage_num == 1:
        raise InputError("a plan of one stage has nothing to schedule: plan with --fix pipeline_stages=2, or more")
    stages = [
        _stage(program, seconds, operators, memory)
        for program, seconds, operators, memory in zip(
            step.programs, step.seconds, step.operators, step.memory, strict=True
        )
    ]
    schedules = (PipelineSchedule(pipeline.micro_batch_num), PipelineSchedule.of(pipeline))
    keeps_B, own_B = (
        [
            schedule.in_flight(number, len(stages)).mean * pipeline.interleave * stage.kept_B
            for number, stage in enumerate(stages)
        ]
        for schedule in schedules
    )
    room_B = step.plan.prediction.limit_B
    stages = [  # the plan fits, whatever its run-time keeps otherwise
        replace(stage, rest_B=min(stage.rest_B, max(0.0, room_B - kept_B) / pipeline.interleave))
        for stage, kept_B in zip(stages, own_B, strict=True)
    ]
    pieces = tuple(stages[number] for _ in range(pipeline.interleave) for number in range(len(stages)))
    return Network(pieces, len(stages), pipeline.micro_batch_num, activation_memory * max(*keeps_B, *own_B), room_B)


def _stage(program: object, seconds: StageSeconds, operators: Sequence[NodeTime], memory: StageMemory) -> Piece:
    """One of the pieces of a stage, all alike."""
    assert isinstance(program, StageProgram)
    nodes, runs = program.micro.nodes, runs_of_stage(program)
    weights, share = weight_gradients(nodes), 1 / len(runs)
    border = {place: _border_s(seconds, operators, place) for place in ("forward", "backward")}
    of_op = Counter(nodes[n].op for n in weights if nodes[n].role is Role.WORK)
    all_of_op = Counter(node.op for node in nodes if node.phase is Phase.BACKWARD and node.role is Role.WORK)
    busy_s = weights_s = 0.0
    for one in operators:
        if pass_of(one.key) == "backward" and one.key.part is not Item.BORDER:
            busy_s += one.time_s
            if one.node.role is Role.WORK and one.node.op in of_op:
                weights_s += one.time_s * of_op[one.node.op] / all_of_op[one.node.op]
            elif one.position in weights:
                weights_s += one.time_s
    within_s = max(0.0, seconds.backward_s - border["backward"])
    weights_s = within_s * weights_s / busy_s if busy_s else 0.0
    one_batch = OneMicroBatch.of(program, runs)
    kept_B = sum(one_batch.micro.of_run(run).kept_B for run in runs) * share
    peak = one_batch.peak(program.stage, program.pipeline, runs)
    rest_B = sum(memory.at_rest_B.values()) + peak.weights_B + max(0.0, peak.moment_B - kept_B)
    return Piece(
        share * max(0.0, seconds.forward_s - border["forward"]), share * (within_s - weights_s), share * weights_s,
        (share * border["forward"], share * border["backward"]), share * seconds.start_s, share * seconds.end_s,
        kept_B, share * deferred_B(program.micro, weights), share * rest_B, min(map(len, runs)),
    )  # fmt: skip


def _border_s(seconds: StageSeconds, operators: Sequence[NodeTime], place: str) -> float:
    """What the step sees of sends and receives of a pass."""
    whole_s = sum(one.time_s for one in operators if pass_of(one.key) == place and one.key.part is Item.BORDER)
    return max(0.0, whole_s - seconds.hidden_s.get((place, Item.BORDER), 0.0))


def weight_gradients(nodes: Sequence[Node]) -> frozenset[int]:
    """The numbers of the nodes of W: they reduce gradients of weights, or are the part of an operator's backward pass that makes
    these.
    """
    readers: dict[int, list[int]] = {}
    for number, node in enumerate(nodes):
        for tensor in node.inputs:
            readers.setdefault(tensor, []).append(number)
    found: set[int] = set()
    for number in reversed(range(len(nodes))):
        node = nodes[number]
        if node.phase is Phase.BACKWARD and _is_of_weights(node, nodes, readers, found):
            found.add(number)
    return frozenset(found)


def _is_of_weights(
    node: Node, nodes: Sequence[Node], readers: Mapping[int, Sequence[int]], known: Collection[int]
) -> bool:
    if node.role is Role.SYNC:
        return True
    read_by = [reader for tensor in node.outputs for reader in readers.get(tensor, ())]
    return bool(read_by) and all(
        reader in known and (nodes[reader].role is Role.SYNC or nodes[reader].op == node.op) for reader in read_by
    )


def deferred_B(micro: Program, weights: Collection[int]) -> int:
    """Bytes that W of a micro-batch reads: activations, recomputed ones too, and the gradients of what operators make."""
    made = {t for number in weights for t in micro.nodes[number].outputs}
    read = {t for number in weights for t in micro.nodes[number].inputs} - made - micro.held
    made_here = {t for node in micro.nodes if node.role not in (Role.WEIGHT, Role.SYNC) for t in node.outputs} | set(
        micro.given
    )
    return sum(micro.tensors[t].size_B for t in read & made_here)
