"""The steady state: a period in which every stage takes one micro-batch of every route through each of its parts.

A mixed-integer program, solved by HiGHS. Pass o of micro-batch m begins at (k_o + u_o + m) T, with a period T, whole k_o and
0 <= u_o < 1. In units of the period all is linear in r = 1 / T, which is maximised:

    reads:   k_p + u_p + t_p r <= k_o + u_o             o reads what p makes
    stages:  u_p + t_p r <= u_o + y_op                  of two passes on one stage, y_op = 1 where o comes first,
             u_o + t_o r <= u_p + 1 - y_op              around the border of the period too
    memory:  sum over parts of kept (#F - #B) + deferred (#B - #W) <= limit       when a pass that needs more begins

with #F - #B = k_B - k_F + (1 where F is first in the period) - (1 where B is): what has begun, in whole micro-batches. Such
programs of periodic events: Serafini and Ukovich 1989; with r as unknown: Hanen 1994, "Study of a NP-hard cyclic scheduling
problem".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from ms_symtensor.scheduling.problem import Action, Kind, Orders, Problem
from ms_symtensor.streams import silenced

NODES = 20000
"""Nodes of the search tree that are looked at, at most; fewer where there are more than `PARTS` parts, as nodes take longer."""
PARTS = 16
WITHIN = 1e-6
"""A relative gap that is none: the solver's tolerance."""

Pass = tuple[int, Kind]
"""Part and kind."""


@dataclass(frozen=True)
class Period:
    """A steady state.

    Attributes:
        period_s: seconds in which one micro-batch of every route is done.
        bound_s: no period is shorter.
        begins: of every pass of the first micro-batch, in periods.
    """

    period_s: float
    bound_s: float
    begins: Mapping[Pass, float]

    @property
    def gap(self) -> float:
        """How much shorter it could be at most, as a share."""
        return max(0.0, 1 - self.bound_s / self.period_s)

    @property
    def is_optimal(self) -> bool:
        return self.gap <= WITHIN

    def unrolled(self, problem: Problem) -> Orders:
        """The steady state from the first micro-batch to the last: every stage takes its passes in that order."""
        first = [0] * len(problem.parts)
        for route in problem.routes:
            for part in route:
                first[part] = problem.routes.index(route) * (problem.micro_batch_num // len(problem.routes))
        found: list[list[tuple[float, Action]]] = [[] for _ in problem.limit_B]
        for (part, kind), begin in self.begins.items():
            stage = problem.parts[part].stage
            found[stage] += [
                (begin + number, Action(stage, part, first[part] + number, kind))
                for number in range(problem.count_of[part])
            ]
        return [[action for _, action in sorted(order)] for order in found]


def load_s(problem: Problem) -> float:
    """Seconds of the busiest stage for one micro-batch of every route: no period is shorter."""
    each_s = [0.0] * problem.stage_num
    for part in problem.parts:
        each_s[part.stage] += part.each_s
    return max(each_s)


def best_period(problem: Problem, nodes: int = NODES) -> Period | None:
    """The shortest period of `problem` that was found among so many nodes; None where there is none."""
    program = _Program(problem)
    nodes = max(1, round(nodes * min(1.0, PARTS / len(problem.parts)) ** 3))
    result = program.solved(nodes)
    if result is None:
        return None
    values, bound = result
    rate = float(values[0])
    if rate <= WITHIN:  # no period is long enough
        return None
    later = program.solved(nodes, rate * (1 - 1e-9))
    if later is not None:
        values = later[0]
    begins = {one: float(values[program.k[one]] + values[program.u[one]]) for one in program.passes}
    return Period(program.scale_s / rate, max(program.load_s, program.scale_s / bound), begins)


class _Program:
    """The rows and columns; column 0 is r, in units of the busiest stage's load."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.load_s = self.scale_s = load_s(problem)
        self.passes: list[Pass] = [
            (part, kind) for part, of in enumerate(problem.parts) for kind in kinds_of(of.splits)
        ]
        number = len(self.passes)
        self.u = {one: 1 + place for place, one in enumerate(self.passes)}
        self.k = {one: 1 + number + place for place, one in enumerate(self.passes)}
        self.y: dict[tuple[Pass, Pass], int] = {}
        self.lower, self.upper = [0.0] * (1 + 2 * number), [1.0] * (1 + number) + [2.0 * number] * number
        self.whole = [0] * (1 + number) + [1] * number
        first = self.passes[0]
        self.upper[self.u[first]] = self.upper[self.k[first]] = 0.0
        self.rows: list[tuple[dict[int, float], float]] = []
        self.last = self._column(2.0 * number, False)
        for one in self.passes:
            self._row({self.k[one]: 1, self.u[one]: 1, 0: self.time(one), self.last: -1}, 0.0)
        self._reads()
        for stage in range(problem.stage_num):
            self._turns(stage)
        for stage in range(problem.stage_num):
            self._memory(stage)

    def time(self, one: Pass) -> float:
        return self.problem.parts[one[0]].time_s(one[1]) / self.scale_s

    def back(self, part: int) -> Pass:
        """The pass that makes the gradients of activations."""
        return part, Kind.BACKWARD if self.problem.parts[part].splits else Kind.WHOLE

    def solved(self, nodes: int, rate: float | None = None) -> tuple[numpy.ndarray, float] | None:
        """The values of all columns and the bound of r; with a `rate`, of the programs at that rate one whose micro-batches are
        done soonest.
        """
        columns = len(self.lower)
        cost, lower = numpy.zeros(columns), numpy.array(self.lower)
        if rate is None:
            cost[0] = -1.0
        else:
            lower[0] = rate
            cost[self.last] = 1.0
        entries = [(row, column, value) for row, (of, _) in enumerate(self.rows) for column, value in of.items()]
        of_row, of_column, of_value = zip(*entries, strict=True)
        matrix = coo_array((of_value, (of_row, of_column)), shape=(len(self.rows), columns)).tocsr()
        most = numpy.array([limit for _, limit in self.rows])
        with silenced():
            found = milp(
                cost,
                integrality=numpy.array(self.whole),
                bounds=Bounds(lower, numpy.array(self.upper)),
                constraints=LinearConstraint(matrix, -numpy.inf, most),
                options={"node_limit": nodes, "mip_rel_gap": WITHIN},
            )
        if found.x is None:
            return None
        return found.x, -float(found.mip_dual_bound)

    def _column(self, most: float, is_whole: bool) -> int:
        self.lower.append(0.0)
        self.upper.append(most)
        self.whole.append(int(is_whole))
        return len(self.lower) - 1

    def _row(self, of: Mapping[int, float], most: float) -> None:
        self.rows.append((dict(of), most))

    def _reads(self) -> None:
        for route in self.problem.routes:
            for before, after in pairwise(route):
                self._after((before, Kind.FORWARD), (after, Kind.FORWARD))
                self._after(self.back(after), self.back(before))
            for part in route:
                self._after((part, Kind.FORWARD), self.back(part))
                if self.problem.parts[part].splits:
                    self._after(self.back(part), (part, Kind.WEIGHTS))

    def _after(self, first: Pass, then: Pass) -> None:
        self._row({self.k[first]: 1, self.u[first]: 1, self.k[then]: -1, self.u[then]: -1, 0: self.time(first)}, 0.0)

    def _turns(self, stage: int) -> None:
        there = [one for one in self.passes if self.problem.parts[one[0]].stage == stage]
        for one, other in combinations(there, 2):
            column = self.y[one, other] = self._column(1.0, True)
            self._row({self.u[one]: 1, self.u[other]: -1, column: -1, 0: self.time(one)}, 0.0)
            self._row({self.u[other]: 1, self.u[one]: -1, column: 1, 0: self.time(other)}, 1.0)

    def _memory(self, stage: int) -> None:
        parts = self.problem.parts_of(stage)
        for one in parts:
            of = self.problem.parts[one]
            self._kept(parts, (one, Kind.FORWARD), self.problem.limit_B[stage])
            if of.splits and of.grows_B:
                self._kept(parts, self.back(one), self.problem.limit_B[stage] - of.grows_B)

    def _kept(self, parts: Sequence[int], now: Pass, limit_B: float) -> None:
        """Not more than `limit_B` is kept when the pass `now` begins, with what it keeps itself if it goes forward."""
        row: dict[int, float] = {}
        constant = 0.0

        def begun(one: Pass, each_B: float) -> None:
            nonlocal constant
            row[self.k[one]] = row.get(self.k[one], 0.0) - each_B
            if one == now:
                constant += each_B if now[1] is Kind.FORWARD else 0.0
            elif (one, now) in self.y:  # 1 where `now` comes first
                row[self.y[one, now]] = row.get(self.y[one, now], 0.0) - each_B
                constant += each_B
            else:
                row[self.y[now, one]] = row.get(self.y[now, one], 0.0) + each_B

        for part in parts:
            of = self.problem.parts[part]
            begun((part, Kind.FORWARD), of.kept_B)
            begun(self.back(part), (of.deferred_B if of.splits else 0.0) - of.kept_B)
            if of.splits:
                begun((part, Kind.WEIGHTS), -of.deferred_B)
        unit_B = max(limit_B, 1e-300)
        self._row({column: value / unit_B for column, value in row.items()}, (limit_B - constant) / unit_B + 1e-9)


def kinds_of(splits: bool) -> tuple[Kind, ...]:
    """The passes of a part."""
    return (Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHTS) if splits else (Kind.FORWARD, Kind.WHOLE)
