"""Limits that no single restriction of the operators expresses are searched case by case."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from ms_symtensor.algebra.divisors import divisors
from ms_symtensor.errors import InfeasibleError, InputError
from ms_symtensor.search.constraints.limits import SWAP, Limits
from ms_symtensor.search.constraints.obstacle import nothing_fits, smallest_obstacle
from ms_symtensor.search.constraints.request import GIB, Request
from ms_symtensor.strategy.plan import Plan


def cases(limits: Limits, device_num: int) -> tuple[Limits, ...]:
    """Limits which together allow the same plans on so many devices.

    Each says whether optimizer states are swapped, and has exact numbers for the degrees that pins of operators speak of.
    """
    found = by_swap(limits)
    for name in sorted({symbol for pin in limits.operators for symbol in pin.symbols}):
        found = [one for some in found for one in _each(some, name, device_num)]
    if len(found) == 1:
        return tuple(found)
    return tuple(one for one in found if device_num % _devices(one) == 0)


def _devices(limits: Limits) -> int:
    """Devices of a stage that a plan needs, or a divisor of them."""
    return limits.least.get("data_parallel", 1) * limits.least.get("model_parallel", 1)


def by_swap(limits: Limits) -> list[Limits]:
    """Those which say whether optimizer states are swapped."""
    if len(limits.swaps) == 1:
        return [limits]
    return [
        replace(limits, least={**limits.least, SWAP: int(swap)}, most={**limits.most, SWAP: int(swap)})
        for swap in limits.swaps
    ]


def _each(limits: Limits, name: str, device_num: int) -> Iterator[Limits]:
    """Those with every number of `name` that is allowed."""
    if name in limits.least and limits.least[name] == limits.most.get(name):
        yield limits
        return
    for number in reversed(divisors(device_num)):
        if limits.allows(name, number):
            yield replace(limits, least={**limits.least, name: number}, most={**limits.most, name: number})


@dataclass(frozen=True)
class Searched:
    """The best plan of a case if one fits and is fast enough; no plan of it takes less than `bound_s`. `why`: what is missing."""

    plan: Plan | None
    bound_s: float
    candidates: int
    why: Callable[[], InfeasibleError]


def best_case(request: Request, every: Sequence[Limits], search: Callable[[Request, float], Searched]) -> Plan:
    """The best of what `search(case, incumbent_s)` finds for `every` case of the request's limits.

    What cannot beat a step of `incumbent_s` need not be found. The plan's report tells the time that all cases took.

    Errors: InfeasibleError where no case has a plan; InputError where optimizer states are to stay on a host of which the cluster
    says nothing.
    """
    if True in request.limits.swaps and request.cluster.host is None:
        raise InputError(
            f"cluster {request.cluster.name} says nothing of its host, where optimizer states would stay: give it an entry"
            " host, with bandwidth_Bps and memory_B, as atlas_800t_a2.yaml has it"
        )
    start = time.perf_counter()
    best: Plan | None = None
    bound_s, candidates = inf, 0
    whys: list[Callable[[], InfeasibleError]] = []
    for limits in every:
        incumbent_s = inf if best is None else best.prediction.step_time_s
        found = _on_host(
            request, search(replace(request, limits=replace(limits, question=str(request.limits))), incumbent_s)
        )
        bound_s, candidates = min(bound_s, found.bound_s), candidates + found.candidates
        if found.plan is None:
            whys.append(found.why)
            continue
        if best is None or found.plan.prediction.step_time_s < best.prediction.step_time_s:
            best = found.plan
    if best is None:
        raise smallest_obstacle([why() for why in whys]) or InfeasibleError(nothing_fits(request))
    report = replace(best.search, search_time_s=time.perf_counter() - start)
    if len(every) > 1:
        gap = max(0.0, best.prediction.step_time_s / bound_s - 1)
        report = replace(report, candidates=candidates, optimality_gap=gap)
    return replace(best, fixed=request.limits.fixed, at_most=request.limits.at_most, search=report)


def _on_host(request: Request, found: Searched) -> Searched:
    """`found`, without its plan if what that keeps on the host does not fit there."""
    host, needed_B = request.cluster.host, found.plan.prediction.host_memory_B if found.plan is not None else 0
    if host is None or host.memory_B is None or needed_B <= host.memory_B:
        return found
    error = InfeasibleError(
        f"the optimizer states of a device need {needed_B / GIB:.1f} GiB of host memory, which has"
        f" {host.memory_B / GIB:.1f} GiB for each: use more devices, or no {SWAP}"
    )
    return replace(found, plan=None, why=lambda: error)
