"""Seconds that no step is faster than, however its blocks are divided into stages."""

import math
from collections.abc import Sequence

from ms_symtensor.search.space.step_layouts import StepLayout
from ms_symtensor.search.tables.terms import Costs


def least_step_s(shape: StepLayout, occurrences: Sequence[int], costs: Costs) -> float:
    """Seconds that no step is faster than whose places cost so much, but for what is sent between runs of a stage.

    The first stage holds a block for each of its runs beside what stands before them, the last one beside what stands after them,
    the fullest one its share of the blocks, rounded up, and the slowest one its share of all. The first one hides nothing of what
    it does once per step.
    """
    each, once, stages = costs.each_s.tolist(), costs.once_s.tolist(), shape.stages
    total_s = _of_all(occurrences, each)
    slowest_s, ending_s = [total_s / stages], once[0] + once[1]
    if stages > 1:
        blocks = occurrences[1:-1]
        fullest = -(-sum(blocks) // stages)
        quickest_block_s = min(s for n, s in zip(blocks, each[1:-1], strict=True) if n)
        others_s = (shape.interleave - 1) * quickest_block_s
        slowest_s += [each[0] + each[1] + others_s, each[-2] + each[-1] + others_s, fullest * quickest_block_s]
    held_s = shape.schedule.of_slowest_s(max(slowest_s), total_s, ending_s)
    return max(held_s, total_s / shape.interleave + _wherever_s(shape, occurrences, each, once))


def _wherever_s(shape: StepLayout, occurrences: Sequence[int], each: Sequence[float], once: Sequence[float]) -> float:
    """Seconds that the slowest stage and the end of a step take at least together, wherever blocks lie.

    The slowest stage takes no less than any weighted mean. With weights w on the first stage and w' on all later ones, a block
    counts w t + once there and w' t elsewhere, of which it takes the smaller: weights at which an average block counts the same.
    """
    slowest, stages = shape.schedule.slowest, shape.stages
    if stages == 1:
        return slowest * _of_all(occurrences, each) + _of_all(occurrences, once)
    blocks = [(n, t, e) for n, t, e in zip(occurrences[1:-1], each[1:-1], once[1:-1], strict=True) if n]
    block_s = slowest * math.fsum(n * t for n, t, _ in blocks)
    more = min(math.fsum(n * e for n, _, e in blocks) / block_s if block_s else 0.0, 1 / (stages - 1))
    first, later = slowest * (1 - more * (stages - 1)) / stages, slowest * (1 + more) / stages
    ends = [(occurrences[0], first * each[0] + once[0]), (occurrences[-1], later * each[-1])]
    counted = ends + [(n, min(first * t + e, later * t)) for n, t, e in blocks]
    return math.fsum(n * s for n, s in counted if n)


def hidden_ends_s(shape: StepLayout, occurrences: Sequence[int], costs: Costs) -> float:
    """What the tables' sum counts at most too much of what stages do once per step, each an equal share: that of later ones runs
    while they wait.
    """
    if shape.stages == 1:
        return 0.0
    each, once = costs.each_s.tolist(), costs.once_s.tolist()
    pace_s = shape.schedule.slowest * _of_all(occurrences, each) / shape.stages
    least_s: float = max(pace_s + once[0] + once[1], _wherever_s(shape, occurrences, each, once))
    return max(0.0, pace_s + _of_all(occurrences, once) / shape.stages - least_s)


def _of_all(occurrences: Sequence[int], seconds: Sequence[float]) -> float:
    """Of all places together; one that the network does not have has no seconds."""
    return math.fsum(n * s for n, s in zip(occurrences, seconds, strict=True) if n)
