"""How often every place of a network counts on an average stage of a pipeline: the weights of the search's tables."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.space.step_layouts import StepLayout
from ms_symtensor.search.tables.terms import Weights

Array = NDArray[np.float64]


def average_weights(occurrences: tuple[int, ...], members: Sequence[StepLayout]) -> Weights:
    """How often every place counts on an average stage; the network has it so often as `occurrences` says.

    Early stages keep more micro-batches: no less is kept than with all blocks on the last one. Nor is more saved: n micro-batches
    that wait in a block need n (kept - saved), which is least where n is, since no block saves more than it keeps. The runs of
    the last stage keep what they do, and save no more than if in each as many waited as in the one with the most.
    """
    depth = np.array(occurrences, dtype=float)[:, None]
    stages, number, runs = np.array([(m.stages, m.micro_batch_num, m.interleave) for m in members], dtype=float).T
    kept, saved = np.array([(_least(m), max(m.in_flight(m.stages - 1).runs)) for m in members], dtype=float).T
    each = depth * (number + (stages - 1) / runs) / stages
    inside = np.ones((len(occurrences), 1))
    inside[[0, -1]] = 0.0
    kept_B = depth * np.where(inside > 0, kept, 1.0) / stages
    return Weights(each, each, depth / stages, kept_B, inside * depth * saved / stages, depth / stages)


def _least(shape: StepLayout) -> float:
    """Micro-batches that a block on the last stage keeps at least on average: of unequal runs the last ones are longer."""
    last, runs = shape.in_flight(shape.stages - 1), shape.interleave
    return min(sum(last.of_blocks(n)) / n for n in range(runs, 2 * runs))
