"""Where a network does not fit as its user has set it up: stages and micro-batches in which it would."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ms_symtensor.bridge.apply.pipeline_network import at_batch
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.errors import SymTensorError
from ms_symtensor.program.samples import where_samples_meet
from ms_symtensor.search.best import best_plan
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.stages.network import network
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.tensor.scaling import Scaling


def what_fits_in_micro_batches(cell: Any, inputs: Sequence[Any], graph: Graph, request: Request) -> str:
    """How to set up `cell`, whose whole batch is `graph`, so that it fits: the end of an error; empty where no way is found."""
    batch = request.global_batch_size
    other = next((batch // n for n in range(2, batch + 1) if batch % n == 0), None)
    if other is None:
        return ""
    limits = replace(request.limits, most={**request.limits.most, "pp_interleave_num": 1})
    try:
        scaling = Scaling(graph, batch, capture(cell, *at_batch(inputs, other)), other)
        if where_samples_meet(scaling.graph, scaling.other, request.rules):
            return ""
        found = best_plan(network(graph, lambda batch, _: scaling.at(batch)), replace(request, limits=limits))
    except SymTensorError:
        return ""
    if found.pipeline is None:
        return ""
    context = f"pipeline_stages={found.pipeline_stages} in the context and " if found.pipeline_stages > 1 else ""
    wrapper = f"nn.{found.pipeline.wrapper}(network, {found.micro_batch_num})"
    return f"; in micro-batches it fits: {context}{wrapper} around the forward network"
