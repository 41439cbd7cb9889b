"""Who sends which cells of a unit to whom: to every rank what it lacks, and nothing else."""

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cluster.topology import Cluster


class Way(Enum):
    """How a unit comes to its new ranks."""

    IN_PLACE = "in place"  # every rank has its slice
    SLICE = "slice"  # every rank cuts its slice out of what it has
    ALL_GATHER = "all-gather"  # members of a group, of which each has a share of what all need
    ALL_TO_ALL = "all-to-all"  # ranks that exchange parts, at once
    SEND = "send"  # pairs of ranks, one after the other


Cells = NDArray[np.int64]


@dataclass(frozen=True)
class Transfer:
    """Device `source` sends the `cells` of a unit to device `target`."""

    source: int
    target: int
    cells: Cells


@dataclass(frozen=True)
class Gathering:
    """An all-gather over the devices `ranks`, after which each has `cells` of a unit; before, each has an equal share of them."""

    ranks: tuple[int, ...]
    cells: int


@dataclass(frozen=True)
class Transfers:
    """What a unit needs: `gatherings` where all-gathers do it, else nothing of that; the `sends` do the same in pairs."""

    gatherings: tuple[Gathering, ...]
    sends: tuple[Transfer, ...]
    is_cut: bool
    """Whether a rank's new slice is another than what it has."""


def transfers_of(held: NDArray[np.bool_], needed: NDArray[np.bool_], cluster: Cluster) -> Transfers:
    """The transfers of a unit: `held` and `needed` by device, [devices, cells]."""
    lacks = needed & ~held
    is_cut = bool((needed != held)[needed.any(axis=1)].any())
    if not lacks.any():
        return Transfers((), (), is_cut)
    gathered = _gathered(held, needed, lacks)
    if gathered is not None:
        return Transfers(*gathered, is_cut)
    return Transfers((), _sent(held, lacks, cluster), is_cut)


def _gathered(
    held: NDArray[np.bool_], needed: NDArray[np.bool_], lacks: NDArray[np.bool_]
) -> tuple[tuple[Gathering, ...], tuple[Transfer, ...]] | None:
    """All-gathers after which everybody has what it needs and received nothing that it had; None where there are none."""
    gatherings: list[Gathering] = []
    sends: list[Transfer] = []
    members = np.flatnonzero(lacks.any(axis=1))
    alike: dict[bytes, list[int]] = {}
    for device in np.flatnonzero(needed.any(axis=1)).tolist():
        alike.setdefault(np.packbits(needed[device]).tobytes(), []).append(device)
    wanting = set(members.tolist())
    for devices in alike.values():
        if wanting.isdisjoint(devices):
            continue
        if not wanting.issuperset(devices):
            return None  # one of them has all, so that shares are not equal
        cells = needed[devices[0]]
        shares: dict[bytes, list[int]] = {}
        for device in devices:
            shares.setdefault(np.packbits(held[device] & cells).tobytes(), []).append(device)
        of_share = list(shares.values())
        sizes = {int((held[one[0]] & cells).sum()) for one in of_share}
        counts = {len(one) for one in of_share}
        total = np.sum([held[one[0]] & cells for one in of_share], axis=0)
        if len(sizes) != 1 or len(counts) != 1 or not np.array_equal(total, cells.astype(total.dtype)):
            return None
        for group in zip(*of_share, strict=True):
            gatherings.append(Gathering(tuple(sorted(group)), int(cells.sum())))
            for source in group:
                own = np.flatnonzero(held[source] & cells)
                sends += [Transfer(source, target, own) for target in group if target != source]
    return tuple(gatherings), tuple(sends)


def _sent(held: NDArray[np.bool_], lacks: NDArray[np.bool_], cluster: Cluster) -> tuple[Transfer, ...]:
    """To everybody what it lacks, from the nearest device that has it, of these from the one that has sent least."""
    pattern = np.packbits(np.vstack([held, lacks]), axis=0).T
    _, piece_of_cell = np.unique(np.ascontiguousarray(pattern), axis=0, return_inverse=True)
    piece_of_cell = piece_of_cell.reshape(-1)
    order = np.argsort(piece_of_cell, kind="stable")
    pieces = np.split(order, np.flatnonzero(np.diff(piece_of_cell[order])) + 1)
    sizes = [size for level in cluster.levels[:-1] if (size := level.ranks) is not None]
    sent = np.zeros(len(held))
    found: dict[tuple[int, int], list[Cells]] = {}
    for cells in sorted(pieces, key=lambda one: int(one[0])):
        holders, wanting = np.flatnonzero(held[:, cells[0]]), np.flatnonzero(lacks[:, cells[0]])
        for target in wanting.tolist():
            near = _nearest(holders, target, sizes)
            least = near[(load := sent[near]) == load.min()]
            source = int(
                least[np.searchsorted(least, target) % len(least)]
            )  # the next one behind, not always the first
            sent[source] += len(cells)
            found.setdefault((source, target), []).append(cells)
    return tuple(Transfer(a, b, np.sort(np.concatenate(cells))) for (a, b), cells in sorted(found.items()))


def _nearest(holders: Cells, target: int, sizes: list[int]) -> Cells:
    """Those of `holders` that share the innermost domain with `target`; `sizes` are ranks of a domain, rising."""
    for size in sizes:
        start = target // size * size
        first, last = holders.searchsorted((start, start + size))
        if first < last:
            return holders[first:last]
    return holders


def level_of(cluster: Cluster, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of the innermost topology level that joins device `first` and device `second`, element by element."""
    found = np.full(len(first), len(cluster.levels) - 1)
    for number in reversed(range(len(cluster.levels) - 1)):
        ranks = cluster.levels[number].ranks
        if ranks is not None:
            found[first // ranks == second // ranks] = number
    return found
