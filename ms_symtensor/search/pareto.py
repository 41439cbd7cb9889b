"""The front of time against memory: faster plans need more, smaller ones take longer."""

from collections.abc import Callable, Iterator

from ms_symtensor.errors import InfeasibleError
from ms_symtensor.strategy.plan import Plan

SHRINK = 0.85
"""Every plan of the front has this share of the peak before it, or less."""

MAX_POINTS = 10


def front(fastest: Plan, plan_within: Callable[[int], Plan]) -> Iterator[Plan]:
    """`fastest`, then the fastest plans within less and less memory, until none fits.

    `plan_within(limit_B)` is the fastest plan within so many bytes of a device. None of the plans is both slower and larger
    than another.
    """
    yield fastest
    peak_B = fastest.prediction.peak_memory_B
    for _ in range(MAX_POINTS - 1):
        try:
            found = plan_within(int(SHRINK * peak_B))
        except InfeasibleError:
            return
        peak_B = found.prediction.peak_memory_B
        yield found
