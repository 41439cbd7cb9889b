"""The best plan of a network that exists as it is, on as many pipeline stages and micro-batches as its user chose."""

from dataclasses import replace

from ms_symtensor.errors import InputError
from ms_symtensor.search.best import best_plan
from ms_symtensor.search.constraints.limits import Limits
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.stages.network import network_as_it_is
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph


def fixed_pipeline(graph: Graph, request: Request, stages: int, micro_batch_num: int) -> Plan:
    """The fastest plan with so many stages and micro-batches; `graph` is the network of one micro-batch.

    A stage has one model chunk. Errors: InputError for stages that neither the devices nor the blocks allow, or other ones than
    the request is limited to; further ones as of `best_plan`.
    """
    of = network_as_it_is(graph, request.global_batch_size // micro_batch_num)
    blocks, alike = len(of.graph_at(request.global_batch_size).blocks), sum(of.depths[1:-1])
    if blocks != alike:
        raise InputError(
            f"{graph.name} has {blocks - alike} blocks like no others, none of which repeats or which stand between equal"
            " ones: such networks are planned on one stage, their batch as a whole"
        )
    pinned = as_built(request.limits, graph.name, stages, micro_batch_num)
    found = best_plan(of, replace(request, limits=pinned))
    return replace(found, fixed=request.limits.fixed, at_most=request.limits.at_most)


def as_built(limits: Limits, name: str, stages: int, micro_batch_num: int) -> Limits:
    """`limits` and so many stages and micro-batches, as the network `name` is built; InputError where they want others."""
    built = {"pipeline_stages": stages, "micro_batch_num": micro_batch_num, "pp_interleave_num": 1}
    for pin, number in built.items():
        if not limits.allows(pin, number):
            raise InputError(f"{pin} = {number} is how {name} is built and run: leave {pin} out, or build it otherwise")
    return replace(limits, least={**limits.least, **built}, most={**limits.most, **built})
