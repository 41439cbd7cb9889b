"""The best plan of a network that exists as it is, on as many pipeline stages and micro-batches as its user chose."""

import math
import time
from dataclasses import replace

import numpy as np

from ms_symtensor.errors import InfeasibleError, InputError
from ms_symtensor.garbage_collection import no_garbage_collection
from ms_symtensor.program.one_stage import why_no_accumulation, why_one_stage
from ms_symtensor.search.asked.limits import FREE
from ms_symtensor.search.asked.obstacle import does_not_fit, nothing_fits
from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.closest import least_plan, of_stages
from ms_symtensor.search.folded.folding import fold, shorten
from ms_symtensor.search.folded.places import places
from ms_symtensor.search.one_stage.solve import settings_of
from ms_symtensor.search.pipelined import Pipelined, plan_of
from ms_symtensor.search.plan import require_devices
from ms_symtensor.search.space.cases import Searched, best_case
from ms_symtensor.search.space.domain import meshes
from ms_symtensor.search.space.family import Single
from ms_symtensor.search.space.pinnable import require_pinnable
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.network import Network
from ms_symtensor.search.stages.rows import Row, Setting, combines
from ms_symtensor.search.stages.whole import Whole, settled
from ms_symtensor.search.tables.parameters import stage_terms
from ms_symtensor.search.tables.problem import problem_of_family
from ms_symtensor.search.tables.tables import Tables
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph


@no_garbage_collection()
def fixed_pipeline(graph: Graph, request: Request, stages: int, micro_batch_num: int) -> Plan:
    """The fastest plan with so many stages and micro-batches; `graph` is the network of one micro-batch.

    Errors: InputError for stages that neither the devices nor the blocks allow; InfeasibleError where nothing fits.
    """
    start = time.perf_counter()
    folded = fold(graph)
    depths = places(graph, folded).depths
    network = Network(lambda _: graph, lambda _, count: shorten(graph, folded, count), depths, folded.class_of)
    if request.device_num % stages or not 1 <= stages <= min(micro_batch_num, sum(depths[1:-1])):
        raise InputError(
            f"{stages} pipeline stages for {request.device_num} devices, {sum(depths[1:-1])} repeated blocks and"
            f" {micro_batch_num} micro-batches: stages must divide the devices, and be no more than blocks and micro-batches"
        )
    if not request.limits.allows("pp_interleave_num", 1):
        raise InputError(
            "a network that exists as it is is planned with one run of blocks per stage: leave pp_interleave_num out"
        )
    if stages > 1 and (why_not := why_one_stage(graph)):
        raise InputError(f"{graph.name} cannot be laid out over pipeline stages: {why_not}")
    if stages == 1 and (why_not := why_no_accumulation(graph)):
        raise InputError(f"{graph.name} cannot be split into micro-batches on one stage: {why_not}")
    require_devices(request.cluster, request.device_num // stages)
    if request.limits != FREE:
        require_pinnable(graph, replace(request, device_num=request.device_num // stages))
    shape = Shape(stages, micro_batch_num, (), request.global_batch_size // micro_batch_num)

    def searched(case: Request, known_s: float) -> Searched:
        return _searched(network, case, shape, known_s, start)

    return best_case(request, request.device_num // stages, searched)


def _searched(network: Network, request: Request, of: Shape, known_s: float, start: float) -> Searched:
    """The best plan on all meshes of shape `of`."""
    best: Whole | None = None
    every, bound_s, candidates = list[Row](), math.inf, 0
    for mesh in meshes(request.device_num // of.stages):
        rows, priced = _rows(network, request, replace(of, mesh=mesh))
        bound_s = min([bound_s, *(row.bound_s for row in rows)])
        every, candidates = every + rows, candidates + priced
        found = settled(network, rows, request.limit_B, request.rules)
        if found is not None and (best is None or found.estimate.step_time_s < best.estimate.step_time_s):
            best = found

    def why() -> InfeasibleError:
        least = least_plan(network, request, every)
        if least is None:
            return InfeasibleError(nothing_fits(request))
        return does_not_fit(request, of_stages(network, request, least))

    if best is None or best.estimate.step_time_s >= known_s:
        return Searched(None, bound_s, candidates, why)
    pipelined = Pipelined(best, bound_s, candidates, (), {})
    plan = plan_of(network, request, best, pipelined, time.perf_counter() - start)
    return Searched(plan, bound_s, candidates, why)


def _rows(network: Network, request: Request, shape: Shape) -> tuple[list[Row], int]:
    """The layouts that are best for `shape` where memory is free, and where it is dear; and how many were priced."""
    of = problem_of_family(
        network.short(shape.batch), request.cluster, Single(shape.mesh), request.rules, limits=request.limits
    )
    found, alone = list[Row](), np.zeros(1, dtype=np.intp)
    every = settings_of(of.settings, True, request.limits, shape.stages > 1)  # no level3 on stages either
    possible = [one for one in every if combines(shape, one.optimizer_level, request.limits)]
    if not possible:
        raise InputError(
            "optimizer_level = 2: MindSpore does not combine it with gradients that add up on one stage; level 1 it does"
        )
    for settings in possible:
        tables = Tables(of, stage_terms(of.known, of.parameters, settings, [True]))
        setting = Setting(of, (shape,), alone, network.depths, settings.optimizer_level, tables, alone, np.zeros(1))
        found += setting.slim(setting.fastest(), request.limit_B)[0]
    return found, of.candidates
