"""A table of actions, taken as it stands: when every action begins, and what lies in memory. Nothing here knows how it was made.

    begin(action) = max(end of the action before it on its stage, end of what it reads)

F reads the F of the part before; the first B reads the F of its own part, every other one the B of the next part too; W reads the
B of its part.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ms_symtensor.errors import InputError
from ms_symtensor.scheduling.problem import Action, Kind, Orders, Problem

ROUNDING = 1e-9
"""By such a share sums in another order may be larger."""


@dataclass(frozen=True)
class Simulated:
    """What became of a table.

    Attributes:
        begins_s: of every action, as the table lists them.
        step_s: when the last stage has done what it does once at the end.
        peak_B: bytes of activations of every stage at once.
        idle_s: of every stage, within the step.
    """

    begins_s: tuple[tuple[float, ...], ...]
    step_s: float
    peak_B: tuple[float, ...]
    idle_s: tuple[float, ...]

    def fits(self, problem: Problem) -> bool:
        """Whether no stage keeps more than it may."""
        return all(
            peak_B <= limit_B * (1 + ROUNDING) for peak_B, limit_B in zip(self.peak_B, problem.limit_B, strict=True)
        )


def simulate(problem: Problem, orders: Orders) -> Simulated:
    """What becomes of `orders`.

    Errors: InputError where a pass is missing, there twice, or on another stage, and where stages wait for each other for ever.
    """
    _require_all(problem, orders)
    ends_s: dict[tuple[int, int, Kind], float] = {}
    begins_s: list[list[float]] = [[] for _ in orders]
    now_s = list(problem.start_s)
    left = sum(map(len, orders))
    while left:
        before = left
        for stage, order in enumerate(orders):
            while len(begins_s[stage]) < len(order):
                action = order[len(begins_s[stage])]
                reads = [ends_s.get(key) for key in _reads(problem, action)]
                if None in reads:
                    break
                begin_s = max([now_s[stage], *(end_s for end_s in reads if end_s is not None)])
                end_s = begin_s + problem.parts[action.part].time_s(action.kind)
                begins_s[stage].append(begin_s)
                now_s[stage] = ends_s[action.part, action.micro_batch, _as_read(action.kind)] = end_s
                left -= 1
        if left == before:
            stuck = [order[len(done)] for order, done in zip(orders, begins_s, strict=True) if len(done) < len(order)]
            first = stuck[0]
            raise InputError(
                f"the schedule never ends: stage {first.stage} waits for what {first.kind.value} of micro-batch"
                f" {first.micro_batch} reads: give another order"
            )
    step_s = max(now + end_s for now, end_s in zip(now_s, problem.end_s, strict=True))
    idle_s = tuple(
        step_s - busy - start_s - end_s
        for busy, start_s, end_s in zip(problem.busy_s, problem.start_s, problem.end_s, strict=True)
    )
    peaks = tuple(_peak_B(problem, order) for order in orders)
    return Simulated(tuple(map(tuple, begins_s)), step_s, peaks, idle_s)


def _as_read(kind: Kind) -> Kind:
    """Under which kind others find what an action made: a whole backward pass makes the gradients of activations too."""
    return Kind.BACKWARD if kind is Kind.WHOLE else kind


def _reads(problem: Problem, action: Action) -> Iterator[tuple[int, int, Kind]]:
    """What must have ended."""
    part, micro_batch = action.part, action.micro_batch
    route = problem.route(micro_batch)
    place = route.index(part)
    if action.kind is Kind.FORWARD:
        if place:
            yield route[place - 1], micro_batch, Kind.FORWARD
    elif action.kind is Kind.WEIGHTS:
        yield part, micro_batch, Kind.BACKWARD
    else:
        yield part, micro_batch, Kind.FORWARD
        if place + 1 < len(route):
            yield route[place + 1], micro_batch, Kind.BACKWARD


def _require_all(problem: Problem, orders: Orders) -> None:
    there: Counter[tuple[int, int, Kind]] = Counter()
    for stage, order in enumerate(orders):
        for action in order:
            inside = 0 <= action.micro_batch < problem.micro_batch_num and 0 <= action.part < len(problem.parts)
            if not inside or problem.parts[action.part].stage != stage or action.stage != stage:
                raise InputError(
                    f"the schedule has {action} on stage {stage}, where it does not belong: schedule again"
                )
            kinds = (Kind.BACKWARD, Kind.WEIGHTS) if action.kind is Kind.WHOLE else (action.kind,)
            there.update((action.part, action.micro_batch, kind) for kind in kinds)
    for micro_batch in range(problem.micro_batch_num):
        for part in problem.route(micro_batch):
            for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHTS):
                if there.pop((part, micro_batch, kind), 0) != 1:
                    raise InputError(
                        f"the schedule takes {kind.value} of micro-batch {micro_batch} through part {part} not exactly once:"
                        " schedule again"
                    )
    if there:
        raise InputError("the schedule takes micro-batches through parts that are not on their route: schedule again")


def _peak_B(problem: Problem, order: Sequence[Action]) -> float:
    now_B = most_B = 0.0
    for action in order:
        part = problem.parts[action.part]
        if action.kind is Kind.FORWARD:
            now_B += part.kept_B
            most_B = max(most_B, now_B)
        elif action.kind is Kind.BACKWARD:
            most_B = max(most_B, now_B + part.grows_B)
            now_B += part.deferred_B - part.kept_B
        else:
            now_B -= part.deferred_B if action.kind is Kind.WEIGHTS else part.kept_B
    return most_B
