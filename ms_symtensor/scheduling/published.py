"""Published schedules, by their published constructions.

- 1F1B: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters", section 2.2.
- ZB-H1: Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 3.1 (sail-sg/zero-bubble-pipeline-parallelism): 1F1B whose
  backward passes are split; stage i puts W off by up to i micro-batches, so that all stages keep as many.
- ZBV: Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", section 3; as in PyTorch's ScheduleZBVZeroBubble.
- DualPipe: DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 3.2.1; the eight steps of deepseek-ai/DualPipe. A pass
  forward and one backward that it runs beside each other stand one after the other here: what they hide is in the price of each.
"""

from collections.abc import Callable, Iterator, Mapping

from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.scheduling.problem import Action, Kind, Orders, Problem

F, B, W, BW = Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHTS, Kind.WHOLE
ONE, LOOP, OWN, V, BOTH = "one part a stage", "loop", "the plan's own loop", "V", "both directions"


def one_f_one_b(problem: Problem) -> Orders:
    """1F1B, interleaved where stages hold several parts in a loop."""
    stages = problem.stage_num
    schedule = PipelineSchedule(problem.micro_batch_num, len(problem.parts) // stages)
    return by_turns(problem, schedule)


def by_turns(problem: Problem, schedule: PipelineSchedule) -> Orders:
    """The order of one of MindSpore's schedulers."""
    stages = problem.stage_num
    return [
        [
            Action(stage, turn.chunk * stages + stage, turn.micro_batch, BW if turn.is_backward else F)
            for turn in schedule.turns(stage, stages)
        ]
        for stage in range(stages)
    ]


def zb_h1(problem: Problem) -> Orders:
    """ZB-H1. W comes earlier where the memory of a stage would not do."""
    return [list(_zb_h1(problem, stage)) for stage in range(problem.stage_num)]


def _zb_h1(problem: Problem, stage: int) -> Iterator[Action]:
    number, part = problem.micro_batch_num, problem.parts[stage]
    warm = min(number, problem.stage_num - stage)
    room_B = problem.limit_B[stage] - warm * part.kept_B - part.grows_B
    most = min(stage, max(0, int(room_B / part.deferred_B * (1 + 1e-9)))) if part.deferred_B else stage
    done = 0
    for micro_batch in range(warm):
        yield Action(stage, stage, micro_batch, F)
    for micro_batch in range(number):
        yield Action(stage, stage, micro_batch, B)
        if micro_batch + 1 - done > most or micro_batch + warm >= number:
            yield Action(stage, stage, done, W)
            done += 1
        if micro_batch + warm < number:
            yield Action(stage, stage, micro_batch + warm, F)
    for micro_batch in range(done, number):
        yield Action(stage, stage, micro_batch, W)


class _Counted:
    """The actions of a stage, whose passes take one micro-batch after the other, kind by kind and part by part."""

    def __init__(self, stage: int, firsts: Mapping[int, int], counts: Mapping[int, int]) -> None:
        self.stage, self.firsts, self.counts = stage, firsts, counts
        self.next: dict[tuple[int, Kind], int] = {}
        self.deferred: list[tuple[int, int]] = []
        self.found: list[Action] = []

    def done(self, part: int, kind: Kind) -> int:
        """How many have passed; B and BW count as one."""
        return self.next.get((part, B if kind is BW else kind), 0)

    def take(self, part: int, kind: Kind) -> None:
        """The next micro-batch, where there is one."""
        number = self.done(part, kind)
        self.next[part, B if kind is BW else kind] = number + 1
        if number < self.counts[part]:
            micro_batch = self.firsts[part] + number
            self.found.append(Action(self.stage, part, micro_batch, kind))
            if kind is B:
                self.deferred.append((part, micro_batch))

    def weights(self) -> None:
        """W of what has been put off longest."""
        if self.deferred:
            part, micro_batch = self.deferred.pop(0)
            self.found.append(Action(self.stage, part, micro_batch, W))


def zbv(problem: Problem) -> Orders:
    """ZBV, on parts in a V."""
    return [_zbv(problem, stage) for stage in range(problem.stage_num)]


def _zbv(problem: Problem, stage: int) -> list[Action]:
    stages, number = problem.stage_num, problem.micro_batch_num
    first, second = stage, 2 * stages - 1 - stage
    one = _Counted(stage, {first: 0, second: 0}, {first: number, second: number})
    whole = max(2 * stages - 1, number)
    for _ in range(2 * (stages - stage) - 1):
        one.take(first, F)
    for _ in range(stage):
        one.take(second, F)
        one.take(first, F)
    for _ in range(stages - stage):
        for kind in (F, B, W):
            one.take(second, kind)
    while one.done(second, F) < one.done(first, F) or one.done(first, F) < whole:
        if one.done(first, F) < whole:
            one.take(first, F)
        one.take(first, B)
        one.take(first, W)
        for kind in (F, B, W):
            one.take(second, kind)
    for _ in range(stage):
        one.take(first, B)
        one.take(second, B)
    for _ in range(stages - stage):
        one.take(first, B)
        one.take(first, W)
    for part in (second, first):
        while one.done(part, W) < one.done(part, B):
            one.take(part, W)
    return one.found


def dualpipe(problem: Problem) -> Orders:
    """DualPipe, on parts in both directions."""
    return [_dualpipe(problem, stage) for stage in range(problem.stage_num)]


def _dualpipe(problem: Problem, stage: int) -> list[Action]:
    stages, half = problem.stage_num, problem.micro_batch_num // 2
    outer = min(stage, stages - 1 - stage)  # from the nearer end
    inner = stages // 2 - outer - 1  # from the middle
    near, far = stage, stages + stages - 1 - stage
    if stage >= stages // 2:
        near, far = far, near
    firsts = {stage: 0, 2 * stages - 1 - stage: half}
    one = _Counted(stage, firsts, dict.fromkeys(firsts, half))

    def together(forward: int, backward: int) -> None:
        one.take(forward, F)
        one.take(backward, BW)

    for _ in range(2 * inner):
        one.take(near, F)
    for _ in range(outer + 1):
        one.take(near, F)
        one.take(far, F)
    for _ in range(inner):
        one.take(far, B)
        one.weights()
        one.take(far, F)
    for _ in range(half - stages + outer + 1):
        together(near, far)
        together(far, near)
    for _ in range(inner):
        one.take(far, BW)
        together(far, near)
    _drain(one, near, far, outer, inner)
    return one.found


def _drain(one: _Counted, near: int, far: int, outer: int, inner: int) -> None:
    """Steps 6 to 8: the second half of the last backward passes is split."""
    splits = False
    for turn in range(outer + 1):
        middle = turn == (outer + 1) // 2
        splits = splits or (middle and outer % 2 == 1)
        one.take(far, B if splits else BW)
        splits = splits or (middle and outer % 2 == 0)
        one.take(near, B if splits else BW)
    for _ in range(inner):
        one.weights()
        one.take(near, B)
    while one.deferred:
        one.weights()


PUBLISHED: Mapping[str, tuple[str, Callable[[Problem], Orders]]] = {
    "1F1B": (ONE, one_f_one_b),
    "ZB-H1": (ONE, zb_h1),
    "ZBV": (V, zbv),
    "DualPipe": (BOTH, dualpipe),
}
"""By name: its placement, and its orders."""
