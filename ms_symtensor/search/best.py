"""The best plan of a network, over pipeline stages, micro-batches, meshes and the operators' layouts."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from ms_symtensor.errors import InfeasibleError, InputError
from ms_symtensor.garbage_collection import no_garbage_collection
from ms_symtensor.ops.registry import Rule, require_known
from ms_symtensor.search.certified import with_certificate
from ms_symtensor.search.closest import least_plan, obstacle_of
from ms_symtensor.search.constraints.obstacle import does_not_fit, nothing_fits
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.folded.alternating import merge_period, merged_request, separated, split_period
from ms_symtensor.search.found import Found, plan_of, searched
from ms_symtensor.search.possible import require_devices, require_possible
from ms_symtensor.search.priced import as_priced
from ms_symtensor.search.selective import fit_of, fitted, promised_in_part
from ms_symtensor.search.smallest import known_of_all
from ms_symtensor.search.space.cases import Searched, best_case
from ms_symtensor.search.space.left import remaining, why_none
from ms_symtensor.search.space.undivided import why_whole
from ms_symtensor.search.stages.network import Network, network_as_it_is
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph


@no_garbage_collection()
def best_plan(of: Network, request: Request, progress: Callable[[str], None] = lambda _: None) -> Plan:
    """The fastest plan for network `of` over pipeline stages, micro-batches, meshes and the operators' layouts.

    Where no block repeats (as few layers may be asked for), or in no order that is known, one stage and the whole batch is all
    that is searched. The graph of a plan in micro-batches is that of one of them: `of.graph_at(global_batch_size //
    micro_batch_num)`; of one whose kinds of blocks alternate, that of which it was `joined`. Errors: as of `search.plan.plan`.
    """
    whole = of.graph_at(request.global_batch_size)
    found = _best(of, merged_request(request, whole), progress)
    together = whole if found.pipeline is None else of.graph_at(request.global_batch_size // found.micro_batch_num)
    plan = split_period(found, together, request.limits)
    return plan if request.is_trial else as_priced(plan, separated(together), request)


@no_garbage_collection()
def planned(graph: Graph, request: Request, progress: Callable[[str], None] = lambda _: None) -> Plan:
    """The fastest plan of one stage and one batch that `request` asks for. Errors: as of `search.plan.plan`."""
    require_operators(graph, request.rules)
    require_devices(request.cluster, request.device_num)
    if request.global_batch_size < 1:
        raise InputError(f"global_batch_size is {request.global_batch_size}: give a positive number of samples")
    own, together = request, merge_period(graph)
    request = merged_request(own, together)
    require_possible(together, request, whole="it has the batch it was built with")
    of = network_as_it_is(graph, request.global_batch_size)
    plan = split_period(_cases(of, request, progress), together, own.limits)
    return plan if request.is_trial else as_priced(plan, graph, own)


def _best(of: Network, request: Request, progress: Callable[[str], None]) -> Plan:
    """`best_plan` for the blocks of `of`."""
    graph = of.graph_at(request.global_batch_size)
    require_operators(graph, request.rules)
    require_devices(request.cluster, request.device_num)
    require_possible(graph, request, 1 if of.batch is None else request.global_batch_size // of.batch)
    undivided, why_not = why_whole(graph), of.why_one_stage(request.global_batch_size)
    if undivided:
        of = network_as_it_is(graph, request.global_batch_size)
    found = _cases(of, request, progress)
    if not why_not and not undivided:
        return found
    remark = f"one stage, the batch as a whole: {undivided}" if undivided else f"one stage: {why_not}"
    return _remarked(found, remark)


def _cases(of: Network, request: Request, progress: Callable[[str], None]) -> Plan:
    """The best plan of all cases of the request's limits."""
    every, remark = remaining(of.graph_at(request.global_batch_size), request)
    if remark and (limits := str(request.limits)):
        request = replace(request, limits=replace(request.limits, question=f"{limits} ({remark})"))
    progress("step layouts")
    found = best_case(request, every, lambda case, incumbent_s: _searched(of, case, incumbent_s, progress))
    return _remarked(found, remark) if remark else found


def _remarked(found: Plan, remark: str) -> Plan:
    """`found`, whose report ends in `remark`."""
    return replace(found, search=replace(found.search, method=f"{found.search.method}; {remark}"))


def _searched(of: Network, request: Request, incumbent_s: float, progress: Callable[[str], None]) -> Searched:
    found = searched(of, request, incumbent_s, fit_of(request), promised_in_part(of, request))
    if found.whole is None and math.isinf(incumbent_s):
        found = fitted(of, request, found)
    if request.certified_gap is not None:
        found = with_certificate(of, request, found, incumbent_s, progress)
    best = None if found.whole is None else plan_of(of, request, found.whole, found)
    return Searched(best, found.bound_s, found.candidates, lambda: _infeasible(of, request, found))


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


_AS_WHAT_IT_READS = ("Cast", "Reshape", "StopGradient")
"""Operators that are laid out as what they read is."""


def _odd_groups(device_num: int) -> str:
    """What else a number of devices that is no power of two asks for."""
    if device_num & (device_num - 1) == 0:
        return ""
    return f"; of {device_num} devices MindSpore forms no group of 3, 5, 6 or 7 inside a server of 8"


def _infeasible(of: Network, request: Request, found: Found) -> InfeasibleError:
    """What is missing: of the plan that needs least, where and how much."""
    if request.is_trial:
        return InfeasibleError(nothing_fits(request))
    if not found.step_layouts:
        graph = of.graph_at(request.global_batch_size)
        if why := why_none(graph, request):
            return InfeasibleError(f"there is no plan for {request.space}: {why}")
        return InfeasibleError(
            f"there is no plan for {request.space}: in none of {len(found.space)} step layouts (stages, micro-batches, mesh) do"
            f" layouts of all operators go together{_odd_groups(request.device_num)}"
        )
    least = found.least
    if least is None and found.screening is not None:
        least = least_plan(of, request, known_of_all(found.screening))
    if least is not None:
        return does_not_fit(request, obstacle_of(of, request, least))
    return InfeasibleError(f"{nothing_fits(request)}, over {found.step_layouts} step layouts")
