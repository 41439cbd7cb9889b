"""The best plan of all: of one stage, or of several."""

from collections.abc import Callable
from dataclasses import replace

from ms_symtensor.errors import InfeasibleError
from ms_symtensor.search.network import Network
from ms_symtensor.search.pipelined import Pipelined, pipelined_plan
from ms_symtensor.search.plan import GIB, no_garbage_collection, plan, require_devices
from ms_symtensor.search.request import Request
from ms_symtensor.strategy.considered import Considered
from ms_symtensor.strategy.plan import Plan, SearchReport

MAX_ONE_STAGE = 256
"""More devices than these are not searched as one stage (empirical: its collectives then reach over every node)."""


@no_garbage_collection()
def best_plan(of: Network, request: Request, progress: Callable[[str], None] = lambda _: None) -> Plan:
    """The fastest plan for network `of` over pipeline stages, micro-batches, meshes and the operators' layouts.

    The graph of a plan with several stages is that of one micro-batch: `of.graph_at(global_batch_size // micro_batch_num)`.
    The optimality gap is the distance to the smaller of the bounds of both searches. Errors: as of `search.plan.plan`.
    """
    require_devices(request.cluster, request.device_num)
    one: Plan | None = None
    refused: InfeasibleError | None = None
    if request.limits.allow(1, 1) and request.device_num <= MAX_ONE_STAGE:
        try:
            one = plan(
                of.graph_at(request.global_batch_size), request.cluster, device_num=request.device_num,
                global_batch_size=request.global_batch_size, seq_length=request.seq_length,
                memory_limit_B=request.limit_B, model=request.model, source=request.source, rules=request.rules,
                progress=progress,
            )  # fmt: skip
        except InfeasibleError as error:
            refused = error
    if one is not None and request.limits.most.get("pipeline_stages") == 1:
        return replace(one, search=replace(one.search, considered=(_considered(one),)))
    progress("pipeline stages")
    several = pipelined_plan(of, request, *([one.prediction.step_time_s] if one is not None else []))
    best = several.plan or one
    if best is None:
        raise _infeasible(request, refused, several)
    return replace(best, search=_report(best, one, several))


def _report(best: Plan, one: Plan | None, several: Pipelined) -> SearchReport:
    """Both searches together."""
    if one is None:
        return best.search
    bound_s = min(several.bound_s, one.prediction.step_time_s / (1 + one.search.optimality_gap))
    return SearchReport(
        one.search.candidates + several.candidates,
        one.search.search_time_s + several.search_time_s,
        max(0.0, best.prediction.step_time_s / bound_s - 1),
        best.search.method,
        (_considered(one), *several.considered),
    )


def _considered(one: Plan) -> Considered:
    """One stage, searched over all its meshes at once."""
    time_s = one.prediction.step_time_s
    bound_s = time_s / (1 + one.search.optimality_gap)
    return Considered(1, 1, (one.device_num,), bound_s, True, time_s, one.prediction.peak_memory_B)


def _infeasible(request: Request, refused: InfeasibleError | None, several: Pipelined) -> InfeasibleError:
    if refused is not None:
        return InfeasibleError(f"{refused} (nor does any of {several.shapes} ways with pipeline stages fit)")
    wanted = str(request.limits)
    space = f"{request.device_num} devices" + (f" with {wanted}" if wanted else "")
    if not several.shapes:
        return InfeasibleError(
            f"no way to lay {space} out: stages must divide the devices and not outnumber the blocks, micro-batches must divide"
            " the batch and not be fewer than the stages"
        )
    return InfeasibleError(
        f"nothing found that fits {request.limit_B / GIB:.1f} GiB on {space}, over {several.shapes} shapes of stages,"
        " micro-batches and meshes: use more devices, or a smaller batch"
    )
