"""The best plan of a network, over pipeline stages, micro-batches, meshes and the operators' layouts."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ms_symtensor.cost.move import require_host
from ms_symtensor.errors import InfeasibleError, InputError
from ms_symtensor.garbage_collection import no_garbage_collection
from ms_symtensor.ops.registry import Rule, require_known
from ms_symtensor.program.gradients import require_loss
from ms_symtensor.program.one_stage import why_one_stage
from ms_symtensor.search.certify.certificate import certificate
from ms_symtensor.search.constraints.obstacle import (
    amount,
    does_not_fit,
    nothing_fits,
    smallest_obstacle,
    why_not_on_host,
)
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.fastest import Attempt, estimates_of, fastest_plan
from ms_symtensor.search.folded.alternating import longest, separated
from ms_symtensor.search.found import Found, as_priced, plan_of, searched
from ms_symtensor.search.possible import require_devices, require_possible
from ms_symtensor.search.selections.selected_stages import selecting
from ms_symtensor.search.smallest import obstacle_of, smallest
from ms_symtensor.search.space.left import remaining, why_none
from ms_symtensor.search.space.undivided import why_whole
from ms_symtensor.search.stages.layout_candidates import Candidate
from ms_symtensor.search.stages.network import Network, network_as_it_is
from ms_symtensor.search.stages.screening import WrittenProblems
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph

FURTHER = 4
"""So often is searched again within less memory, where a plan takes more under its run-time than by the tables (empirical)."""

OF_TABLES = 0.9
"""So much of a gap may be that of the tables (empirical); the price of the programs may be above theirs by the rest."""


WrittenCases = defaultdict[int, WrittenProblems]
"""The problems of every case of a request, by its number: they are the same within less memory."""


@no_garbage_collection()
def best_plan(
    of: Network, request: Request, progress: Callable[[str], None] = lambda _: None, cutoff_s: float = math.inf
) -> Plan:
    """The fastest plan for network `of` over pipeline stages, micro-batches, meshes and the operators' layouts.

    Where no block repeats (as few layers may be asked for), or in no order that is known, one stage and the whole batch is all
    that is searched. The graph of a plan in micro-batches is that of one of them: `of.graph_at(global_batch_size //
    micro_batch_num)`, `separated`. Errors: as of `search.plan.plan`; InfeasibleError if none takes less than `cutoff_s`.
    """
    cases = WrittenCases(dict)
    plan, limit_B = _best_priced(of, request, progress, cases, cutoff_s), request.limit_B
    least_s = plan.prediction.step_time_s / (1 + plan.search.optimality_gap)
    for _ in range(FURTHER):
        if plan.prediction.fits:
            return plan
        more_B = plan.prediction.peak_memory_B - request.limit_B
        limit_B -= more_B
        progress(f"within {amount(max(limit_B, 0))}")
        plan = _within(of, replace(request, limit_B=limit_B), request, progress, cases)
        gap = max(plan.search.optimality_gap, plan.prediction.step_time_s / least_s - 1)
        plan = replace(plan, search=replace(plan.search, optimality_gap=gap))
    if plan.prediction.fits:
        return plan
    raise InfeasibleError(_not_under_runtime(request))


def _within(of: Network, less: Request, request: Request, progress: Callable[[str], None], cases: WrittenCases) -> Plan:
    """The plan of `less`, with what `request` says of its memory: what a run-time keeps beside the programs is left room for."""
    try:
        plan = _best_priced(of, less, progress, cases)
    except InfeasibleError as error:
        raise InfeasibleError(_not_under_runtime(request)) from error
    fits = plan.prediction.peak_memory_B <= request.limit_B
    return replace(plan, prediction=replace(plan.prediction, limit_B=request.limit_B, fits=fits))


def _not_under_runtime(request: Request) -> str:
    return f"{nothing_fits(request)}, with what --runtime {request.runtime.name} keeps of parameters and gradients"


def _best_priced(
    of: Network, request: Request, progress: Callable[[str], None], cases: WrittenCases, cutoff_s: float = math.inf
) -> Plan:
    """The best plan by the tables, priced as its programs are. That may take more memory, under other run-times than theirs."""
    plan = _best(of, request, progress, cases, cutoff_s)
    graph = of.graph_at(request.global_batch_size // plan.micro_batch_num)
    if (length := longest(graph)) > 1:
        plan = _remarked(plan, f"kinds of blocks take turns, every {length} are laid out alike")
    is_exact = request.is_trial and request.runtime.stores is None
    return plan if is_exact else as_priced(plan, separated(graph), request)


def planned(graph: Graph, request: Request, progress: Callable[[str], None] = lambda _: None) -> Plan:
    """The fastest plan of one stage and one batch that `request` asks for. Errors: as of `search.plan.plan`."""
    if request.global_batch_size < 1:
        raise InputError(f"global_batch_size is {request.global_batch_size}: give a positive number of samples")
    return best_plan(network_as_it_is(graph, request.global_batch_size), request, progress)


def _best(of: Network, request: Request, progress: Callable[[str], None], cases: WrittenCases, cutoff_s: float) -> Plan:
    """`best_plan` for the blocks of `of`."""
    graph = of.graph_at(request.global_batch_size)
    require_operators(graph, request.rules)
    require_devices(request.cluster, request.device_num)
    parts = 1 if of.batch is None else request.global_batch_size // of.batch
    as_it_is = of.batch == request.global_batch_size
    require_possible(graph, request, parts, "it has the batch it was built with" if as_it_is else "")
    if as_it_is:
        return _cases(of, request, progress, cases, cutoff_s)
    undivided, why_not = why_whole(graph), why_one_stage(graph)
    if undivided:
        of = network_as_it_is(graph, request.global_batch_size)
    found = _cases(of, request, progress, cases, cutoff_s)
    if not (why_not or undivided):
        return found
    remark = f"one stage, the batch as a whole: {undivided}" if undivided else f"one stage: {why_not}"
    return _remarked(found, remark)


def _cases(
    of: Network, request: Request, progress: Callable[[str], None], cases: WrittenCases, cutoff_s: float
) -> Plan:
    """The best plan of all cases of the request's limits, if it takes less than `cutoff_s`."""
    if True in request.limits.swaps:
        require_host(request.cluster)
    start = time.perf_counter()
    every, remark = remaining(of.graph_at(request.global_batch_size), request)
    question = str(request.limits)
    if remark and question:
        question = f"{question} ({remark})"
    progress("step layouts")
    best: Plan | None = None
    bound_s, candidates = math.inf, 0
    whys: list[Callable[[], InfeasibleError]] = []
    for number, limits in enumerate(every):
        # Without pins of operators, cases differ in where optimizer states stay alone, and share their problems.
        written = cases[number if request.limits.operators else 0]
        case = replace(request, limits=replace(limits, question=question))
        found = _searched(of, case, cutoff_s if best is None else best.prediction.step_time_s, progress, written)
        bound_s, candidates = min(bound_s, found.bound_s), candidates + found.screening.candidates
        plan = None if found.whole is None else _plan_of(of, case, found)
        if plan is None:
            whys.append(partial(_infeasible, of, case, found))
        elif why := why_not_on_host(request.cluster, plan.prediction.host_memory_B):
            whys.append(partial(InfeasibleError, why))
        elif best is None or plan.prediction.step_time_s < best.prediction.step_time_s:
            best = plan
    if best is None and math.isfinite(cutoff_s):
        raise InfeasibleError(f"no plan takes less than {cutoff_s:.4g} s")
    if best is None:
        raise smallest_obstacle([why() for why in whys]) or InfeasibleError(nothing_fits(request))
    report = replace(best.search, search_time_s=time.perf_counter() - start)
    if len(every) > 1:
        gap = max(0.0, best.prediction.step_time_s / bound_s - 1)
        report = replace(report, candidates=candidates, optimality_gap=gap)
    best = replace(best, fixed=request.limits.fixed, at_most=request.limits.at_most, search=report)
    return _remarked(best, remark) if remark else best


def _plan_of(of: Network, request: Request, found: Found) -> Plan:
    """The plan that was found; of several, that whose programs are the fastest under the run-time."""

    def rank(plan: Plan) -> tuple[bool, float]:
        graph = separated(of.graph_at(request.global_batch_size // plan.micro_batch_num))
        prediction = as_priced(plan, graph, request).prediction
        return not prediction.fits, prediction.step_time_s

    every = [plan_of(of, request, replace(found, whole=one)) for one in (found.whole, *found.others)]
    return min(every, key=rank) if len(every) > 1 else every[0]


def _remarked(found: Plan, remark: str) -> Plan:
    """`found`, whose report ends in `remark`."""
    return replace(found, search=replace(found.search, method=f"{found.search.method}; {remark}"))


def _searched(
    of: Network,
    request: Request,
    incumbent_s: float,
    progress: Callable[[str], None],
    written: WrittenProblems | None = None,
) -> Found:
    found = searched(of, request, incumbent_s, written)
    if found.whole is None and math.isinf(incumbent_s):
        found = _last_attempt(of, request, found)
    if request.certified_gap is not None and not math.isinf(min(found.time_s, incumbent_s)):
        found = _certified(of, request, found, min(found.time_s, incumbent_s), progress)
    return found


def _last_attempt(of: Network, request: Request, found: Found) -> Found:
    """`found`, which has no plan, with one where a last attempt finds what fits, or else with that which needs least."""
    least = smallest(of, request, found.screening)
    if least is None or least.estimate.peak_memory_B > request.limit_B:
        return replace(found, least=least)
    in_blocks = not least.mixes and any(stage.recomputed for stage in least.estimate.stages)
    plan = selecting(of, least.row, request.limit_B) if request.limits.selects and in_blocks else least
    return replace(found, whole=plan, least=least)


def _certified(of: Network, request: Request, found: Found, step_s: float, progress: Callable[[str], None]) -> Found:
    """`found` for the network `of`, certified to the gap of `request`; with a faster plan, where one is met on the way. `step_s`:
    seconds of the best step that is known.
    """
    best, attempted = found.whole, dict[tuple, Attempt]()

    def attempt(rows: Sequence[Candidate], cutoff_s: float) -> float:
        nonlocal best
        made = fastest_plan(of, estimates_of(rows, request.limit_B), request.limit_B, attempted, cutoff_s)
        if made is None:
            return cutoff_s
        best = made
        return made.estimate.step_time_s

    gap = OF_TABLES * (request.certified_gap or 0.0)
    known = certificate(found.screening, step_s, request.limit_B, gap, attempt, progress)
    return replace(found, whole=best, bounds_s={**found.bounds_s, **known.bounds_s}, certificate=known)


def require_operators(graph: Graph, rules: Mapping[str, Rule] | None = None) -> None:
    """InputError for a graph that computes nothing: what it gives back was put in, cast or reshaped at most, or is constant; and
    for one that trains and gives back more than its loss.

    UnknownOperatorError for operators that have no signature, in `rules` neither.
    """
    require_known(graph, rules)
    if all(op.type in _AS_WHAT_IT_READS for op in graph.ops):
        raise InputError(
            f"{graph.name} has no operator to lay out: what it returns is an input, a parameter or a constant; give the forward"
            " network with its loss"
        )
    if graph.is_trained:
        require_loss(graph)


_AS_WHAT_IT_READS = ("Cast", "Reshape", "StopGradient")
"""Operators that are laid out as what they read is."""


def _odd_groups(device_num: int) -> str:
    """What else a number of devices that is no power of two asks for."""
    if device_num & (device_num - 1) == 0:
        return ""
    return (
        f"; of {device_num} devices MindSpore forms no group of 3, 5, 6 or 7 inside a server of 8: try"
        f" {1 << (device_num.bit_length() - 1)} devices, or a global batch that {device_num} divides"
    )


def _infeasible(of: Network, request: Request, found: Found) -> InfeasibleError:
    """What is missing: of the plan that needs least, where and how much."""
    if request.is_trial:
        return InfeasibleError(nothing_fits(request))
    if not found.step_layouts:
        graph = of.graph_at(request.global_batch_size)
        if why := why_none(graph, request):
            return InfeasibleError(f"there is no plan for {request.space}: {why}")
        layouts = "step layouts (stages, micro-batches, mesh)"
        none = f"in none of {len(found.space)} {layouts} do layouts of all operators go together"
        why = none if found.space else f"none of its {layouts} goes with {request.global_batch_size} samples"
        return InfeasibleError(f"there is no plan for {request.space}: {why}{_odd_groups(request.device_num)}")
    least = found.least or smallest(of, request, found.screening)
    if least is not None:
        return does_not_fit(request, obstacle_of(of, least))
    return InfeasibleError(f"{nothing_fits(request)}, over {found.step_layouts} step layouts")
