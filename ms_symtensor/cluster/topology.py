"""Nested topology levels, and which levels a group of ranks spans."""

import math
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import pairwise

import sympy

from ms_symtensor.algebra import symbols
from ms_symtensor.cluster.device import Device
from ms_symtensor.cluster.host import Host
from ms_symtensor.errors import InputError

MOST_DEVICES = 1 << 18
"""No cluster is larger, and ranks are listed one by one: a million take minutes (empirical)."""


class LevelKind(str, Enum):
    """How the members of a level are joined.

    mesh    every pair has its own link: a group of p uses p - 1 links of each member at once
    switch  every member has one port into a network in which any pair can talk at the port's speed
    ring    every member has one link to the next
    """

    MESH = "mesh"
    SWITCH = "switch"
    RING = "ring"


class GatherOrder(str, Enum):
    """In which order AllGather works through the levels; ReduceScatter takes the opposite order and the same time.

    intra_first  the inner level first: the outer one then carries the whole tensor
    inter_first  the outer level first: it then carries only this rank's share
    """

    INTRA_FIRST = "intra_first"
    INTER_FIRST = "inter_first"


@dataclass(frozen=True)
class Level:
    """One level of the interconnect.

    `ranks` counts the ranks inside one domain of this level, those of inner levels included (8 per node); None for the
    outermost level if it has no bound. Domains are filled in order: rank r lies in domain r // ranks.
    `bandwidth_Bps` is nominal and one way: of a link for a mesh, of one rank's port for a switch or ring; `efficiency`
    is the fraction of it that collectives reach. `latency_s` is the time of one step that moves no bytes.
    """

    name: str
    ranks: int | None
    kind: LevelKind
    bandwidth_Bps: float
    efficiency: float
    latency_s: float

    @property
    def effective_bandwidth_Bps(self) -> float:
        return self.bandwidth_Bps * self.efficiency


class Library(str, Enum):
    """Whose collectives run on the cluster."""

    HCCL = "hccl"
    NCCL = "nccl"


@dataclass(frozen=True)
class CollectiveRules:
    """Which communication library the cluster has, and what it does where levels mix.

    From `pipeline_min_slice_B` bytes per rank on, AllGather and ReduceScatter overlap the two levels of a group (its
    inner one a mesh), AllReduce from `pipeline_all_reduce_min_slice_B` bytes per rank on; None if never.
    """

    library: Library
    gather_order: GatherOrder
    pipeline_min_slice_B: float | None
    pipeline_all_reduce_min_slice_B: float | None


@dataclass(frozen=True)
class Source:
    """Where a number of the file comes from; `low`..`high` is its uncertainty where that is known."""

    text: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Cluster:
    """Equal devices on nested `levels`, innermost first. `sources` maps a number's place in the file to its source.

    `host` is None where the file does not tell of it: then nothing can be kept there. `warning`: a line for whoever uses
    the predictions; "" where there is nothing to say. `positions`: where every rank runs, if not in rank order (a rank table).
    """

    name: str
    description: str
    device: Device
    levels: tuple[Level, ...]
    rules: CollectiveRules
    sources: tuple[tuple[str, Source], ...]
    host: Host | None = None
    warning: str = ""
    positions: tuple[int, ...] | None = None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # a cluster is the key of every cache of collective times: hash its numbers once
        return hash((self.name, self.device, self.levels, self.rules, self.host, self.positions))

    @cached_property
    def values(self) -> dict[sympy.Symbol, float]:
        """The number for every symbol that the cluster fixes: the device's, its host's, and latency and bandwidth per level."""
        found = dict(self.device.values)
        if self.host is not None:
            found[symbols.B_host] = self.host.bandwidth_Bps
        for level in self.levels:
            found[symbols.latency(level.name)] = level.latency_s
            found[symbols.bandwidth(level.name)] = level.effective_bandwidth_Bps
        return found

    @cached_property
    def arguments(self) -> dict[str, float]:
        """`values` by name: keyword arguments of compiled expressions."""
        return {symbol.name: value for symbol, value in self.values.items()}

    @property
    def max_ranks(self) -> int | None:
        return self.levels[-1].ranks


def group_sizes(cluster: Cluster, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """How many members the group of global `ranks` has at each level of the cluster, innermost first.

    Ranks 0..15 on nodes of 8 give (8, 2): 8 within a node, 2 nodes. Ranks 0, 8, 16 give (1, 3). The product is the
    number of ranks. A group that is spread unevenly (3 ranks on one node, 1 on the next) counts as flat over the
    outermost level that it spans: (1, 4). That is an assumption, the slower of the plausible ones.

    Errors: InputError for an empty group, a repeated or negative rank, or one beyond the cluster.
    """
    if not ranks or len(set(ranks)) != len(ranks) or min(ranks) < 0:
        raise InputError(f"group {_short(ranks)}: ranks must be distinct and not negative, at least one of them")
    if cluster.max_ranks is not None and max(ranks) >= cluster.max_ranks:
        raise InputError(
            f"group {_short(ranks)}: rank {max(ranks)} is beyond cluster {cluster.name!r}, which has "
            f"{cluster.max_ranks} devices; use fewer devices or another cluster"
        )
    if cluster.positions is not None:
        ranks = tuple(sorted(cluster.positions[rank] for rank in ranks))
    return _sizes(cluster, ranks)


def _sizes(cluster: Cluster, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """`group_sizes`, the outermost level without a bound."""
    sizes: list[int] = []
    members = ranks
    spanned = 0
    even = True
    for index, domain in enumerate(_domains(cluster)):
        # Domains of the level below that are in use, counted per domain of this level.
        per_domain = Counter(0 if domain is None else member // domain for member in members)
        counts = set(per_domain.values())
        even = even and len(counts) == 1
        sizes.append(max(counts))
        if max(counts) > 1:
            spanned = index
        members = tuple(0 if domain is None else place * domain for place in per_domain)
    if not even:
        return tuple(len(ranks) if index == spanned else 1 for index in range(len(sizes)))
    return tuple(sizes)


def lattice_sizes(cluster: Cluster, axes: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """`group_sizes` of the group that rank 0 forms along `axes` of (ranks, stride), without listing its members.

    ((8, 1), (4, 16)) are the ranks 0..7, 16..23, 32..39 and 48..55. The outermost level counts as without a bound: of a family
    of meshes groups are priced that are none on some of them, and lie beyond the devices there.
    """
    total = math.prod(count for count, _ in axes)
    inside = [_in_domain(axes, domain, total) for domain in _domains(cluster)]
    whole = [n for n in inside if n is not None]
    if len(whole) < len(inside) or any(b % a for a, b in pairwise(whole)):
        ranks = [0]
        for count, stride in axes:
            ranks = [rank + i * stride for i in range(count) for rank in ranks]
        return _sizes(cluster, tuple(sorted(ranks)))
    return tuple(b // a for a, b in pairwise((1, *whole)))


def _domains(cluster: Cluster) -> tuple[int | None, ...]:
    """Ranks of a domain of every level, of the outermost one without a bound."""
    return (*(level.ranks for level in cluster.levels[:-1]), None)


def _in_domain(axes: tuple[tuple[int, int], ...], domain: int | None, total: int) -> int | None:
    """How many members lie in one domain of so many ranks; None if that is not the same for all domains."""
    if domain is None:
        return total
    found = 1
    for count, stride in axes:
        if stride >= domain:
            if stride % domain:
                return None
        elif count * stride <= domain:
            if domain % (count * stride):
                return None
            found *= count
        elif domain % stride or count % (domain // stride):
            return None
        else:
            found *= domain // stride
    return found


def _short(ranks: tuple[int, ...]) -> str:
    return str(ranks) if len(ranks) <= 8 else f"({', '.join(map(str, ranks[:8]))}, … {len(ranks)} in all)"
