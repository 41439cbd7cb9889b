"""A whole step from a rule of precedence: a stage that is free takes, of the passes that can begin, the one that comes first.

Where such a pass comes a little later than another one could begin, a stage may wait for it (`Rule.patience`). A pass forward is
taken only where memory is left for one micro-batch in every part of the stage that is nearer to the end of its route: so no two
stages ever wait for each other's memory.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ms_symtensor.scheduling.problem import Action, Kind, Orders, Problem

ROUNDING = 1e-9

Precedence = Callable[[Action, int], tuple[float, ...]]
"""Of an action, and how many micro-batches of its route come before its own: the smallest first."""


class Rule(NamedTuple):
    """How stages choose; `patience`: the share of a pass for which one waits for another that comes first."""

    precedence: Precedence
    patience: float = 0.0
    ahead: int | None = None
    """How many micro-batches may be on their way, from the first part of their route and back; None: as memory allows."""


class _Choice(NamedTuple):
    begin_s: float
    action: Action


def listed(problem: Problem, rule: Rule) -> Orders | None:
    """The step by that rule; None where a stage has no memory for what it must do next."""
    step = _Step(problem, rule)
    choices = [step.choice(stage) for stage in range(problem.stage_num)]
    for _ in range(step.number):
        there = [(choice.begin_s, stage) for stage, choice in enumerate(choices) if choice is not None]
        if not there:
            break
        stage = min(there)[1]
        chosen = choices[stage]
        assert chosen is not None
        for changed in step.take(chosen):
            choices[changed] = step.choice(changed)
    return step.orders if step.is_done else None


class _Step:
    """What has been done so far."""

    def __init__(self, problem: Problem, rule: Rule) -> None:
        self.problem, self.rule = problem, rule
        self.orders: list[list[Action]] = [[] for _ in problem.limit_B]
        self.now_s, self.live_B = list(problem.start_s), [0.0] * problem.stage_num
        self.first: dict[int, int] = {}
        self.place: dict[int, int] = {}
        self.route_of: dict[int, tuple[int, ...]] = {}
        share = problem.micro_batch_num // len(problem.routes)
        for number, route in enumerate(problem.routes):
            for place, part in enumerate(route):
                self.first[part], self.place[part], self.route_of[part] = number * share, place, route
        self.done = {(part, kind): 0 for part in self.place for kind in Kind}
        self.put_off: dict[int, deque[int]] = {part: deque() for part in self.place}
        self.ends_s: dict[tuple[int, int, Kind], float] = {}
        self.left = {part: problem.count_of[part] for part in self.place}
        self.parts = [problem.parts_of(stage) for stage in range(problem.stage_num)]
        self.number = 3 * sum(problem.count_of)

    @property
    def is_done(self) -> bool:
        return all(self.done[part, Kind.WEIGHTS] == count for part, count in self.left.items())

    def choice(self, stage: int) -> _Choice | None:
        """What the stage takes next, of what it could begin."""
        found = []
        for part in self.parts[stage]:
            for kind in (Kind.FORWARD, Kind.BACKWARD):
                number = self.done[part, kind]
                ready_s = self._ready_s(part, kind, number) if number < self.left[part] else None
                if ready_s is not None and (allowed := self._allowed(part, kind)) is not None:
                    action = Action(stage, part, self.first[part] + number, allowed)
                    found.append((max(self.now_s[stage], ready_s), action, number))
            if self.put_off[part]:
                number = self.put_off[part][0]
                found.append((self.now_s[stage], Action(stage, part, self.first[part] + number, Kind.WEIGHTS), number))
        if not found:
            return None
        begin_s, earliest, _ = min(found, key=lambda one: (one[0], self.rule.precedence(one[1], one[2])))
        until_s = begin_s + self.rule.patience * self.problem.parts[earliest.part].time_s(earliest.kind)
        near = [one for one in found if one[0] <= until_s]
        begin_s, action, _ = min(near, key=lambda one: (self.rule.precedence(one[1], one[2]), one[0]))
        return _Choice(begin_s, action)

    def take(self, chosen: _Choice) -> set[int]:
        """Do it; the stages that may choose anew."""
        stage, part, micro_batch, kind = chosen.action
        of, route = self.problem.parts[part], self.route_of[part]
        end_s = chosen.begin_s + of.time_s(kind)
        self.orders[stage].append(chosen.action)
        self.now_s[stage] = end_s
        self.live_B[stage] += {
            Kind.FORWARD: of.kept_B,
            Kind.BACKWARD: of.deferred_B - of.kept_B,
            Kind.WEIGHTS: -of.deferred_B,
            Kind.WHOLE: -of.kept_B,
        }[kind]
        made = (Kind.BACKWARD, Kind.WEIGHTS) if kind is Kind.WHOLE else (kind,)
        for one in made:
            self.done[part, one] += 1
        number = micro_batch - self.first[part]
        if kind is Kind.WEIGHTS:
            self.put_off[part].popleft()
        elif kind is Kind.BACKWARD:
            self.put_off[part].append(number)
        self.ends_s[part, number, made[0]] = end_s
        place = self.place[part]
        near = {Kind.FORWARD: place + 1, Kind.WEIGHTS: -1}.get(kind, place - 1)
        return {stage, self.problem.parts[route[near]].stage} if 0 <= near < len(route) else {stage}

    def _ready_s(self, part: int, kind: Kind, micro_batch: int) -> float | None:
        route, place = self.route_of[part], self.place[part]
        if kind is Kind.FORWARD:
            return self.ends_s.get((route[place - 1], micro_batch, Kind.FORWARD)) if place else 0.0
        own_s = self.ends_s.get((part, micro_batch, Kind.FORWARD))
        if place + 1 == len(route) or own_s is None:
            return own_s
        return self.ends_s.get((route[place + 1], micro_batch, Kind.BACKWARD))

    def _allowed(self, part: int, kind: Kind) -> Kind | None:
        """The kind that memory allows."""
        of, stage = self.problem.parts[part], self.problem.parts[part].stage
        room_B = self.problem.limit_B[stage] * (1 + ROUNDING) - self.live_B[stage]
        if kind is Kind.BACKWARD:
            return kind if of.splits and of.grows_B <= room_B else Kind.WHOLE
        if kind is Kind.FORWARD:
            on_way = self.done[part, Kind.FORWARD] - self.done[part, Kind.BACKWARD]
            if self.rule.ahead is not None and not self.place[part] and on_way >= self.rule.ahead:
                return None
            later = [one for one in self.parts[stage] if self.place[one] > self.place[part]]
            needed_B = sum(self.problem.parts[one].kept_B for one in later if self._has_more(one))
            return kind if of.kept_B + needed_B <= room_B else None
        return None

    def _has_more(self, part: int) -> bool:
        return self.done[part, Kind.FORWARD] < self.left[part]
