"""The best plan over pipeline stages, micro-batches and meshes, as a `Plan`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ms_symtensor.cluster.load import is_known
from ms_symtensor.program.one_stage import why_no_accumulation
from ms_symtensor.program.pipeline import dealt, runs_of
from ms_symtensor.program.settings import OptimizerLevel, Recompute
from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.folded.depth import Judged, at_depth, judged
from ms_symtensor.search.folded.mix import WHOLE
from ms_symtensor.search.selections.selected import SELECTING
from ms_symtensor.search.space.domain import meshes
from ms_symtensor.search.space.shapes import Round, Shape, interleaved, max_samples, shapes, shapes_of_batch
from ms_symtensor.search.space.undivided import why_one_run
from ms_symtensor.search.stages.estimate import Estimate
from ms_symtensor.search.stages.network import Network
from ms_symtensor.search.stages.tried import Outcome
from ms_symtensor.search.stages.whole import (
    Fit,
    Promised,
    Whole,
    as_estimated,
    fitting,
    host_memory_B,
    peaks_as_one_stage,
    whole_plan,
)
from ms_symtensor.strategy.considered import Considered
from ms_symtensor.strategy.plan import Plan, Prediction, SearchReport
from ms_symtensor.strategy.stages import pipeline_stages

METHOD = (
    "exact variable elimination for all shapes of stages, micro-batches and meshes at once, stages divided by bisection,"
    " bounds by Lagrangian dual"
)


@dataclass(frozen=True)
class Pipelined:
    """The best plan in micro-batches, `whole`, if one fits and is fast enough; no such plan takes less than `bound_s`.

    `one_stage_s`: the meshes of a plan with one stage and one batch, if these were surveyed too, each with a bound on its step.
    `outcome`: what was learnt of all of `space`. `least`: where nothing fits, the plan that needs least, if it was looked for.
    """

    whole: Whole | None
    bound_s: float
    candidates: int
    considered: tuple[Considered, ...]
    one_stage_s: Mapping[tuple[int, ...], float]
    outcome: Outcome | None = None
    space: tuple[Shape, ...] = ()
    least: Whole | None = None

    @property
    def shapes(self) -> int:
        """How many ways in micro-batches there are."""
        return sum(math.isfinite(one.bound_s) for one in self.considered)

    @property
    def time_s(self) -> float:
        """Seconds of the step of the plan, inf if there is none."""
        return math.inf if self.whole is None else self.whole.estimate.step_time_s


def pipelined_plan(
    network: Network,
    request: Request,
    known_s: float = math.inf,
    one_stage: bool = False,
    fit: Fit = fitting,
    promised: Promised = as_estimated,
) -> Pipelined:
    """The fastest plan in at least two micro-batches, on any number of pipeline stages, as `fit` makes these fit, if it takes
    less than `known_s`. The bounds are those of plans that recompute whole blocks.

    `one_stage`: survey plans of one stage and one batch beside them.
    """
    blocks, graph = sum(network.depths[1:-1]), network.graph_at(request.global_batch_size)
    runs_on = request.limits.interleaves != (1,) and not why_one_run(graph, network.depths)
    one_only, whole_only = bool(network.why_one_stage(request.global_batch_size)), bool(why_no_accumulation(graph))
    space = [
        shape
        for plain in _shapes(network, request, blocks)
        for number in request.limits.interleaves
        if (plain.accumulates or one_stage) and not (one_only if plain.stages > 1 else whole_only and plain.accumulates)
        if request.limits.allow(plain.stages, plain.micro_batch_num, number)
        if number == 1 or runs_on
        if (shape := interleaved(plain, number, blocks)) is not None
    ]
    outcome, found = whole_plan(
        network, request.cluster, space, request.limit_B, request.rules,
        known_s=known_s, limits=request.limits, fit=fit, promised=promised,
        any_plan=request.is_trial,
    )  # fmt: skip
    unbounded = Pipelined(found, math.inf, outcome.candidates, (), {}, outcome, tuple(space))
    return bounded(request, unbounded, outcome.bounds_s)


def _shapes(network: Network, request: Request, blocks: int) -> tuple[Shape, ...]:
    if network.batch is not None:
        return shapes_of_batch(request.device_num, request.global_batch_size // network.batch, network.batch, blocks)
    found = shapes(request.device_num, request.global_batch_size, blocks, max_samples(request.seq_length))
    if any(one.accumulates and request.limits.allow(one.stages, one.micro_batch_num) for one in found):
        return found
    return shapes(request.device_num, request.global_batch_size, blocks, math.inf)  # so few micro-batches are asked for


def bounded(request: Request, searched: Pipelined, bounds_s: Mapping[Shape, float]) -> Pipelined:
    """`searched` with these bounds of all shapes."""
    outcome = searched.outcome
    assert outcome is not None
    return replace(
        searched,
        bound_s=min((bound_s for shape, bound_s in bounds_s.items() if shape.accumulates), default=math.inf),
        considered=_considered(searched.space, outcome, bounds_s),
        one_stage_s=_one_stage_s(request, bounds_s),
    )


def _one_stage_s(request: Request, bounds_s: Mapping[Shape, float]) -> Mapping[tuple[int, ...], float]:
    """A bound on the step in one stage for every mesh, whose axes may change places; 0 where the survey knows none.

    It does not where no mesh that it looks at stands for how the samples lie: there layouts of the mesh itself may be faster.
    """
    found = dict.fromkeys(meshes(request.device_num), math.inf)
    for shape, least_s in bounds_s.items():
        mesh = tuple(sorted((*shape.mesh, 1)[:2], reverse=True))
        if not shape.accumulates and mesh in found and shape.round is not Round.PART:
            found[mesh] = min(found[mesh], least_s)
    return {mesh: least_s if math.isfinite(least_s) else 0.0 for mesh, least_s in found.items()}


def _considered(space: Sequence[Shape], outcome: Outcome, bounds_s: Mapping[Shape, float]) -> tuple[Considered, ...]:
    """All shapes in micro-batches: those worked out, those that only their bound ruled out, what does not fit, and what
    is impossible.
    """
    best = {one.shape: one for one in outcome.estimates}
    infeasible = set(outcome.infeasible)

    def described(shape: Shape, bound_s: float) -> Considered:
        plain = Considered(
            shape.stages,
            shape.micro_batch_num,
            shape.mesh,
            bound_s,
            fits=shape not in infeasible,
            pp_interleave_num=shape.interleave,
        )
        if (one := best.get(shape)) is None:
            return plain
        return replace(plain, step_time_s=one.step_time_s, peak_memory_B=int(one.peak_memory_B), time_s=one.time_s)

    found = [described(shape, bounds_s.get(shape, math.inf)) for shape in space if shape.accumulates]
    return tuple(sorted(found, key=lambda one: one.rank))


def plan_of(network: Network, request: Request, found: Whole, searched: Pipelined) -> Plan:
    """The plan that `found` describes, as `searched` found it; `best_case` says how long the search took."""
    estimate = found.estimate
    shape, settings = estimate.shape, found.settings
    graph, short = network.graph_at(shape.batch), network.short(shape.batch)
    peaks = peaks_as_one_stage(network, found.row, found.strategies, request.rules)
    whole = judged(peaks.shorts, found.strategies, settings, request.cluster, request.rules, peaks=peaks)
    layers = dealt(tuple(stage.blocks for stage in estimate.stages), shape.interleave)
    recompute = _recompute(network, graph.blocks, runs_of(layers, shape.interleave), found)
    stages, pipeline = pipeline_stages(
        graph,
        layers,
        [at_depth(network.class_of, short, found.strategies)] * shape.stages,
        replace(settings, recompute=recompute),
        shape.micro_batch_num,
        shape.interleave,
    )
    memory = max(found.memory_B, key=lambda one: sum(one.values()))
    prediction = Prediction(
        _time_s(found, whole),
        memory,
        sum(memory.values()) <= request.limit_B,
        request.limit_B,
        host_memory_B(network, found, request.rules),
    )
    return Plan(
        model=request.model,
        graph_hash=graph.hash,
        cluster=request.cluster.name,
        own_cluster=None if is_known(request.cluster) else request.cluster,
        stages=stages,
        pipeline=pipeline,
        global_batch_size=request.global_batch_size,
        seq_length=request.seq_length,
        data_parallel=whole.degrees.data_parallel,
        model_parallel=whole.degrees.model_parallel,
        sequence_parallel=whole.degrees.sequence_parallel,
        context_parallel=whole.degrees.context_parallel,
        expert_parallel=whole.degrees.expert_parallel,
        prediction=prediction,
        search=SearchReport(
            searched.candidates,
            0.0,
            max(0.0, found.estimate.step_time_s / searched.bound_s - 1),
            METHOD + (SELECTING if found.mixes else ""),
            tuple(
                sorted(
                    (_as_planned(one, estimate, prediction) for one in searched.considered), key=lambda one: one.rank
                )
            ),
        ),
        source={**request.source, **({"batch_size": str(shape.batch)} if "batch_size" in request.source else {})},
    )


def _as_planned(one: Considered, planned: Estimate, prediction: Prediction) -> Considered:
    """`one`, or, if it is the way of the plan, what its programs take: a survey may promise more than they keep."""
    shape = planned.shape
    way = (shape.stages, shape.micro_batch_num, shape.mesh, shape.interleave)
    if (one.pipeline_stages, one.micro_batch_num, one.mesh, one.pp_interleave_num) != way:
        return one
    return replace(
        one,
        step_time_s=prediction.step_time_s,
        peak_memory_B=prediction.peak_memory_B,
        time_s=planned.time_s,
    )


def _recompute(
    network: Network, blocks: tuple[str, ...], held: Sequence[Sequence[range]], found: Whole
) -> dict[str, Recompute]:
    """What the blocks of every stage compute again: the first ones of its runs, as many as it recomputes, and the others."""
    kinds = [kind for kind, depth in enumerate(network.depths[1:-1]) for _ in range(depth)]
    again = {}
    for number, (runs, stage) in enumerate(zip(held, found.estimate.stages, strict=True)):
        mix = found.mixes[number] if found.mixes else WHOLE
        for place, block in enumerate(block for run in runs for block in run):
            way = mix.way(kinds[block], 1 + place - stage.recomputed)
            if way is not None:
                again[blocks[block]] = way
    return again


def _time_s(found: Whole, whole: Judged) -> dict[str, float]:
    """The step by what an average stage spends; `bubble`: one of several waits for others to begin, to end, and to be as slow."""
    estimate = found.estimate
    shape = estimate.shape
    share, once = shape.micro_batch_num / shape.stages, 1 / shape.stages
    time, weights = whole.cost.time_s, whole.weights
    # With level 2 gradients are scattered at every micro-batch.
    each_s = whole.scatters.communication_s if found.row.level is OptimizerLevel.LEVEL2 else 0.0
    again_s = max(0.0, math.fsum(stage.each_s for stage in estimate.stages) - estimate.work_s)
    split = {
        "compute": share * (time["compute"] - weights.local_s + again_s + whole.adding_s) + once * weights.local_s,
        "communication": share * (time["communication"] - weights.communication_s) + once * weights.communication_s,
        "synchronisation": share * each_s + once * (time["synchronisation"] - each_s),
        "optimizer": once * time["optimizer"],
    }
    if shape.stages == 1:
        return split
    return {**split, "bubble": max(0.0, estimate.step_time_s - math.fsum(split.values()))}
