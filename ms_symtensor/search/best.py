"""The best plan of all: of one stage, or of several."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from ms_symtensor.errors import InfeasibleError, InvalidStrategyError
from ms_symtensor.garbage_collection import no_garbage_collection
from ms_symtensor.search import pipelined
from ms_symtensor.search.asked.obstacle import does_not_fit, nothing_fits, smallest_obstacle
from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.closest import least_plan, of_stages
from ms_symtensor.search.folded.alternating import apart, joined_request, separated
from ms_symtensor.search.folded.growth import batch_powers
from ms_symtensor.search.in_part import fit_of, fitted, promised_in_part
from ms_symtensor.search.one_stage.long_sequences import attention_meshes
from ms_symtensor.search.pipelined import Pipelined, pipelined_plan
from ms_symtensor.search.plan import infeasible, one_stage, plan_of, require_operators
from ms_symtensor.search.possible import require_devices, require_possible
from ms_symtensor.search.priced import as_priced
from ms_symtensor.search.selecting import OneStage, selecting
from ms_symtensor.search.smallest import known_of_all
from ms_symtensor.search.space.cases import Searched, best_case
from ms_symtensor.search.space.domain import FINEST_MESH_DEVICES
from ms_symtensor.search.space.left import remaining, why_none
from ms_symtensor.search.space.undivided import why_whole
from ms_symtensor.search.stages.network import Network
from ms_symtensor.strategy.considered import Considered
from ms_symtensor.strategy.plan import Plan, SearchReport
from ms_symtensor.tensor.graph import Source

NOTHING = OneStage(None, None, None, math.inf, 0)

WORTH = 2e-3
"""One stage is not looked at closely where it could save no more than this share of a step (empirical)."""


@no_garbage_collection()
def best_plan(of: Network, request: Request, progress: Callable[[str], None] = lambda _: None) -> Plan:
    """The fastest plan for network `of` over pipeline stages, micro-batches, meshes and the operators' layouts.

    On few devices one mesh holds all others: one stage is searched first, and only what could beat it is looked for among
    several. On more, the survey of all shapes tells which meshes are worth searching as one stage. Where no block repeats (as few
    layers may be asked for), or in no order that is known, one stage and the whole batch is all that is searched.

    The graph of a plan with several stages is that of one micro-batch: `of.graph_at(global_batch_size // micro_batch_num)`; of
    one whose kinds of blocks take turns, that of which it was `joined`.
    The optimality gap is the distance to the smaller of the bounds of both searches. Errors: as of `search.plan.plan`.
    """
    whole = of.graph_at(request.global_batch_size)
    found = _best(of, joined_request(request, whole), progress)
    together = whole if found.pipeline is None else of.graph_at(request.global_batch_size // found.micro_batch_num)
    plan = apart(found, together, request.limits)
    return plan if request.is_trial else as_priced(plan, separated(together), request)


def _best(of: Network, request: Request, progress: Callable[[str], None]) -> Plan:
    """`best_plan` for the blocks of `of`."""
    graph = of.graph_at(request.global_batch_size)
    require_operators(graph, request.rules)
    require_devices(request.cluster, request.device_num)
    require_possible(graph, request, 1 if of.batch is None else request.global_batch_size // of.batch)
    undivided, why_not = why_whole(graph), of.why_one_stage(request.global_batch_size)
    every, remark = remaining(graph, request)
    request = replace(request, remark=remark)
    found = best_case(request, every, lambda case, known_s: _searched(of, case, known_s, progress))
    if not why_not and not undivided:
        return found
    remark = f"one stage, the batch as a whole: {undivided}" if undivided else f"one stage: {why_not}"
    return replace(found, search=replace(found.search, method=f"{found.search.method}; {remark}"))


def _searched(of: Network, request: Request, known_s: float, progress: Callable[[str], None]) -> Searched:
    graph = of.graph_at(request.global_batch_size) if request.limits.allow(1, 1) else None
    one, several = NOTHING, None
    divisible = not why_whole(of.graph_at(request.global_batch_size))
    few = request.device_num <= FINEST_MESH_DEVICES or not divisible
    rejected: InvalidStrategyError | None = None
    if few and graph is not None:
        try:
            one = one_stage(graph, request, known_s=known_s, progress=progress)
        except InvalidStrategyError as error:  # on all devices; on those of a stage MindSpore may take it
            if not divisible:
                raise
            rejected, graph = error, None
    if divisible and not (few and request.limits.most.get("micro_batch_num") == 1):
        progress("pipeline stages")
        try:
            several = pipelined_plan(
                of,
                request,
                min(known_s, one.time_s),
                one_stage=not few,
                fit=fit_of(request),
                promised=promised_in_part(of, request),
            )
        except InvalidStrategyError as error:
            rejected = error
    if rejected is not None and one.best is None and (several is None or several.whole is None):
        raise rejected
    is_enough = request.is_trial and several is not None and several.whole is not None
    if not few and graph is not None and several is not None and not is_enough:
        wide = dict.fromkeys(attention_meshes(graph, request.device_num, request.rules), 0.0)
        only = {**several.one_stage_s, **wide}
        one = replace(NOTHING, passed=tuple(only))
        # Where it could hardly be faster, the other is made faster first, which leaves few meshes to look at.
        if min(only.values()) < (1 - WORTH) * several.time_s:
            powers = _powers(of, request) if wide else {}
            try:
                one = one_stage(graph, request, only, min(known_s, several.time_s), progress, powers)
            except InvalidStrategyError:  # on all devices, but not on those of a stage
                one = NOTHING
    one = selecting(one, request, known_s if several is None else min(known_s, several.time_s))
    if several is not None and several.whole is None and one.best is None and math.isinf(known_s):
        several = fitted(of, request, several)
    if several is not None and several.whole is not None and several.time_s < one.time_s:
        best = pipelined.plan_of(of, request, several.whole, several)
    elif one.best is not None and graph is not None:
        best = plan_of(graph, request, one)
    else:
        best = None
    bound_s = min(one.bound_s, several.bound_s if several is not None else math.inf)
    if best is not None:
        best = replace(best, search=_report(best, one, several, bound_s))
    candidates = one.candidates + (several.candidates if several is not None else 0)
    return Searched(best, bound_s, candidates, lambda: _infeasible(of, request, one, several))


def _powers(of: Network, request: Request) -> Mapping[Source, tuple[int, ...]]:
    """Which dims of its first blocks' tensors grow with the batch; nothing if the network can be had at one batch only."""
    if of.batch is not None:
        return {}
    return batch_powers(of.short(request.global_batch_size), of.short(2 * request.global_batch_size))


def _report(best: Plan, one: OneStage, several: Pipelined | None, bound_s: float) -> SearchReport:
    """Both searches together."""
    found = [] if one.best is None else [Considered(
        1, 1, (best.device_num,), one.bound_s, True, one.best.time_s, one.best.memory_B
    )]  # fmt: skip
    return SearchReport(
        one.candidates + (several.candidates if several is not None else 0),
        best.search.search_time_s,
        max(0.0, best.prediction.step_time_s / bound_s - 1),
        best.search.method,
        (*found, *(best.search.considered or (several.considered if several is not None else ()))),
    )


def _odd_groups(device_num: int) -> str:
    """What else a number of devices that is no power of two asks for."""
    if device_num & (device_num - 1) == 0:
        return ""
    return f"; of {device_num} devices MindSpore forms no group of 3, 5, 6 or 7 inside a server of 8"


def _infeasible(of: Network, request: Request, one: OneStage, several: Pipelined | None) -> InfeasibleError:
    """What is missing: of the plan that needs least, in one stage or several, where and how much."""
    if request.is_trial:
        return InfeasibleError(nothing_fits(request))
    shapes = several.shapes if several is not None else 0
    if one.smallest is None and not shapes:
        graph = of.graph_at(request.global_batch_size)
        if why := why_none(graph, request):
            return InfeasibleError(f"there is no plan for {request.space}: {why}")
        ways = len(several.space) if several is not None else 0
        return InfeasibleError(
            f"there is no plan for {request.space}: in none of {ways} ways to lay out the step (stages, micro-batches, mesh) do"
            f" layouts of all operators go together{_odd_groups(request.device_num)}"
        )
    found: list[InfeasibleError] = []
    if one.smallest is not None:
        found.append(infeasible(of.graph_at(request.global_batch_size), request, one))
    if several is not None and several.outcome is not None:
        least = several.least or least_plan(of, request, known_of_all(several.outcome))
        found += [] if least is None else [does_not_fit(request, of_stages(of, request, least))]
    return smallest_obstacle(found) or InfeasibleError(
        f"{nothing_fits(request)}, over {shapes} shapes of stages, micro-batches and meshes"
    )
