"""The schedule of a network: the best of published ones and of those found in every placement, a period and a step around it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, product

from ms_symtensor.errors import InputError
from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.program.schedules import DEFAULT_SCHEDULER
from ms_symtensor.scheduling.bound import step_bound_s
from ms_symtensor.scheduling.listing import Rule, listed
from ms_symtensor.scheduling.period import NODES, Period, best_period
from ms_symtensor.scheduling.placements import Network, problem
from ms_symtensor.scheduling.problem import Action, Kind, Orders, Problem
from ms_symtensor.scheduling.published import LOOP, ONE, OWN, PUBLISHED, V, by_turns
from ms_symtensor.scheduling.simulator import ROUNDING, Simulated, simulate

PLACEMENTS = (ONE, V, LOOP)
TRIED, KEPT = 2, 4
"""Rules are tried on so many micro-batches a stage; so many of the best go through the whole step. Both empirical."""
ACTIONS = 100_000
"""So many actions are taken at most while rules are tried in a placement, so that many stages do not take for ever; empirical."""


@dataclass(frozen=True)
class Candidate:
    """A schedule by `name`, what the simulator made of it, and whether every stage has the memory."""

    name: str
    problem: Problem
    orders: Orders
    simulated: Simulated
    fits: bool


@dataclass(frozen=True)
class Searched:
    """What was found in the placement of `problem`: a period, and a bound of the step. `best`: None where nothing as good as what
    was known was found.
    """

    problem: Problem
    period: Period | None
    bound_s: float
    best: Candidate | None


@dataclass(frozen=True)
class Schedule:
    """What was found for a network.

    Attributes:
        best: the shortest step.
        published: schedules of others, that of the plan among them.
        searched: by placement.
        left_out: why some of them are not there, by name.
    """

    network: Network
    best: Candidate
    published: tuple[Candidate, ...]
    searched: tuple[Searched, ...]
    left_out: Mapping[str, str]

    @property
    def bound_s(self) -> float:
        """No schedule in the placements that were looked at is shorter."""
        bounds_s = [one.bound_s for one in self.searched]
        return min(self.best.simulated.step_s, step_bound_s(self.best.problem), *bounds_s)

    @property
    def gap(self) -> float:
        """How much shorter the step could be at most, as a share."""
        return max(0.0, 1 - self.bound_s / self.best.simulated.step_s)

    @cached_property
    def period(self) -> Period | None:
        """The steady state of the best: of the parts as they lie there."""
        of = [one.period for one in self.searched if one.problem == self.best.problem]
        same = [one.period for one in self.searched if one.problem.placement == self.best.problem.placement]
        return next(iter(of + same)) if of + same else best_period(self.best.problem)


def solve(network: Network, scheduler: str = DEFAULT_SCHEDULER, nodes: int = NODES) -> Schedule:
    """The schedule of `network`, whose plan has it in the order of `scheduler`; `nodes`: of the search tree of a period. Where
    backward passes stay whole, as in MindSpore, parts stay where the plan has them.

    Errors: InputError for fewer than two stages, or less memory than one micro-batch needs.
    """
    if network.stage_num < 2:
        raise InputError("a plan of one stage has nothing to schedule: plan with --fix pipeline_stages=2, or more")
    problem(network, ONE)  # what cannot lie so cannot lie at all
    left_out: dict[str, str] = {}
    published = tuple(_published(network, scheduler, left_out))
    known = [one for one in published if one.fits]
    searched: list[Searched] = []
    own = OWN if len(network.pieces) > network.stage_num else ONE
    for placement in PLACEMENTS if network.splits else (own,):
        try:
            of = problem(network, placement)
        except InputError as error:
            left_out[placement] = str(error)
            continue
        bound_s = step_bound_s(of)
        for variant in _variants(of):
            best_s = min((one.simulated.step_s for one in known), default=float("inf"))
            period = best_period(variant, nodes)
            found = Searched(variant, period, bound_s, _searched(variant, bound_s, best_s, period))
            searched.append(found)
            known += [] if found.best is None else [found.best]
    if not known:
        raise InputError("no schedule was found within that memory: give more with --activation-memory")
    best = min(known, key=lambda one: one.simulated.step_s)
    return Schedule(network, best, published, tuple(searched), left_out)


def _variants(of: Problem) -> Iterator[Problem]:
    """`of`, and where B of a part needs more memory than F kept the same with that part's backward passes whole."""
    yield of
    if any(part.splits and part.grows_B for part in of.parts):
        yield replace(of, parts=tuple(replace(part, splits=part.splits and not part.grows_B) for part in of.parts))


def _published(network: Network, scheduler: str, left_out: dict[str, str]) -> Iterator[Candidate]:
    for name, (placement, orders_of) in PUBLISHED.items():
        whole = name == "1F1B"
        try:
            _require_published(name, network)
            of = problem(network if not whole else replace(network, splits=False), placement)
            yield _candidate(name, of, orders_of(of))
        except InputError as error:
            left_out[name] = str(error)
    chunks = len(network.pieces) // network.stage_num
    if chunks > 1:
        of = problem(replace(network, splits=False), OWN)
        yield _candidate("the plan's own", of, by_turns(of, PipelineSchedule(of.micro_batch_num, chunks, scheduler)))


def _require_published(name: str, network: Network) -> None:
    """InputError where the construction is not defined."""
    stages, number = network.stage_num, network.micro_batch_num
    if not network.splits and name != "1F1B":
        raise InputError("splits backward passes")
    if name == "DualPipe" and (stages % 2 or number < 2 * stages):
        raise InputError(
            f"is for an even number of stages and at least twice as many micro-batches, not {stages} and {number}"
        )


def _candidate(name: str, of: Problem, orders: Orders) -> Candidate:
    simulated = simulate(of, orders)
    return Candidate(name, of, orders, simulated, simulated.fits(of))


def _searched(of: Problem, bound_s: float, best_s: float, period: Period | None) -> Candidate | None:
    """The best step by rules of precedence, where one is shorter than `best_s`."""
    if bound_s >= best_s * (1 - ROUNDING):
        return None
    routes = len(of.routes)
    few = min(of.micro_batch_num, TRIED * of.stage_num // routes * routes)
    small = replace(of, micro_batch_num=few)
    aim_s = step_bound_s(small)
    tried: list[tuple[float, int, Rule]] = []
    most = max(KEPT, ACTIONS // (3 * sum(small.count_of)))
    for number, rule in enumerate(islice(_rules(of, period), most)):
        orders = listed(small, rule)
        if orders is not None:
            tried.append((simulate(small, orders).step_s, number, rule))
            if tried[-1][0] <= aim_s * (1 + ROUNDING):
                break
    found = [] if period is None else [_candidate("found", of, period.unrolled(of))]
    for _, _, rule in sorted(tried, key=lambda one: one[:2])[:KEPT]:
        orders = listed(of, rule)
        if orders is not None:
            found.append(_candidate("found", of, orders))
            if found[-1].simulated.step_s <= bound_s * (1 + ROUNDING):
                break
    fitting = [one for one in found if one.fits and one.simulated.step_s < best_s]
    return min(fitting, key=lambda one: one.simulated.step_s, default=None)


FIRST: tuple[Mapping[Kind, int], ...] = (
    {Kind.BACKWARD: 0, Kind.WHOLE: 0, Kind.FORWARD: 1, Kind.WEIGHTS: 2},
    {Kind.FORWARD: 0, Kind.BACKWARD: 1, Kind.WHOLE: 1, Kind.WEIGHTS: 2},
    {Kind.BACKWARD: 0, Kind.WHOLE: 0, Kind.WEIGHTS: 1, Kind.FORWARD: 2},
    {Kind.BACKWARD: 0, Kind.WHOLE: 0, Kind.FORWARD: 0, Kind.WEIGHTS: 2},
)
"""Which kind of pass comes first."""


def _rules(of: Problem, period: Period | None) -> Iterator[Rule]:
    """Rules of precedence: by kind, then the part nearer to the end of its route or to its beginning, or the earlier micro-batch;
    and as the period has it.
    """
    places = {part: place for route in of.routes for place, part in enumerate(route)}
    stages = of.stage_num
    ahead = dict.fromkeys((None, stages, stages + max(1, stages // 4), 3 * stages // 2, 2 * stages))
    orders = ((1, False), (1, True), (-1, False)) if len(of.parts) > stages else ((1, False),)
    if period is not None:
        for patience in (0.0, 0.5, 1.0):
            yield Rule(_AsPeriod(period), patience)
    for patience, limit, first in product((0.0, 0.5), ahead, FIRST):
        for sign, by_number in orders:
            yield Rule(_Precedence(first, places, sign, by_number), patience, limit)


@dataclass(frozen=True)
class _Precedence:
    first: Mapping[Kind, int]
    places: Mapping[int, int]
    sign: int
    by_number: bool

    def __call__(self, action: Action, number: int) -> tuple[float, ...]:
        place = -self.sign * self.places[action.part]
        return (self.first[action.kind], number, place) if self.by_number else (self.first[action.kind], place, number)


@dataclass(frozen=True)
class _AsPeriod:
    period: Period

    def __call__(self, action: Action, number: int) -> tuple[float, ...]:
        begins = self.period.begins
        other = Kind.BACKWARD if action.kind is Kind.WHOLE else Kind.WHOLE
        found = begins.get((action.part, action.kind), begins.get((action.part, other), 0.0))
        return (found + number,)
