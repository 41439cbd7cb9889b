"""The links of a cluster, and what passes over each in a step.

A pair of ranks uses the innermost level that holds both. In a mesh that is their own link, in a ring the links between them,
behind a switch the port of the one, upward, and of the other, downward. Ports of the outermost level may end in leaf switches:
pairs under different leaves also pass the uplinks of one leaf and the downlinks of the other, whose ports carry together

    B_leaf = ranks under a leaf * port / oversubscription.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cluster.topology import Cluster, LevelKind
from ms_symtensor.errors import InputError
from ms_symtensor.traffic.exchanged import Traffic

Link = tuple[str, str, int, int]
"""Level, what it is (link, up, down, uplinks, downlinks), and its two ends, or the rank or leaf twice."""


@dataclass(frozen=True)
class Leaves:
    """Leaf switches: `ranks` under each, whose uplinks carry a share 1 / `oversubscription` of their ports together."""

    ranks: int
    oversubscription: float

    @property
    def uplinks(self) -> int:
        """Uplinks of a leaf, each as fast as a port."""
        return max(1, round(self.ranks / self.oversubscription))


def leaves_of(text: str, cluster: Cluster) -> Leaves:
    """What `leaf=32,oversubscription=2` says of `cluster`.

    Raises:
        InputError: for other words, numbers that are none, and leaves that hold no whole nodes.
    """
    said: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if name not in ("leaf", "oversubscription") or not equals or name in said:
            raise InputError(
                f"--topology {text!r}: give leaf=RANKS,oversubscription=RATIO, such as leaf=32,oversubscription=2"
            )
        try:
            said[name] = float(value)
        except ValueError:
            raise InputError(f"--topology {part.strip()!r} is no number: give one, such as {name}=2") from None
    ranks, ratio, node = said.get("leaf", 0.0), said.get("oversubscription", 1.0), node_ranks(cluster)
    if not (ranks >= node and ranks == int(ranks) and ranks % node == 0):
        raise InputError(
            f"--topology leaf={ranks:g}: a leaf holds whole nodes of {node} devices; give a multiple of {node}"
        )
    if not (math.isfinite(ratio) and ratio >= 1):
        raise InputError(f"--topology oversubscription={ratio:g}: give 1 (none) or more, such as 2 for 2:1")
    return Leaves(int(ranks), ratio)


def node_ranks(cluster: Cluster) -> int:
    """Ranks of a domain below the outermost level."""
    return (cluster.levels[-2].ranks or 1) if len(cluster.levels) > 1 else 1


def node_bytes(of: Traffic, cluster: Cluster) -> NDArray[np.float64]:
    """Bytes [node, node] from node to node, 0 within one."""
    size = node_ranks(cluster)
    number = math.ceil(of.device_num / size)
    found = np.zeros((number, number))
    for (source, target), size_B in of.total_B.items():
        if source // size != target // size:
            found[source // size, target // size] += size_B
    return found


def loads_B(of: Traffic, cluster: Cluster, leaves: Leaves | None, leaf_of: Sequence[int]) -> Mapping[Link, float]:
    """Bytes over every link; `leaf_of` [nodes]: the leaf of every node."""
    found: dict[Link, float] = {}
    size = node_ranks(cluster)
    for (source, target), size_B in of.total_B.items():
        for link in _links(cluster, source, target):
            found[link] = found.get(link, 0.0) + size_B
        one, other = leaf_of[source // size], leaf_of[target // size]
        if leaves is not None and one != other:
            for link in (
                (cluster.levels[-1].name, "uplinks", one, one),
                (cluster.levels[-1].name, "downlinks", other, other),
            ):
                found[link] = found.get(link, 0.0) + size_B
    return dict(sorted(found.items()))


def _links(cluster: Cluster, source: int, target: int) -> Iterator[Link]:
    level = next(one for one in cluster.levels if one.ranks is None or source // one.ranks == target // one.ranks)
    if level.kind is LevelKind.MESH:
        yield level.name, "link", source, target
    elif level.kind is LevelKind.RING and level.ranks:
        first = source // level.ranks * level.ranks
        at = source
        while at != target:
            following = first + (at - first + 1) % level.ranks
            yield level.name, "link", at, following
            at = following
    else:
        yield level.name, "up", source, source
        yield level.name, "down", target, target


def seconds_of(link: Link, size_B: float, cluster: Cluster, leaves: Leaves | None) -> float:
    """Seconds that `size_B` bytes take on a link at the rate that collectives reach."""
    level = next(one for one in cluster.levels if one.name == link[0])
    rate = level.effective_bandwidth_Bps
    if link[1] in ("uplinks", "downlinks"):
        assert leaves is not None
        rate *= leaves.ranks / leaves.oversubscription
    return size_B / rate
