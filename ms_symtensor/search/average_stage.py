"""How often every place of a network counts on an average stage of a pipeline: the weights of the search's tables."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.program.pipeline import in_flight
from ms_symtensor.search.shapes import Shape
from ms_symtensor.search.terms import Weights

Array = NDArray[np.float64]


def average_weights(depths: tuple[int, ...], members: Sequence[Shape], block_s: Array, known_s: float) -> Weights:
    """How often every place counts on an average stage.

    Early stages keep more micro-batches. In a step of `known_s` no stage has more blocks than known_s / (M block_s), so that
    the least is kept where the last stages are as full as that; and a recomputed block saves no more than on the first.
    """
    depth = np.array(depths, dtype=float)[:, None]
    stages = np.array([m.stages for m in members], dtype=float)
    number = np.array([m.micro_batch_num for m in members], dtype=float)
    layers = sum(depths[1:-1])
    kept, saved = np.ones(len(members)), np.ones(len(members))
    for i, shape in enumerate(members):
        flights = [in_flight(s, shape.stages, shape.micro_batch_num) for s in range(shape.stages)]
        most, left, total = float(layers), float(layers), 0.0
        if math.isfinite(known_s) and block_s[i] > 0:
            most = max(known_s / (shape.micro_batch_num * block_s[i]), layers / shape.stages)
        for flight in reversed(flights):
            here = min(left, most)
            total, left = total + flight * here, left - here
        kept[i], saved[i] = total / max(layers, 1), flights[0]
    each = depth * (number + stages - 1) / stages
    inside = np.ones((len(depths), 1))
    inside[[0, -1]] = 0.0
    kept_B = depth * np.where(inside > 0, kept, 1.0) / stages
    return Weights(each, depth / stages, kept_B, inside * depth * saved / stages, depth / stages)


def pace_weights(depths: tuple[int, ...], members: Sequence[Shape], each_s: Array) -> tuple[Weights, Weights]:
    """How often every place counts in a step whose pace is that of the last stage, and of a stage of blocks alone.

    A last stage with l blocks or more takes t_last + l t_block at least; if it has fewer, one of the others has
    ⌈(L - l + 1) / (P - 1)⌉ blocks. So no step is faster than the faster of these two; l is chosen where they are closest.
    """
    layers = depths[1]
    each, ends = np.ones((2, 3, len(members)))
    once = np.array(depths, dtype=float)[:, None] / np.array([m.stages for m in members])
    for i, shape in enumerate(members):
        block_s, last_s = each_s[1, i], each_s[2, i]
        more, others = shape.micro_batch_num - 1, max(shape.stages - 1, 1)

        def slower(last: int, block_s: float = block_s, last_s: float = last_s, others: int = others) -> float:
            return min(last_s + last * block_s, -(-(layers - last + 1) // others) * block_s)

        best = max(range(1, layers + 1), key=slower) if shape.stages > 1 else layers
        each[:, i] = 1, layers + more * best, 1 + more
        fullest = -(-(layers - best + 1) // others) if shape.stages > 1 else layers
        ends[:, i] = 1, layers + more * fullest, 1
    nothing = np.zeros_like(once)
    none = (nothing, nothing, nothing)
    return Weights(each, once, *none), Weights(ends, once, *none)
