"""Which pairs of ranks exchange the bytes of a collective, by the algorithm that the price assumes (`cluster.hierarchy`).

n bytes of the whole tensor, p members at a level; a member sends in an AllGather or, backwards, a ReduceScatter

    Mesh       n/p to every other member
    Ring       (p-1) n/p to the next one
    NHR        in step s = 0 … ⌈log2 p⌉ - 1 to the member 2^s further on, ⌊(p - 1 + 2^s) / 2^(s+1)⌋ slices of n/p

and in an AlltoAll n/p to every other member: at once (Mesh, Pairwise) or from neighbour to neighbour (Ring). An AllReduce is a
ReduceScatter and an AllGather. Source of NHR's steps: CANN's HCCL, nonuniform_hierarchical_ring (GetStepInfo),
github.com/yzh1703456/cann-hccl. Groups over several levels work as in `cluster.hierarchy`; NCCL's rings and trees as in
`cluster.nccl`, one ring for every member of a domain, each with its share.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import sympy

from ms_symtensor.algebra import symbols
from ms_symtensor.cluster.hccl import Algorithm, Collective
from ms_symtensor.cluster.hierarchy import algorithm_of, formula
from ms_symtensor.cluster.topology import Cluster, GatherOrder, Library, group_sizes
from ms_symtensor.cost.move import priced_as


class Flow(NamedTuple):
    """`size_B` bytes from one rank to another, by an algorithm."""

    algorithm: str
    source: int
    target: int
    size_B: float


GATHERS = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER)


def flows(cluster: Cluster, kind: str, ranks: Sequence[int], size_B: int) -> Iterator[Flow]:
    """What the members of a group send each other in one collective of `size_B` bytes."""
    collective, members = Collective(priced_as(kind)), tuple(sorted(ranks))
    if len(members) < 2:
        return
    sizes = group_sizes(cluster, members)
    name = _regime(cluster, collective, sizes, size_B)
    if cluster.rules.library is Library.NCCL:
        yield from _nccl(name, collective, members, sizes, size_B)
    elif name == "Pipeline":
        yield from _pipeline(collective, members, [size for size in sizes if size > 1], size_B)
    else:
        yield from _by_level(cluster, collective, members, sizes, size_B)


def _regime(cluster: Cluster, kind: Collective, sizes: tuple[int, ...], size_B: int) -> str:
    """The algorithm that is used for so many bytes."""
    of = formula(cluster, kind, sizes)
    values = {symbols.group_size(level.name): size for level, size in zip(cluster.levels, sizes, strict=True)}
    chosen = of.regimes[0].algorithm
    for regime in of.regimes[1:]:
        if size_B >= float(sympy.sympify(regime.from_B).xreplace({**values, **cluster.values})):
            chosen = regime.algorithm
    return chosen


def _by_level(
    cluster: Cluster, kind: Collective, members: tuple[int, ...], sizes: tuple[int, ...], size_B: float
) -> Iterator[Flow]:
    """One level after the other, each among those that differ in their place at that level only."""
    active = [(level, size) for level, size in zip(cluster.levels, sizes, strict=True) if size > 1]
    counts = [size for _, size in active]
    whole = math.prod(counts)
    for index, (level, p) in enumerate(active):
        algorithm = algorithm_of(level, kind, p)
        inside, upto = math.prod(counts[:index]), math.prod(counts[: index + 1])
        for group in _groups(members, counts, index):
            if kind is Collective.ALL_TO_ALL:
                yield from _all_to_all(algorithm, group, size_B)
            elif kind is Collective.ALL_REDUCE:
                yield from _gather(algorithm, group, size_B / inside, True)
                yield from _gather(algorithm, group, size_B / inside, False)
            else:
                is_first = cluster.rules.gather_order is GatherOrder.INTRA_FIRST
                part_B = size_B * upto / whole if is_first else size_B / inside
                yield from _gather(algorithm, group, part_B, kind is Collective.REDUCE_SCATTER)


def _groups(members: Sequence[int], counts: Sequence[int], index: int) -> Iterator[list[int]]:
    """The members that differ in their place at level `index` only; members in order, the inner place changing first."""
    stride, p = math.prod(counts[:index]), counts[index]
    for start in range(len(members)):
        if start // stride % p == 0:
            yield [members[start + i * stride] for i in range(p)]


def _gather(algorithm: Algorithm, group: Sequence[int], size_B: float, is_backwards: bool) -> Iterator[Flow]:
    """An AllGather whose output has `size_B` bytes; backwards it is a ReduceScatter."""
    p, name = len(group), algorithm.value
    slice_B = size_B / p
    for place, rank in enumerate(group):
        if algorithm is Algorithm.MESH:
            yield from (Flow(name, rank, other, slice_B) for other in group if other != rank)
        elif algorithm is Algorithm.RING:
            yield Flow(name, rank, group[(place + 1) % p], (p - 1) * slice_B)
        else:
            for step in range(math.ceil(math.log2(p))):
                slices = (p - 1 + (1 << step)) // (1 << (step + 1))
                further = -(1 << step) if is_backwards else 1 << step
                yield Flow(name, rank, group[(place + further) % p], slices * slice_B)


def _all_to_all(algorithm: Algorithm, group: Sequence[int], size_B: float) -> Iterator[Flow]:
    p, name = len(group), algorithm.value
    for place, rank in enumerate(group):
        if algorithm is Algorithm.RING:  # a block for the k-th next one passes k links
            yield Flow(name, rank, group[(place + 1) % p], (p - 1) * size_B / 2)
        else:
            yield from (Flow(name, rank, other, size_B / p) for other in group if other != rank)


def _pipeline(kind: Collective, members: Sequence[int], counts: Sequence[int], size_B: float) -> Iterator[Flow]:
    """Two levels at once: shares go round outside, and from there to all inside (`cluster.hierarchy`)."""
    inner, outer = counts
    share_B, rounds = size_B / (inner * outer), 2 if kind is Collective.ALL_REDUCE else 1
    for group in _groups(members, counts, 1):
        for place, rank in enumerate(group):
            yield Flow("Pipeline", rank, group[(place + 1) % outer], rounds * (outer - 1) * share_B)
    for group in _groups(members, counts, 0):
        for rank in group:
            yield from (Flow("Pipeline", rank, other, rounds * outer * share_B) for other in group if other != rank)


def _nccl(
    name: str, kind: Collective, members: tuple[int, ...], sizes: tuple[int, ...], size_B: float
) -> Iterator[Flow]:
    p = len(members)
    if kind is Collective.ALL_TO_ALL:
        yield from (Flow(name, rank, other, size_B / p) for rank in members for other in members if other != rank)
        return
    outer = [size for size in sizes if size > 1][-1] if sum(size > 1 for size in sizes) > 1 else 1
    inside = p // outer
    domains = [members[i * inside : (i + 1) * inside] for i in range(outer)]
    share_B = size_B / inside
    for first in range(inside):
        turned = [(*domain[first:], *domain[:first]) for domain in domains]
        if name == "Tree":
            yield from _tree(turned, share_B)
            continue
        ring = [rank for domain in turned for rank in domain]
        rounds = 2 if kind is Collective.ALL_REDUCE else 1
        for place, rank in enumerate(ring):
            yield Flow(name, rank, ring[(place + 1) % p], rounds * (p - 1) / p * share_B)


def _tree(domains: Sequence[tuple[int, ...]], size_B: float) -> Iterator[Flow]:
    """Chains inside the domains; between their first members two trees, each with half of the bytes, up and down."""
    for domain in domains:
        for one, other in zip(domain[1:], domain, strict=False):
            yield from (Flow("Tree", one, other, size_B), Flow("Tree", other, one, size_B))
    heads = [domain[0] for domain in domains]
    for order in (heads, heads[::-1]):
        for place in range(1, len(order)):
            up, down = order[place], order[(place - 1) // 2]
            yield from (Flow("Tree", up, down, size_B / 2), Flow("Tree", down, up, size_B / 2))
