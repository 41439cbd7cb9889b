"""From a request to step layouts: which are screened, and the plan that the best of them makes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import scipy

from ms_symtensor.program.one_stage import why_no_accumulation
from ms_symtensor.program.pipeline import dealt, runs_of
from ms_symtensor.program.settings import Recompute, StagePlan
from ms_symtensor.search.certify.certificate import Certificate
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.constraints.summary import degrees
from ms_symtensor.search.folded.depth import unfold
from ms_symtensor.search.folded.mix import WHOLE
from ms_symtensor.search.plan_for import plan_for
from ms_symtensor.search.selections.selected import SELECTING
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
from ms_symtensor.search.stages.incumbents import ScreeningResult
from ms_symtensor.search.stages.materialize import (
    Fit,
    MaterializedPlan,
    Promised,
    as_estimated,
    fastest_plan,
    host_memory_B,
    made_feasible,
)
from ms_symtensor.search.stages.network import Network
from ms_symtensor.search.stages.question import Question
from ms_symtensor.strategy.considered import Considered
from ms_symtensor.strategy.plan import Plan, Prediction, SearchReport
from ms_symtensor.strategy.stages import pipeline_stages

METHOD = (
    "exact variable elimination for all step layouts (stages, micro-batches, meshes) at once, stages divided by bisection, bounds"
    " by Lagrangian relaxation"
)


@dataclass(frozen=True)
class Found:
    """What a search of `space` found: the best plan, `whole`, if one fits and is fast enough; no plan takes less than `bound_s`.

    `screening`: what was learnt on the way. `least`: where nothing fits, the plan that needs least, if it was looked for.
    `certificate`: if it was asked for.
    """

    whole: MaterializedPlan | None
    bound_s: float
    candidates: int
    considered: tuple[Considered, ...] = ()
    screening: ScreeningResult | None = None
    space: tuple[StepLayout, ...] = ()
    least: MaterializedPlan | None = None
    certificate: Certificate | None = None

    @property
    def step_layouts(self) -> int:
        """In how many step layouts the operators can be laid out."""
        return sum(math.isfinite(one.bound_s) for one in self.considered)

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
        return is_whole or bool(
            network.why_one_stage(request.global_batch_size) if has_stages else why_no_accumulation(graph)
        )

    runs_on = limits.interleaves != (1,) and not is_whole and not why_one_run(graph, network.depths)
    return tuple(
        shape
        for plain in _shapes(network, request, blocks)
        for number in limits.interleaves
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
    network: Network,
    request: Request,
    incumbent_s: float = math.inf,
    fit: Fit = made_feasible,
    promised: Promised = as_estimated,
) -> Found:
    """The fastest plan, as `fit` makes layouts fit, if it takes less than `incumbent_s`. Errors: as of `whole_plan`."""
    space = space_of(network, request)
    question = Question(request.cluster, request.limit_B, request.rules, request.limits, incumbent_s=incumbent_s)
    screening, found = fastest_plan(network, space, question, fit, promised, any_plan=request.is_trial)
    bounds_s = screening.bounds_s
    considered = _considered(space, screening, bounds_s)
    return Found(found, min(bounds_s.values(), default=math.inf), screening.candidates, considered, screening, space)


def _considered(
    space: Sequence[StepLayout], screening: ScreeningResult, bounds_s: Mapping[StepLayout, float]
) -> tuple[Considered, ...]:
    """All step layouts: those worked out, those that only their bound ruled out, what does not fit, and what is impossible."""
    best = {one.shape: one for one in screening.estimates}
    infeasible = set(screening.infeasible)

    def described(shape: StepLayout, bound_s: float) -> Considered:
        plain = Considered(
            shape.stages,
            shape.micro_batch_num,
            shape.mesh,
            bound_s,
            fits=shape not in infeasible,
            pp_interleave_num=shape.interleave,
            pipeline_scheduler=shape.scheduler,
        )
        if (one := best.get(shape)) is None:
            return plain
        return replace(plain, step_time_s=one.step_time_s, peak_memory_B=int(one.peak_memory_B), time_s=one.time_s)

    found = [described(shape, bounds_s.get(shape, math.inf)) for shape in space]
    return tuple(sorted(found, key=lambda one: one.rank))


def with_bounds(considered: Sequence[Considered], bounds_s: Mapping[StepLayout, float]) -> tuple[Considered, ...]:
    """`considered`, with the bounds of a certificate."""
    of = {_way(shape): bound_s for shape, bound_s in bounds_s.items()}
    found = (replace(one, bound_s=of.get(_way_of(one), one.bound_s)) for one in considered)
    return tuple(sorted(found, key=lambda one: one.rank))


def _way(shape: StepLayout) -> tuple:
    return shape.stages, shape.micro_batch_num, shape.mesh, shape.interleave, shape.scheduler


def _way_of(one: Considered) -> tuple:
    return one.pipeline_stages, one.micro_batch_num, one.mesh, one.pp_interleave_num, one.pipeline_scheduler


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


def plan_of(network: Network, request: Request, found: MaterializedPlan, report: Found) -> Plan:
    """The plan that `found` describes, as the search of `report` found it; `priced` says what its step is made of, `best_case`
    how long the search took.
    """
    estimate = found.estimate
    shape, settings = estimate.shape, found.settings
    graph, short = network.graph_at(shape.batch), network.short(shape.batch)
    strategies = unfold(network.class_of, short, found.strategies)
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
        host_memory_B(network, found, request.rules),
    )
    every = sorted((_as_planned(one, estimate, prediction) for one in report.considered), key=lambda one: one.rank)
    search = SearchReport(
        report.candidates,
        0.0,
        max(0.0, estimate.step_time_s / report.bound_s - 1),
        _method(found, report),
        tuple(every),
    )
    cut = degrees(graph, whole, request.rules)
    return plan_for(request, graph, stages, pipeline, cut, prediction, search)


def _as_planned(one: Considered, planned: Estimate, prediction: Prediction) -> Considered:
    """`one`, or, if it is the way of the plan, what its programs take: screening may promise more than they keep."""
    if _way_of(one) != _way(planned.shape):
        return one
    return replace(
        one,
        step_time_s=prediction.step_time_s,
        peak_memory_B=prediction.peak_memory_B,
        time_s=planned.time_s,
    )


def _recompute(network: Network, blocks: tuple[str, ...], found: MaterializedPlan) -> dict[str, Recompute]:
    """What the blocks of every stage recompute: the first ones of its model chunks, as many as it recomputes, and the others."""
    stages, interleave = found.estimate.stages, found.estimate.shape.interleave
    held = runs_of(dealt(tuple(stage.blocks for stage in stages), interleave), interleave)
    kinds = [kind for kind, depth in enumerate(network.depths[1:-1]) for _ in range(depth)]
    recomputation = {}
    for number, (runs, stage) in enumerate(zip(held, stages, strict=True)):
        mix = found.mixes[number] if found.mixes else WHOLE
        for place, block in enumerate(block for run in runs for block in run):
            way = mix.way(kinds[block], place < stage.recomputed)
            if way is not None:
                recomputation[blocks[block]] = way
    return recomputation
