"""Limits that no single restriction of the operators expresses are searched case by case."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf

from ms_symtensor.errors import InfeasibleError
from ms_symtensor.search.domain import divisors
from ms_symtensor.search.limits import ALL, Limits
from ms_symtensor.search.request import GIB, Request
from ms_symtensor.strategy.plan import Plan


def cases(limits: Limits, device_num: int) -> tuple[Limits, ...]:
    """Limits which together allow the same plans on so many devices.

    Each has exact numbers for the degrees that pins of operators speak of, and where it limits `sequence_parallel` or
    `context_parallel` the rows by which these are judged.
    """
    exact = {symbol for pin in limits.operators for symbol in pin.symbols}
    context = limits.names("context_parallel")
    if context:
        exact.add("model_parallel")
    found = [limits]
    for name in sorted(exact):
        found = [one for some in found for one in _each(some, name, device_num)]
    if limits.rows is None and (context or limits.judges_norms):
        found = [one for some in found for one in _by_rows(some, device_num, context)]
    if len(found) == 1:
        return tuple(found)
    return tuple(one for one in found if device_num % _devices(one) == 0)


def _devices(limits: Limits) -> int:
    """Devices of a stage that a plan needs, or a divisor of them."""
    rows = limits.rows or limits.least.get("data_parallel", 1)
    return rows * limits.least.get("model_parallel", 1)


def _each(limits: Limits, name: str, device_num: int) -> Iterator[Limits]:
    """Those with every number of `name` that is allowed."""
    if name in limits.least and limits.least[name] == limits.most.get(name):
        yield limits
        return
    for number in reversed(divisors(device_num)):
        if limits.allows(name, number):
            yield replace(limits, least={**limits.least, name: number}, most={**limits.most, name: number})


def _by_rows(limits: Limits, device_num: int, context: bool) -> Iterator[Limits]:
    """Those with every number of rows; without any where weights are whole, so that there is no sequence parallelism to judge."""
    of_rows = [limits]
    if limits.judges_norms:
        of_rows = []
        if limits.allows("sequence_parallel", 0) and limits.allows("model_parallel", 1):
            least, most = (
                {n: k for n, k in b.items() if n != "sequence_parallel"} for b in (limits.least, limits.most)
            )
            whole = replace(limits, least=least, most={**most, "model_parallel": 1})
            if context:
                of_rows.append(whole)
            else:
                yield whole
        several = max(2, limits.least.get("model_parallel", 1))
        if several <= limits.most.get("model_parallel", ALL):
            of_rows.append(replace(limits, least={**limits.least, "model_parallel": several}))
    for one in of_rows:
        for rows in divisors(device_num):
            yield replace(one, rows=rows)


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
    every = cases(request.limits, device_num)
    best: Plan | None = None
    bound_s, candidates, search_time_s = inf, 0, 0.0
    why = None
    for limits in every:
        found = search(replace(request, limits=limits), inf if best is None else best.prediction.step_time_s)
        bound_s, candidates = min(bound_s, found.bound_s), candidates + found.candidates
        if found.plan is None:
            why = found.why
            continue
        search_time_s += found.plan.search.search_time_s
        if best is None or found.plan.prediction.step_time_s < best.prediction.step_time_s:
            best = found.plan
    if best is None:
        if len(every) == 1 and why is not None:
            raise why()
        raise InfeasibleError(f"nothing found that fits {request.limit_B / GIB:.1f} GiB on {request.space}")
    best = replace(best, fixed=request.limits.fixed, at_most=request.limits.at_most)
    if len(every) == 1:
        return best
    gap = max(0.0, best.prediction.step_time_s / bound_s - 1)
    report = replace(best.search, candidates=candidates, search_time_s=search_time_s, optimality_gap=gap)
    return replace(best, search=report)
