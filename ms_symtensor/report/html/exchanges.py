"""What the ranks exchange in a step, by level of the cluster and by collective."""

from collections.abc import Iterator
from typing import NamedTuple

from ms_symtensor.cluster.topology import Cluster, group_sizes
from ms_symtensor.cost.bill import Part, traffic_B
from ms_symtensor.cost.node_time import NodeTime
from ms_symtensor.cost.stage_time import pass_of
from ms_symtensor.program.program import Program
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.report.html.markup import Html, bytes_B, count, element, key_value, section, table, time_s
from ms_symtensor.report.html.svg import stacked_bar
from ms_symtensor.report.text import seconds
from ms_symtensor.timeline.step import Step


class Exchange(NamedTuple):
    """Equal messages of a rank in a step: levels, what for, how many ranks, how often, bytes of one, seconds of all."""

    level: str
    part: Part
    phase: str
    kind: str
    ranks: int
    number: int
    size_B: int
    time_s: float


def exchanges(step: Step, stage: int) -> tuple[Exchange, ...]:
    """Those of the first rank of a stage, as the price counts them: what is received is counted where it is sent."""
    program = step.programs[stage]
    micro = program.micro if isinstance(program, StageProgram) else program
    sums: dict[tuple[str, Part, str, str, int, int], tuple[int, float]] = {}
    for one in step.operators[stage]:
        if one.key.part is Part.COMPUTE:
            continue
        times = 1 if one.key.once else step.plan.micro_batch_num
        ranks = _ranks(one, program, micro)
        key = (
            level_of(step.plan.planned_for, ranks), one.key.part, _phase(one), one.node.kind, len(ranks),
            max(traffic_B(micro, one.node)),
        )  # fmt: skip
        number, whole_s = sums.get(key, (0, 0.0))
        sums[key] = number + times, whole_s + times * one.time_s
    found = (Exchange(*key[:5], number, key[5], whole_s) for key, (number, whole_s) in sums.items())
    return tuple(sorted(found, key=lambda one: -one.time_s))


def level_of(cluster: Cluster, ranks: tuple[int, ...]) -> str:
    """The levels that a group spans: `node`, `node + roce`."""
    sizes = group_sizes(cluster, ranks)
    return " + ".join(level.name for level, size in zip(cluster.levels, sizes, strict=True) if size > 1) or "one device"


def _ranks(one: NodeTime, program: Program | StageProgram, micro: Program) -> tuple[int, ...]:
    if one.node.peer is not None and isinstance(program, StageProgram):
        return tuple(sorted((program.stage * micro.device_num, one.node.peer * micro.device_num)))
    return () if one.node.group is None else one.node.group.ranks()


def _phase(one: NodeTime) -> str:
    return {"start": "once, before", "end": "once, behind"}.get(pass_of(one.key), one.node.phase.value)


def exchanges_section(step: Step) -> Html:
    """By level, the mean of all stages; and each kind on the stage that spends most on them."""
    every = [exchanges(step, stage) for stage in range(len(step.programs))]
    if not any(every):
        return section("collectives", "Collectives by level", "The devices exchange nothing.")
    busiest = max(range(len(every)), key=lambda stage: sum(one.time_s for one in every[stage]))
    rows = [
        (
            one.level,
            one.part.value,
            one.phase,
            one.kind,
            count(one.ranks),
            count(one.number),
            bytes_B(one.size_B),
            time_s(one.time_s),
        )
        for one in every[busiest]
    ]
    rank = f"the first rank of stage {busiest}" if len(every) > 1 else "rank 0"
    lead = f"Messages of a step on {rank}; those of all blocks and micro-batches together."
    head = ("level", "for", "phase", "collective", "ranks", "count", "bytes each", "time of all")
    inside = [_levels(step, every), table(head, rows, sortable=True, left=4)]
    return section("collectives", "Collectives by level", lead, *inside)


def _levels(step: Step, every: list[tuple[Exchange, ...]]) -> Html:
    sums = dict(_sums(every))
    whole_s = sum(time for _, _, time in sums.values())
    bar = stacked_bar(
        [(f"level{i % 4}", time, f"{level} {seconds(time)}") for i, (level, (_, _, time)) in enumerate(sums.items())],
        whole_s, "communication by level",
    )  # fmt: skip
    rows = [
        (key_value(f"level{i % 4}", level), count(number), bytes_B(size_B), time_s(time))
        for i, (level, (number, size_B, time)) in enumerate(sums.items())
    ]
    head = ("level", "messages", "bytes", "time")
    mean = " (an average stage)" if len(every) > 1 else ""
    return element("div", element("h3", f"By level{mean}"), bar, table(head, rows))


def _sums(every: list[tuple[Exchange, ...]]) -> Iterator[tuple[str, tuple[int, int, float]]]:
    """Messages, bytes and seconds of each level, of an average stage."""
    levels = dict.fromkeys(one.level for stage in every for one in stage)
    for level in levels:
        mine = [one for stage in every for one in stage if one.level == level]
        number, size_B = sum(one.number for one in mine), sum(one.number * one.size_B for one in mine)
        yield (
            level,
            (round(number / len(every)), round(size_B / len(every)), sum(one.time_s for one in mine) / len(every)),
        )
