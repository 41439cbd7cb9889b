"""The passes of a step, one by one: every stage takes its passes in order, each as soon as what it needs has come.

    begin(pass) = max(end of the pass before it on its stage, end of the pass that it reads)

A stage begins with what it does once (casts and gathers of weights) and ends with sums of gradients and the update. What is
sent is part of the pass that sends it. The step is that of the price (`cost.stage_time`): where the passes are done earlier,
the stages wait; where they take longer, all is drawn shorter by the same factor (`StepTimeline.scale`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from ms_symtensor.cost.stage_time import StageSeconds
from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.program.schedules.scheduler import Turn


class Kind(str, Enum):
    """What a stage does in a span of time."""

    START = "start"
    FORWARD = "forward"
    BACKWARD = "backward"
    END = "end"
    WAIT = "wait"


@dataclass(frozen=True)
class Span:
    """`time_s` seconds from `start_s` on, in which `stage` does one thing; of a pass its micro-batch and model chunk."""

    stage: int
    kind: Kind
    start_s: float
    time_s: float
    micro_batch: int = 0
    run: int = 0

    @property
    def end_s(self) -> float:
        return self.start_s + self.time_s


@dataclass(frozen=True)
class StepTimeline:
    """The spans of every stage, which follow each other without a gap from 0 to `step_s`; `replayed_s`: when the passes, one
    after the other as they depend on each other, are done.
    """

    step_s: float
    replayed_s: float
    stages: tuple[tuple[Span, ...], ...]

    @property
    def scale(self) -> float:
        """Seconds drawn for a second of a pass."""
        return min(1.0, self.step_s / self.replayed_s)


def replay(stages: Sequence[StageSeconds], schedule: PipelineSchedule, step_s: float) -> StepTimeline:
    """The timeline of a step of `step_s` seconds, by the price, whose stages spend `stages`; every model chunk of a stage takes
    the same share of its passes.
    """
    orders = [schedule.turns(stage, len(stages)) for stage in range(len(stages))]
    interleave = schedule.interleave
    lanes = [[Span(stage, Kind.START, 0.0, one.start_s)] if one.start_s else [] for stage, one in enumerate(stages)]
    ends_s: dict[tuple[int, Turn], float] = {}
    for stage, turn in _as_they_depend(orders, interleave):
        one, lane = stages[stage], lanes[stage]
        needed = _needs(stage, turn, len(stages), interleave)
        begin_s = max(lane[-1].end_s if lane else 0.0, 0.0 if needed is None else ends_s[needed])
        time_s = (one.backward_s if turn.is_backward else one.forward_s) / interleave
        kind = Kind.BACKWARD if turn.is_backward else Kind.FORWARD
        lane.append(Span(stage, kind, begin_s, time_s, turn.micro_batch, turn.chunk))
        ends_s[stage, turn] = begin_s + time_s
    for stage, one in enumerate(stages):
        if one.end_s:
            begin_s = lanes[stage][-1].end_s
            lanes[stage].append(Span(stage, Kind.END, begin_s, one.end_s))
    replayed_s = max(lane[-1].end_s for lane in lanes)
    found = StepTimeline(step_s, replayed_s, ())
    return replace(found, stages=tuple(_filled(lane, step_s, found.scale) for lane in lanes))


def _needs(stage: int, turn: Turn, stages: int, interleave: int) -> tuple[int, Turn] | None:
    """The pass whose result a pass reads."""
    _, chunk, is_backward = turn
    if not is_backward:
        if stage:
            return stage - 1, turn
        return (stages - 1, turn._replace(chunk=chunk - 1)) if chunk else None
    if stage < stages - 1:
        return stage + 1, turn
    return (0, turn._replace(chunk=chunk + 1)) if chunk < interleave - 1 else (stage, turn._replace(is_backward=False))


def _as_they_depend(orders: Sequence[Sequence[Turn]], interleave: int) -> Iterator[tuple[int, Turn]]:
    """All passes, each after those that it needs."""
    done: set[tuple[int, Turn]] = set()
    next_of = [0] * len(orders)
    left = sum(map(len, orders))
    while left:
        for stage, order in enumerate(orders):
            while next_of[stage] < len(order):
                turn = order[next_of[stage]]
                needed = _needs(stage, turn, len(orders), interleave)
                if needed is not None and needed not in done:
                    break
                done.add((stage, turn))
                next_of[stage] += 1
                left -= 1
                yield stage, turn


def _filled(lane: Sequence[Span], step_s: float, scale: float) -> tuple[Span, ...]:
    """`lane` with what it waits between its spans, up to the end of the step, but for waits that are only rounding."""
    found: list[Span] = []
    now_s, least_s = 0.0, 1e-12 * step_s
    for span in lane:
        start_s, time_s = span.start_s * scale, span.time_s * scale
        if start_s - now_s > least_s:
            found.append(Span(span.stage, Kind.WAIT, now_s, start_s - now_s))
        else:
            start_s, time_s = now_s, start_s + time_s - now_s
        found.append(replace(span, start_s=start_s, time_s=time_s))
        now_s = found[-1].end_s
    if step_s - now_s > least_s:
        found.append(Span(lane[0].stage, Kind.WAIT, now_s, step_s - now_s))
    return tuple(found)
