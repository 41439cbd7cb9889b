"""`plan(graph, cluster, …)`: the public entry of the search."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from ms_symtensor.cluster.load import cluster_of, is_known
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InfeasibleError, InputError, InvalidStrategyError
from ms_symtensor.garbage_collection import no_garbage_collection
from ms_symtensor.ops.registry import Rule, require_known
from ms_symtensor.program.meanings import meanings
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.search.asked.checked import memory_B, named, whole_number
from ms_symtensor.search.asked.floor import floor_of
from ms_symtensor.search.asked.limits import limits_of
from ms_symtensor.search.asked.obstacle import does_not_fit, nothing_fits
from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.asked.size import require_size_of
from ms_symtensor.search.closest import of_one_stage
from ms_symtensor.search.folded.alternating import apart, joined, joined_request
from ms_symtensor.search.folded.depth import Judged, at_depth, judged
from ms_symtensor.search.folded.folding import fold
from ms_symtensor.search.folded.memory import short_graphs
from ms_symtensor.search.folded.mix import WHOLE
from ms_symtensor.search.nearest import naming_what_fits
from ms_symtensor.search.one_stage.long_sequences import attention_meshes
from ms_symtensor.search.one_stage.solve import solve
from ms_symtensor.search.possible import require_devices, require_possible
from ms_symtensor.search.priced import as_priced
from ms_symtensor.search.selecting import OneStage, selecting
from ms_symtensor.search.selections.selected import SELECTING
from ms_symtensor.search.space.cases import Searched, best_case
from ms_symtensor.search.space.domain import meshes
from ms_symtensor.search.space.family import Single
from ms_symtensor.search.space.left import remaining, why_none
from ms_symtensor.search.tables.problem import problem_of_family, sample_num, shortened
from ms_symtensor.strategy.plan import Plan, Prediction, SearchReport
from ms_symtensor.tensor.graph import Graph, Source

METHOD = (
    "exact variable elimination inside a block for every mesh, Lagrangian dual over memory, recomputation and optimizer"
    " sharding"
)

_AS_WHAT_IT_READS = ("Cast", "Reshape", "StopGradient")
"""Operators that are laid out as what they read is."""

REMADE = 1.25
"""On meshes of three axes plans of whole blocks that take so many times as long as the best step can become the best where blocks
are recomputed in part (empirical)."""


def plan(
    graph: Graph,
    cluster: Cluster | str | os.PathLike[str],
    *,
    device_num: int,
    global_batch_size: int,
    seq_length: int,
    memory_limit_B: int | None = None,
    model: str = "",
    source: Mapping[str, str] | None = None,
    rules: Mapping[str, Rule] | None = None,
    fix: Mapping[str, object] = MappingProxyType({}),
    at_most: Mapping[str, object] = MappingProxyType({}),
    progress: Callable[[str], None] = lambda _: None,
) -> Plan:
    """The fastest plan of one stage for `graph` on `device_num` devices of `cluster` whose predicted peak fits.

    Args:
        graph: What `capture` or `load_graph` gives: the forward network with its loss, global shapes.
        cluster: A cluster (`load_cluster`), its name, or the path of its file.
        device_num: Number of devices.
        global_batch_size: Samples of a step on all devices: that of the graph's inputs.
        seq_length: Tokens of a sample: that of the graph's inputs.
        memory_limit_B: Bytes of a device that the plan may use; None: what the framework can use of it.
        model: A name for the plan.
        source: How the network is built again, as `plan.json` says it.
        rules: Signatures of further operators, by primitive name; they come first.
        fix: What the plan reports, or operators by name, pinned: `{"model_parallel": 8, "*.query.matmul": "(1,1)(8,1)"}`.
        at_most: The same, bounded from above: `{"recompute": 4}`.
        progress: Is told what is being searched.

    Returns:
        The plan, with strategies, settings, and its prediction in seconds and bytes.

    Raises:
        InputError: An argument is of another kind, the batch or sequence is not the graph's, or the cluster or MindSpore
            cannot form so many devices.
        InvalidStrategyError: MindSpore would not sum the gradient of a parameter, whatever the plan.
        InfeasibleError: Nothing fits; the message names how much is missing where, and the nearest changes that fit.
        UnknownOperatorError: An operator has no rule.

    Example:
        >>> plan = ms_symtensor.plan(graph, "atlas_800t_a2", device_num=8, global_batch_size=16, seq_length=4096)
        >>> plan.prediction.step_time_s, plan.prediction.peak_memory_B
    """
    if not isinstance(graph, Graph):
        raise InputError(f"found a {type(graph).__name__} in place of a graph: capture(net, *inputs) gives one")
    there = cluster_of(cluster)
    limit_B = there.device.hbm_usable_B if memory_limit_B is None else memory_limit_B
    request = Request(
        there,
        whole_number("device_num", device_num),
        whole_number("global_batch_size", global_batch_size),
        whole_number("seq_length", seq_length),
        memory_B("memory_limit_B", limit_B),
        model or graph.name,
        dict(source or {}),
        limits=limits_of(named("fix", fix).items(), named("at_most", at_most).items()),
        rules=rules,
    )
    require_size_of(graph, request.global_batch_size, request.seq_length)
    return naming_what_fits(request, lambda wanted: planned(graph, wanted, progress), floor=floor_of(graph))


@no_garbage_collection()
def planned(graph: Graph, request: Request, progress: Callable[[str], None] = lambda _: None) -> Plan:
    """The fastest plan of one stage that `request` asks for. Errors: as of `plan`."""
    require_operators(graph, request.rules)
    require_devices(request.cluster, request.device_num)
    if request.global_batch_size < 1:
        raise InputError(f"global_batch_size is {request.global_batch_size}: give a positive number of samples")
    own, whole, graph = request, graph, joined(graph)
    request = joined_request(own, graph)
    require_possible(graph, request, whole="it has the batch it was built with")

    def searched(case: Request, known_s: float) -> Searched:
        found = selecting(one_stage(graph, case, known_s=known_s, progress=progress), case, known_s)
        best = None if found.best is None else plan_of(graph, case, found)
        return Searched(best, found.bound_s, found.candidates, lambda: infeasible(graph, case, found))

    every, remark = remaining(graph, request)
    plan = apart(best_case(replace(request, remark=remark), every, searched), graph, own.limits)
    return plan if request.is_trial else as_priced(plan, whole, own)


def one_stage(
    graph: Graph,
    request: Request,
    only: Mapping[tuple[int, ...], float] | None = None,
    known_s: float = math.inf,
    progress: Callable[[str], None] = lambda _: None,
    powers: Mapping[Source, tuple[int, ...]] = MappingProxyType({}),
) -> OneStage:
    """The fastest candidate of one stage.

    `only`: the meshes to look at, each with seconds that no step on it is faster than (default: all there are). What cannot
    beat a step of `known_s` is not looked at closely. `powers`: which dims of tensors grow with the batch (`batch_powers`), where
    that is known: on three axes samples are cut as far as they go.

    Errors: InvalidStrategyError where operators have no layouts on any of the meshes.
    """
    found = OneStage(None, None, None, math.inf, 0)
    rejected: InvalidStrategyError | None = None
    if only is None:
        attended = attention_meshes(graph, request.device_num, request.rules)
        only = dict.fromkeys((*meshes(request.device_num), *attended), 0.0)
    short, again = None, None
    for mesh, least_s in sorted(only.items(), key=lambda pair: (pair[1], pair[0])):
        if least_s >= min(known_s, math.inf if found.best is None else found.best.time_s):
            found = replace(found, bound_s=min(found.bound_s, least_s), passed=(*found.passed, mesh))
            continue
        progress(f"mesh {' x '.join(map(str, mesh))}")
        few, kinds = short = short or shortened(graph)
        is_wide = bool(powers) and len(mesh) == 3
        samples = math.gcd(sample_num(graph), request.device_num) if is_wide else 1
        try:
            of = problem_of_family(
                few,
                request.cluster,
                Single(mesh, samples),
                request.rules,
                powers,
                kinds,
                limits=request.limits,
                again=again,
            )
        except InvalidStrategyError as error:
            rejected = rejected or error
            continue
        again = of.again
        enough_s = known_s * (REMADE if is_wide else 1)
        new = solve(of, request.limit_B, found.best, enough_s, progress)
        slimmest = [c for c in (found.smallest, new.smallest) if c is not None]
        found = OneStage(
            found.problem if new.best is found.best else of,
            new.best,
            min(slimmest, key=lambda c: c.memory_B, default=None),
            min(found.bound_s, new.bound_s),
            found.candidates + of.candidates,
            found.searched + tuple((of, free) for free in new.free),
            found.passed,
        )
    if rejected is not None and not found.candidates and not found.passed:
        raise rejected
    return found


def plan_of(graph: Graph, request: Request, found: OneStage) -> Plan:
    """The plan of the best candidate of `found`; `best_case` says how long the search took."""
    best, of = found.best, found.problem
    assert best is not None and of is not None
    stage = StagePlan(at_depth(fold(graph).class_of, of.graph, best.strategies), best.settings)
    whole = judged(of.shorts, best.strategies, best.settings, request.cluster, request.rules, best.mix, best.first)
    host_B = 0
    if best.settings.swap_optimizer:
        there = replace(best.settings, swap_optimizer=False)
        on_device = judged(of.shorts, best.strategies, there, request.cluster, request.rules, best.mix, best.first)
        host_B = on_device.cost.memory_B["optimizer_states"]
    method = METHOD if best.mix == WHOLE else METHOD + SELECTING
    bound = found.bound_s
    gap = max(0.0, (best.time_s - bound) / bound) if bound > 0 and math.isfinite(bound) else 0.0
    search = SearchReport(found.candidates, 0.0, gap, method)
    return one_stage_plan(graph, request, stage, whole, search, host_B)


def one_stage_plan(
    graph: Graph, request: Request, stage: StagePlan, whole: Judged, search: SearchReport, host_memory_B: int = 0
) -> Plan:
    """The plan of one `stage` for `graph`, `whole` being what it costs, with so many bytes on the host."""
    cost, summary = whole.cost, whole.degrees
    return Plan(
        model=request.model,
        graph_hash=graph.hash,
        cluster=request.cluster.name,
        own_cluster=None if is_known(request.cluster) else request.cluster,
        stages=(stage,),
        global_batch_size=request.global_batch_size,
        seq_length=request.seq_length,
        data_parallel=summary.data_parallel,
        model_parallel=summary.model_parallel,
        sequence_parallel=summary.sequence_parallel,
        context_parallel=summary.context_parallel,
        expert_parallel=summary.expert_parallel,
        prediction=Prediction(
            cost.time_s, cost.memory_B, cost.peak_memory_B <= request.limit_B, request.limit_B, host_memory_B
        ),
        search=search,
        source=dict(request.source),
    )


def require_operators(graph: Graph, rules: Mapping[str, Rule] | None = None) -> None:
    """InputError for a graph that computes nothing: what it gives back was put in, cast or reshaped at most, or is constant.

    UnknownOperatorError for operators that have no signature, in `rules` neither.
    """
    require_known(graph, rules)
    if all(op.type in _AS_WHAT_IT_READS for op in graph.ops):
        raise InputError(
            f"{graph.name} has no operator to lay out: what it returns is an input, a parameter or a constant; give the forward"
            " network with its loss"
        )


def infeasible(graph: Graph, request: Request, found: OneStage) -> InfeasibleError:
    """What is missing: of the candidate that needs least, where and how much."""
    if request.is_trial:
        return InfeasibleError(nothing_fits(request))
    if found.smallest is None:
        why, limits = why_none(graph, request), request.wanted
        wanted = f"have {limits}" if limits else "go together"
        return InfeasibleError(
            f"no operators' layouts on {request.device_num} devices {wanted}" + (f": {why}" if why else "")
        )
    few, kinds = shortened(graph)
    shorts = short_graphs(few, fold(few), meanings(few, request.rules), kinds)
    return does_not_fit(request, of_one_stage(shorts, request, found.smallest))
