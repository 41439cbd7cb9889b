"""Floating-point operations that a model needs, and the shares of the peak that a step makes of them."""

import math
from collections.abc import Mapping
from types import MappingProxyType

from ms_symtensor.ops.signature import Unit
from ms_symtensor.program.meanings import Meanings
from ms_symtensor.tensor.graph import Graph, OpOutput, ParameterRef

BACKWARD = 2
"""A backward pass has two products for each one of the forward pass (arXiv 2204.02311, appendix B)."""


def model_flops(graph: Graph, known: Meanings, times: Mapping[str, int] = MappingProxyType({})) -> float:
    """FLOPs of one pass of `graph` forward and backward: products and attention (all of the scores, whatever is masked), nothing
    that is recomputed. A product with a weight that does not train has one product in the backward pass.

    Args:
        known: what the operators of `graph` mean.
        times: how many equal blocks some of the blocks stand for.

    Returns:
        FLOPs of all devices together.
    """
    found = 0.0
    frozen = _of_frozen_weights(graph)
    for op in graph.ops:
        sig = known[op.name][1]
        if sig.unit is Unit.CUBE:
            whole = 2.0 if sig.rising else 1.0  # a causal mask leaves out half of the scores
            passes = BACKWARD if op.name in frozen else 1 + BACKWARD
            found += (
                times.get(op.block or "", 1)
                * passes
                * whole
                * sig.flops_per_point
                * math.prod(sig.sizes[dim] for dim in sig.mesh)
            )
    return found


def _of_frozen_weights(graph: Graph) -> set[str]:
    """The operators that read a weight that does not train, maybe through a Cast."""
    found, casts = set[str](), set[str]()
    for op in graph.ops:
        if any(
            _is_frozen(graph, source) or (isinstance(source, OpOutput) and source.op in casts) for source in op.inputs
        ):
            found.add(op.name)
            casts |= {op.name} if op.type == "Cast" else set()
    return found


def _is_frozen(graph: Graph, source: object) -> bool:
    return isinstance(source, ParameterRef) and not graph.parameter_by_name[source.name].requires_grad


def mfu(flops: float, step_time_s: float, device_num: int, peak_FLOPs: float) -> float:
    """Model FLOPs utilisation: `flops` of a step over what `device_num` devices could do meanwhile."""
    return flops / (step_time_s * device_num * peak_FLOPs)
