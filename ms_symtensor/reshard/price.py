"""The seconds of transfers by the cluster's formulas, the same that price a step's collectives."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ms_symtensor.cluster.collective_time import collective_time
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.move import message_s
from ms_symtensor.reshard.transfers import Gathering, Transfer, Transfers, Way, level_of


def ways_of(found: Transfers, cell_B: float, cluster: Cluster) -> dict[Way, float]:
    """The ways that a unit, with cells of `cell_B` bytes, can take, the simpler first, and the seconds of each."""
    if not found.sends:
        return {Way.SLICE if found.is_cut else Way.IN_PLACE: 0.0}
    ways = {Way.ALL_GATHER: gather_s(found.gatherings, cell_B, cluster)} if found.gatherings else {}
    ways[Way.ALL_TO_ALL] = exchange_s(found.sends, cell_B, cluster)
    ways[Way.SEND] = sends_s(found.sends, cell_B, cluster)
    return ways


def gather_s(gatherings: Sequence[Gathering], cell_B: float, cluster: Cluster) -> float:
    """All-gathers beside each other: the longest."""
    return max(message_s(cluster, "AllGather", one.ranks, one.cells * cell_B) for one in gatherings)


def sends_s(sends: Sequence[Transfer], cell_B: float, cluster: Cluster) -> float:
    """Messages of pairs; each device sends, and receives, one after the other."""
    first, second, sizes = _columns(sends, cell_B)
    levels = level_of(cluster, first, second)
    time = np.zeros(len(sends))
    for level in np.unique(levels).tolist():
        here = np.flatnonzero(levels == level)
        pair = tuple(sorted((int(first[here[0]]), int(second[here[0]]))))
        time[here] = collective_time(cluster, "Send", pair).array_s(sizes[here]) + cluster.device.collective_s
    devices = int(max(first.max(), second.max())) + 1
    return float(max(np.bincount(end, time, devices).max() for end in (first, second)))


def exchange_s(sends: Sequence[Transfer], cell_B: float, cluster: Cluster) -> float:
    """One AlltoAll for every set of devices that exchange, priced as if all sent as much as the busiest does."""
    first, second, sizes = _columns(sends, cell_B)
    devices = int(max(first.max(), second.max())) + 1
    busiest = np.maximum(np.bincount(first, sizes, devices), np.bincount(second, sizes, devices))
    joined = connected_components(coo_array((sizes, (first, second)), (devices, devices)), directed=False)[1]
    longest = 0.0
    for group in np.unique(joined[first]).tolist():
        ranks = np.flatnonzero(joined == group)
        input_B = float(busiest[ranks].max()) * len(ranks) / (len(ranks) - 1)  # a rank keeps its own part
        longest = max(longest, message_s(cluster, "AlltoAll", tuple(ranks.tolist()), input_B))
    return longest


def _columns(
    sends: Sequence[Transfer], cell_B: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    return (
        np.array([one.source for one in sends]),
        np.array([one.target for one in sends]),
        np.array([len(one.cells) * cell_B for one in sends], dtype=float),
    )
