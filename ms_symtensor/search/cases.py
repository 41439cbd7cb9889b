"""Limits that no single restriction of the operators expresses are searched case by case."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from ms_symtensor.errors import InfeasibleError
from ms_symtensor.search.request import Request
from ms_symtensor.strategy.plan import Plan

GIB = 1 << 30


@dataclass(frozen=True)
class Searched:
    """The best plan of a case if one fits and is fast enough; no plan of it takes less than `bound_s`. `why`: what is missing."""

    plan: Plan | None
    bound_s: float
    candidates: int
    why: Callable[[], InfeasibleError]


def best_case(request: Request, device_num: int, search: Callable[[Request, float], Searched]) -> Plan:
    """The best of what `search(case, known_s)` finds for every case of the request's limits on a stage of `device_num` devices.

    What cannot beat a step of `known_s` need not be found. InfeasibleError where no case has a plan.
    """
    cases = request.limits.cases(device_num)
    best: Plan | None = None
    bound_s, candidates, search_time_s = inf, 0, 0.0
    why = None
    for limits in cases:
        found = search(replace(request, limits=limits), inf if best is None else best.prediction.step_time_s)
        bound_s, candidates = min(bound_s, found.bound_s), candidates + found.candidates
        if found.plan is None:
            why = found.why
            continue
        search_time_s += found.plan.search.search_time_s
        if best is None or found.plan.prediction.step_time_s < best.prediction.step_time_s:
            best = found.plan
    if best is None:
        if len(cases) == 1 and why is not None:
            raise why()
        raise InfeasibleError(f"nothing found that fits {request.limit_B / GIB:.1f} GiB on {request.space}")
    best = replace(best, fixed=request.limits.fixed, at_most=request.limits.at_most)
    if len(cases) == 1:
        return best
    gap = max(0.0, best.prediction.step_time_s / bound_s - 1)
    report = replace(best.search, candidates=candidates, search_time_s=search_time_s, optimality_gap=gap)
    return replace(best, search=report)
