"""Flows that share an uplink by chance: routers choose the uplink of a flow by a hash (ECMP).

An estimate: F flows of one collective under way at once, each on one of U uplinks with the same chance. A flow shares its uplink
with chance 1 - (1 - 1/U)^(F-1). The fullest uplink is taken to have the most flows k for which U P(Bin(F, 1/U) >= k) is 1/2
or more; beside an even share max(1, F/U) it is so many times as slow.
"""

from dataclasses import dataclass
from math import ceil

from scipy.stats import binom

from ms_symtensor.traffic.exchanged import Sort, Traffic
from ms_symtensor.traffic.fabric import Leaves


@dataclass(frozen=True)
class Collisions:
    """Flows of one sort that leave a leaf, and what chance does with them on its uplinks."""

    sort: Sort
    leaf: int
    flows: int
    uplinks: int
    sharing: float
    fullest: int
    slowdown: float


def collisions(of: Traffic, leaves: Leaves, leaf_of: tuple[int, ...], node_size: int) -> tuple[Collisions, ...]:
    """For every sort of exchange, on the leaf that most of its flows leave; the slowest first."""
    found = []
    for sort, pairs in of.pairs.items():
        counts: dict[int, int] = {}
        for source, target in pairs:
            leaf = leaf_of[source // node_size]
            if leaf != leaf_of[target // node_size]:
                counts[leaf] = counts.get(leaf, 0) + 1
        if counts:
            leaf = max(counts, key=lambda one: (counts[one], -one))
            found.append(_of(sort, leaf, counts[leaf], leaves.uplinks))
    return tuple(sorted(found, key=lambda one: (-one.slowdown, one.sort)))


def _of(sort: Sort, leaf: int, flows: int, uplinks: int) -> Collisions:
    sharing = 1 - (1 - 1 / uplinks) ** (flows - 1)
    fullest = ceil(flows / uplinks)
    while fullest < flows and uplinks * float(binom.sf(fullest, flows, 1 / uplinks)) >= 0.5:
        fullest += 1
    return Collisions(sort, leaf, flows, uplinks, sharing, fullest, fullest / max(1.0, flows / uplinks))
