"""What a user asks for."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.ops.registry import Rule
from ms_symtensor.search.limits import Limits
from ms_symtensor.strategy.plan import Plan

GIB = 1 << 30


@dataclass(frozen=True)
class Request:
    """A plan for `device_num` devices of `cluster`, a step of `global_batch_size` samples, and `limit_B` of a device's memory."""

    cluster: Cluster
    device_num: int
    global_batch_size: int
    seq_length: int
    limit_B: int
    model: str = ""
    source: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    rules: Mapping[str, Rule] | None = None

    @property
    def space(self) -> str:
        """What was asked for, in words."""
        return f"{self.device_num} devices" + (f" with {self.limits}" if str(self.limits) else "")


def best_case(request: Request, device_num: int, search: Callable[[Request], Plan]) -> Plan:
    """The best of what `search` finds for every case of the request's limits on a stage of `device_num` devices.

    Errors: those of `search`; InfeasibleError where no case has a plan.
    """
    cases = request.limits.cases(device_num)
    if len(cases) == 1:
        return search(replace(request, limits=cases[0]))
    found: list[Plan] = []
    for limits in cases:
        with suppress(InfeasibleError):
            found.append(search(replace(request, limits=limits)))
    if not found:
        raise InfeasibleError(f"nothing found that fits {request.limit_B / GIB:.1f} GiB on {request.space}")
    best = min(found, key=lambda plan: plan.prediction.step_time_s)
    bound_s = min(plan.prediction.step_time_s / (1 + plan.search.optimality_gap) for plan in found)
    report = replace(
        best.search,
        candidates=sum(plan.search.candidates for plan in found),
        search_time_s=sum(plan.search.search_time_s for plan in found),
        optimality_gap=best.prediction.step_time_s / bound_s - 1,
    )
    return replace(best, search=report)
