"""How often every place of a network counts on an average stage of a pipeline: the weights of the search's tables."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.tables.terms import Weights

Array = NDArray[np.float64]


def average_weights(occurrences: tuple[int, ...], members: Sequence[Shape], block_s: Array, known_s: float) -> Weights:
    """How often every place counts on an average stage; the network has it so often as `occurrences` says.

    Early stages keep more micro-batches. In a step of `known_s` no stage has more blocks than known_s / (M block_s), so that
    the least is kept where the last stages are as full as that; and a recomputed block saves no more than on the first.
    """
    depth = np.array(occurrences, dtype=float)[:, None]
    stages = np.array([m.stages for m in members], dtype=float)
    number = np.array([m.micro_batch_num for m in members], dtype=float)
    layers = sum(occurrences[1:-1])
    kept, saved = np.ones(len(members)), np.ones(len(members))
    for i, shape in enumerate(members):
        flights = [shape.in_flight(s) for s in range(shape.stages)]
        most, left, total = float(layers), float(layers), 0.0
        if math.isfinite(known_s) and block_s[i] > 0:
            most = max(known_s / (shape.micro_batch_num * block_s[i]), layers / shape.stages)
        for flight in reversed(flights):
            here = min(left, most)
            total, left = total + flight * here, left - here
        kept[i], saved[i] = total / max(layers, 1), flights[0]
    runs = np.array([m.interleave for m in members], dtype=float)
    each = depth * (number + (stages - 1) / runs) / stages
    inside = np.ones((len(occurrences), 1))
    inside[[0, -1]] = 0.0
    kept_B = depth * np.where(inside > 0, kept, 1.0) / stages
    return Weights(each, each, depth / stages, kept_B, inside * depth * saved / stages, depth / stages)
