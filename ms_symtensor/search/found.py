"""From a request to step layouts: which are screened, and the plan that the best of them makes."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import scipy

from ms_symtensor.cost.plan_price import price_plan
from ms_symtensor.program.meanings import meanings
from ms_symtensor.program.one_stage import why_no_accumulation, why_one_stage
from ms_symtensor.program.pipeline import dealt, runs_of
from ms_symtensor.program.schedules import DEFAULT_SCHEDULER
from ms_symtensor.program.settings import Recompute, StagePlan
from ms_symtensor.search.certify.certificate import Certificate
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.constraints.summary import degrees
from ms_symtensor.search.fastest import (
    REFINED,
    Attempt,
    Promise,
    fastest_plan,
    promises_of,
    promises_of_whole_blocks,
    slim_promises,
    unlike_plans,
)
from ms_symtensor.search.folded.alternating import separated
from ms_symtensor.search.folded.folding import unfold
from ms_symtensor.search.folded.mix import WHOLE
from ms_symtensor.search.plan_for import plan_for
from ms_symtensor.search.selections.levels import SELECTING
from ms_symtensor.search.space.step_layouts import (
    StepLayout,
    interleaved,
    max_samples,
    scheduled,
    step_layouts,
    step_layouts_of_batch,
)
from ms_symtensor.search.space.undivided import why_one_run, why_whole
from ms_symtensor.search.stages.estimate import Estimate
from ms_symtensor.search.stages.materialize import MaterializedPlan, host_memory_B
from ms_symtensor.search.stages.network import Network
from ms_symtensor.search.stages.screening import NOTHING, ScreeningResult, WrittenProblems, screen
from ms_symtensor.strategy.as_run import as_run_by
from ms_symtensor.strategy.considered import Considered
from ms_symtensor.strategy.plan import Plan, Prediction, SearchReport
from ms_symtensor.strategy.stages import pipeline_stages
from ms_symtensor.tensor.graph import Graph

METHOD = (
    "exact variable elimination for all step layouts (stages, micro-batches, meshes) at once, stages divided by bisection, bounds"
    " by Lagrangian relaxation"
)

ATTEMPTS = 6
"""Where it is only asked whether something fits, so many layouts are made plans, before those that keep least are (empirical)."""

ROUNDING = 1e-9
"""By such a share sums in another order may be larger."""


@dataclass(frozen=True)
class Found:
    """What a search of `space` found: the best plan, `whole`, if one fits and is fast enough; no plan on a step layout takes less
    than `bounds_s` of it. `others`: plans that may be faster under a run-time that hides communication.

    `screening`: what was learnt on the way. `least`: where nothing fits, the plan
    that needs least, if it was looked for. `certificate`: if it was asked for.
    """

    whole: MaterializedPlan | None
    screening: ScreeningResult = NOTHING
    space: tuple[StepLayout, ...] = ()
    bounds_s: Mapping[StepLayout, float] = field(default_factory=dict)
    least: MaterializedPlan | None = None
    certificate: Certificate | None = None
    others: tuple[MaterializedPlan, ...] = ()

    @property
    def step_layouts(self) -> int:
        """In how many step layouts the operators can be laid out."""
        return sum(map(math.isfinite, self.bounds_s.values()))

    @property
    def bound_s(self) -> float:
        """Seconds that no plan takes less than."""
        return min(self.bounds_s.values(), default=math.inf)

    @property
    def time_s(self) -> float:
        """Seconds of the step of the plan, inf if there is none."""
        return math.inf if self.whole is None else self.whole.estimate.step_time_s


def space_of(network: Network, request: Request) -> tuple[StepLayout, ...]:
    """The step layouts that `request` allows."""
    graph, limits = network.graph_at(request.global_batch_size), request.limits
    blocks, is_whole = sum(network.depths[1:-1]), bool(why_whole(graph))

    @cache
    def is_barred(has_stages: bool) -> bool:
        """Whether the network is not to be laid out in micro-batches, over stages or on one."""
        return is_whole or bool(why_one_stage(graph) if has_stages else why_no_accumulation(graph))

    runs_on = limits.interleaves != (1,) and not is_whole and not why_one_run(graph)
    numbers = limits.interleaves
    if request.is_trial and limits.schedulers == (DEFAULT_SCHEDULER,):
        numbers = numbers[:1]  # in 1F1B more chunks keep no less
    return tuple(
        shape
        for plain in _shapes(network, request, blocks)
        for number in numbers
        if (number == 1 or runs_on) and limits.allow(plain.stages, plain.micro_batch_num, number)
        if not (plain.accumulates and is_barred(plain.stages > 1))
        if (one := interleaved(plain, number, blocks)) is not None
        for scheduler in limits.schedulers
        if (shape := scheduled(one, scheduler)) is not None
    )


def _shapes(network: Network, request: Request, blocks: int) -> tuple[StepLayout, ...]:
    if network.batch is not None:
        return step_layouts_of_batch(
            request.device_num, request.global_batch_size // network.batch, network.batch, blocks
        )
    found = step_layouts(request.device_num, request.global_batch_size, blocks, max_samples(request.seq_length))
    if any(request.limits.allow(one.stages, one.micro_batch_num) for one in found):
        return found
    return step_layouts(
        request.device_num, request.global_batch_size, blocks, math.inf
    )  # so few micro-batches are asked for


def searched(
    network: Network, request: Request, incumbent_s: float = math.inf, written: WrittenProblems | None = None
) -> Found:
    """The fastest plan that fits, if it takes less than `incumbent_s`; `written`: as of `screen`.

    InvalidStrategyError where MindSpore rejects an operator in all of the space.
    """
    space, any_batch = space_of(network, request), network.batch is None
    screening = screen(network.short, network.depths, space, request, incumbent_s, any_batch, written)
    promises: Iterable[Promise] = promises_of(network, screening, request.limit_B, incumbent_s)
    if request.is_trial:
        promises = promises_of_whole_blocks(screening, request.limit_B)[:ATTEMPTS]
    most, attempted = 1 if request.is_trial else REFINED, dict[tuple, Attempt]()
    found = fastest_plan(network, promises, request.limit_B, attempted, incumbent_s, most)
    if found is not None and not request.is_trial:
        slim, step_s = slim_promises(screening, request.limit_B, attempted), found.estimate.step_time_s
        found = fastest_plan(network, slim, request.limit_B, attempted, step_s) or found
    others = tuple[MaterializedPlan, ...]()
    if found is not None and (share := request.runtime.least_share) < 1:
        others = tuple(unlike_plans(network, screening, request.limit_B, found.estimate.step_time_s / share))
    return Found(found, screening, space, screening.bounds_s, others=others)


def _considered(report: Found, planned: Estimate, prediction: Prediction) -> tuple[Considered, ...]:
    """All step layouts: those worked out, those that only their bound ruled out, what does not fit, and what is impossible; and
    that of the plan with what its programs take: screening may promise more than they keep.
    """
    best = {one.shape: one for one in report.screening.estimates}
    infeasible = set(report.screening.infeasible)

    def described(shape: StepLayout) -> Considered:
        plain = Considered(
            shape.stages,
            shape.micro_batch_num,
            shape.mesh,
            report.bounds_s.get(shape, math.inf),
            fits=shape not in infeasible,
            pp_interleave_num=shape.interleave,
            pipeline_scheduler=shape.scheduler,
        )
        one = planned if shape == planned.shape else best.get(shape)
        if one is None:
            return plain
        peak_B = prediction.peak_memory_B if one is planned else round(one.peak_memory_B)
        return replace(plain, step_time_s=one.step_time_s, peak_memory_B=peak_B, time_s=one.time_s)

    return tuple(sorted(map(described, report.space), key=lambda one: one.rank))


def _method(found: MaterializedPlan, report: Found) -> str:
    """How the plan was found, in words."""
    method, known = METHOD + (SELECTING if found.mixes else ""), report.certificate
    if known is None:
        return method
    method += f"; certificate of {known.looked_at} step layouts: fronts of recomputation, stages by HiGHS of SciPy"
    method += f" {scipy.__version__}"
    if (low := known.lowest) is None:
        return method
    return (
        f"{method}; not certified so near: {low.stages} stages, {low.micro_batch_num} micro-batches and mesh {low.mesh} may take"
        f" {known.bound_s:.4g} s"
    )


def plan_of(network: Network, request: Request, report: Found) -> Plan:
    """The plan that a search found; `as_priced` says what its step is made of, `best` how long the search took."""
    assert report.whole is not None
    found, estimate = report.whole, report.whole.estimate
    shape, settings = estimate.shape, found.row.settings
    graph, short = separated(network.graph_at(shape.batch)), network.short(shape.batch)
    strategies = unfold(network.class_of, short, found.row.strategies)
    layers = dealt(tuple(stage.blocks for stage in estimate.stages), shape.interleave)
    whole = StagePlan(strategies, replace(settings, recompute=_recompute(network, graph.blocks, found)))
    stages: tuple[StagePlan, ...] = (whole,)
    pipeline = None
    if shape.accumulates:
        stages, pipeline = pipeline_stages(
            graph,
            layers,
            [strategies] * shape.stages,
            whole.settings,
            shape.micro_batch_num,
            shape.interleave,
            shape.scheduler,
        )
    memory = max(found.memory_B, key=lambda one: sum(one.values()))
    prediction = Prediction(
        {"compute": estimate.step_time_s},
        memory,
        sum(memory.values()) <= request.limit_B,
        request.limit_B,
        host_memory_B(network, found),
    )
    search = SearchReport(
        report.screening.candidates,
        0.0,
        max(0.0, estimate.step_time_s / report.bound_s - 1),
        _method(found, report),
        _considered(report, estimate, prediction),
    )
    cut = degrees(graph, whole, request.rules)
    return plan_for(request, graph, stages, pipeline, cut, prediction, search)


def _recompute(network: Network, blocks: tuple[str, ...], found: MaterializedPlan) -> dict[str, Recompute]:
    """What the blocks of every stage recompute: the first ones of its model chunks, as many as it recomputes, and the others."""
    stages, interleave = found.estimate.stages, found.estimate.shape.interleave
    held = runs_of(dealt(tuple(stage.blocks for stage in stages), interleave), interleave)
    kinds = found.row.kinds
    recomputation: dict[str, Recompute] = {}
    for number, (runs, stage) in enumerate(zip(held, stages, strict=True)):
        mix = found.mixes[number] if found.mixes else WHOLE
        for place, block in enumerate(block for run in runs for block in run):
            way = mix.way(kinds[block], place < stage.recomputed)
            if way is not None:
                recomputation[blocks[block]] = way
    return recomputation


def as_priced(plan: Plan, graph: Graph, request: Request) -> Plan:
    """`plan` for `graph` with the price of the programs that it makes MindSpore write (`cost.plan_price`). Tables leave out what
    depends on all stages together: how the end of one stage hides behind another, and what the run-time hides.

    The gap is that of the tables, and what the price is above them; where the price is below, other plans may gain as much, and
    the gap stays as it is. Of what the run-time hides other plans may gain more, as much as it can hide at most.
    """
    stages = as_run_by(plan, graph, request.runtime)
    found = price_plan(
        graph, stages, plan.pipeline, request.cluster, request.runtime, known=meanings(graph, request.rules)
    )
    before, gap = plan.prediction, plan.search.optimality_gap
    ratio = found.step_time_s / before.step_time_s
    memory = found.fullest_B
    prediction = replace(
        before,
        time_s=found.time_s,
        hidden_s=found.hidden_s,
        experts_s=found.experts_s,
        memory_B=memory,
        fits=sum(memory.values()) <= request.limit_B,
    )
    considered = tuple(
        replace(one, step_time_s=found.step_time_s) if one.step_time_s == before.step_time_s else one
        for one in plan.search.considered
    )
    share = request.runtime.least_share
    above = (1 + gap) * ratio / share - 1 if share < 1 or ratio > 1 + ROUNDING else gap
    search = replace(plan.search, optimality_gap=max(0.0 if share < 1 else gap, above), considered=considered)
    runtime = request.runtime
    return replace(plan, prediction=prediction, search=search, runtime=runtime.name, hide=runtime.hide)
