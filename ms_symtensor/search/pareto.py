"""The front of time against memory: faster plans need more, smaller ones take longer."""

from collections.abc import Callable

from ms_symtensor.errors import InfeasibleError
from ms_symtensor.strategy.plan import Plan

SHRINK = 0.85
"""Every plan of the front has this share of the peak before it, or less."""

MAX_POINTS = 10


def front(fastest: Plan, plan_within: Callable[[int], Plan]) -> list[Plan]:
    """`fastest`, then the fastest plans within less and less memory, until none fits.

    `plan_within(limit_B)` is the fastest plan within so many bytes of a device. None of the plans is both slower and larger
    than another: searches may leave a gap, and one within less memory may find what is faster; it takes the others' place.
    """
    found = [fastest]
    peak_B = fastest.prediction.peak_memory_B
    for _ in range(MAX_POINTS - 1):
        try:
            smaller = plan_within(int(SHRINK * peak_B))
        except InfeasibleError:
            break
        peak_B = smaller.prediction.peak_memory_B
        while found and found[-1].prediction.step_time_s >= smaller.prediction.step_time_s:
            found.pop()
        found.append(smaller)
    return found
