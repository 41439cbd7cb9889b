"""The best plan of a network that exists as it is, on as many pipeline stages and micro-batches as its user chose."""

import math
import time

import numpy as np

from ms_symtensor.errors import InfeasibleError, InputError
from ms_symtensor.search.domain import meshes
from ms_symtensor.search.family import Single
from ms_symtensor.search.folding import fold, shorten
from ms_symtensor.search.network import Network
from ms_symtensor.search.parameters import stage_terms
from ms_symtensor.search.pipelined import Pipelined, plan_of
from ms_symtensor.search.places import places
from ms_symtensor.search.plan import GIB, no_garbage_collection, require_devices
from ms_symtensor.search.problem import problem_of_family
from ms_symtensor.search.request import Request, best_case
from ms_symtensor.search.rows import Row, Setting
from ms_symtensor.search.shapes import Shape
from ms_symtensor.search.solve import settings_of
from ms_symtensor.search.whole import Whole, settled
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph


@no_garbage_collection()
def fixed_pipeline(graph: Graph, request: Request, stages: int, micro_batch_num: int) -> Plan:
    """The fastest plan with so many stages and micro-batches; `graph` is the network of one micro-batch.

    Errors: InputError for stages that neither the devices nor the blocks allow; InfeasibleError where nothing fits.
    """

    def of_case(case: Request) -> Plan:
        return _fixed_pipeline(graph, case, stages, micro_batch_num)

    return best_case(request, max(1, request.device_num // stages), of_case)


def _fixed_pipeline(graph: Graph, request: Request, stages: int, micro_batch_num: int) -> Plan:
    start = time.perf_counter()
    folded = fold(graph)
    depths = places(graph, folded).depths
    network = Network(lambda _: graph, lambda _, count: shorten(graph, folded, count), depths)
    if request.device_num % stages or not 2 <= stages <= min(micro_batch_num, sum(depths[1:-1])):
        raise InputError(
            f"{stages} pipeline stages for {request.device_num} devices, {sum(depths[1:-1])} repeated blocks and"
            f" {micro_batch_num} micro-batches: stages must divide the devices, and be no more than blocks and micro-batches"
        )
    require_devices(request.cluster, request.device_num // stages)
    batch = request.global_batch_size // micro_batch_num
    best: Whole | None = None
    bound_s, candidates = math.inf, 0
    for mesh in meshes(request.device_num // stages):
        rows, priced = _rows(network, request, Shape(stages, micro_batch_num, mesh, batch))
        bound_s = min([bound_s, *(row.bound_s for row in rows)])
        candidates += priced
        found = settled(network, rows, request.limit_B, request.rules)
        if found is not None and (best is None or found.estimate.step_time_s < best.estimate.step_time_s):
            best = found
    if best is None:
        raise InfeasibleError(
            f"nothing found that fits {request.limit_B / GIB:.1f} GiB on {request.space} in {stages} pipeline"
            f" stages and {micro_batch_num} micro-batches: use more devices, more micro-batches, or a smaller batch"
        )
    searched = Pipelined(None, bound_s, candidates, (), {})
    return plan_of(network, request, best, searched, time.perf_counter() - start)


def _rows(network: Network, request: Request, shape: Shape) -> tuple[list[Row], int]:
    """The layouts that are best for `shape` where memory is free, and where it is dear; and how many were priced."""
    of = problem_of_family(
        network.short(shape.batch), request.cluster, Single(shape.mesh), request.rules, limits=request.limits
    )
    found: list[Row] = []
    for settings in settings_of(of.settings, True, request.limits):  # level3 is not combined with stages either
        terms = stage_terms(of.known, of.parameters, settings, [True])
        setting = Setting(of, (shape,), network.depths, settings.optimizer_level, terms, np.zeros(1, dtype=np.intp))
        found += setting.slim(setting.fastest(), request.limit_B, math.inf)
    return found, of.candidates
