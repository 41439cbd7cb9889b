"""The best plan of a network that exists as it is, on as many pipeline stages and micro-batches as its user chose."""

from dataclasses import replace

from ms_symtensor.errors import InputError
from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.best import best_plan
from ms_symtensor.search.stages.network import network_as_it_is
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph


def fixed_pipeline(graph: Graph, request: Request, stages: int, micro_batch_num: int) -> Plan:
    """The fastest plan with so many stages and micro-batches; `graph` is the network of one micro-batch.

    A stage has one run of blocks. Errors: InputError for stages that neither the devices nor the blocks allow, or other ones than
    the request is limited to; further ones as of `best_plan`.
    """
    of = network_as_it_is(graph, request.global_batch_size // micro_batch_num)
    blocks, alike = len(of.graph_at(request.global_batch_size).blocks), sum(of.depths[1:-1])
    if request.device_num % stages or not 1 <= stages <= min(micro_batch_num, blocks):
        raise InputError(
            f"{stages} pipeline stages for {request.device_num} devices, {blocks} repeated blocks and"
            f" {micro_batch_num} micro-batches: stages must divide the devices, and be no more than blocks and micro-batches"
        )
    if blocks != alike:
        raise InputError(
            f"{graph.name} has {blocks - alike} blocks like no others, none of which repeats or which stand between equal"
            " ones: such networks are planned on one stage, their batch as a whole"
        )
    built = {"pipeline_stages": stages, "micro_batch_num": micro_batch_num, "pp_interleave_num": 1}
    for name, number in built.items():
        if not request.limits.allows(name, number):
            raise InputError(
                f"{name} = {number} is how {graph.name} is built and run: leave {name} out, or build it otherwise"
            )
    limits = request.limits
    pinned = replace(limits, least={**limits.least, **built}, most={**limits.most, **built})
    found = best_plan(of, replace(request, limits=pinned))
    return replace(found, fixed=limits.fixed, at_most=limits.at_most)
