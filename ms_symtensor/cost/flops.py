"""Floating-point operations that a model needs, and the shares of the peak that a step makes of them."""

import math
from collections.abc import Mapping
from types import MappingProxyType

from ms_symtensor.ops.signature import Unit
from ms_symtensor.program.meanings import Meanings
from ms_symtensor.tensor.graph import Graph

BACKWARD = 2
"""A backward pass has two products for each one of the forward pass (arXiv 2204.02311, appendix B)."""


def model_flops(graph: Graph, known: Meanings, times: Mapping[str, int] = MappingProxyType({})) -> float:
    """FLOPs of one pass of `graph` forward and backward: products and attention (all of the scores, whatever is masked), nothing
    that is recomputed.

    Args:
        known: what the operators of `graph` mean.
        times: how many equal blocks some of the blocks stand for.

    Returns:
        FLOPs of all devices together.
    """
    found = 0.0
    for op in graph.ops:
        sig = known[op.name][1]
        if sig.unit is Unit.CUBE:
            whole = 2.0 if sig.rising else 1.0  # a causal mask leaves out half of the scores
            found += (
                times.get(op.block or "", 1)
                * whole
                * sig.flops_per_point
                * math.prod(sig.sizes[dim] for dim in sig.mesh)
            )
    return (1 + BACKWARD) * found


def mfu(flops: float, step_time_s: float, device_num: int, peak_FLOPs: float) -> float:
    """Model FLOPs utilisation: `flops` of a step over what `device_num` devices could do meanwhile."""
    return flops / (step_time_s * device_num * peak_FLOPs)
