"""On which device each rank of the second plan runs, so that most of what it needs is there already.

Ranks that share a domain of a topology level (a node) stay together: the second plan's groups keep their prices. Of all such
assignments the one that keeps most bytes: solved domain by domain, from the innermost level out, as a linear assignment.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.reshard.units import UnitClass

_STAYS_B = 0.5
"""Worth of a rank's own device: less than a byte, so that it decides between equals alone."""


def kept_B(classes: Sequence[UnitClass], devices: int) -> NDArray[np.float64]:
    """The bytes that rank r need not receive on device d: an array [ranks of the second side, devices]."""
    ranks = len(classes[0].needed)
    found = np.zeros((ranks, devices))
    for one in classes:
        held = one.held[:devices]
        together = one.needed.astype(np.float32) @ held.astype(np.float32).T
        found[:, : len(held)] += together * float(one.moved_B * one.count)
    return found


def aligned(kept: NDArray[np.float64], cluster: Cluster) -> NDArray[np.int64]:
    """The device of every rank. `kept`: what a rank finds on a device, in bytes."""
    worth = kept.copy()
    own = np.arange(min(kept.shape))
    worth[own, own] += _STAYS_B
    sizes = [
        level.ranks for level in cluster.levels[:-1] if level.ranks is not None and 1 < level.ranks < max(kept.shape)
    ]
    return _assigned(worth, sizes)[1]


def _assigned(worth: NDArray[np.float64], sizes: Sequence[int]) -> tuple[float, NDArray[np.int64]]:
    """The best assignment and its worth; `sizes` are ranks of a domain of each inner level, rising."""
    ranks, devices = worth.shape
    if ranks > devices:
        return -np.inf, np.arange(0)
    if not sizes or sizes[-1] >= devices:
        if sizes:
            return _assigned(worth, sizes[:-1])
        rows, columns = linear_sum_assignment(worth, maximize=True)
        return float(worth[rows, columns].sum()), columns.astype(np.int64)
    size = sizes[-1]
    of_ranks = [range(start, min(start + size, ranks)) for start in range(0, ranks, size)]
    of_devices = [range(start, min(start + size, devices)) for start in range(0, devices, size)]
    inner = [[_assigned(worth[r.start : r.stop, d.start : d.stop], sizes[:-1]) for d in of_devices] for r in of_ranks]
    value = np.array([[found[0] for found in row] for row in inner])
    possible = np.isfinite(value)
    rows, columns = linear_sum_assignment(np.where(possible, value, -1e30), maximize=True)
    if not possible[rows, columns].all():
        return -np.inf, np.arange(0)
    found = [inner[r][c][1] + of_devices[c].start for r, c in zip(rows, columns, strict=True)]
    return float(value[rows, columns].sum()), np.concatenate(found)
