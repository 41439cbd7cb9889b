"""`reshard`: what it takes to go from one plan to another."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cluster.topology import MOST_DEVICES, Cluster
from ms_symtensor.cost.move import local_time_s
from ms_symtensor.errors import InputError
from ms_symtensor.reshard.alignment import aligned, kept_B
from ms_symtensor.reshard.buckets import Bucket, Load, fitting, load_of
from ms_symtensor.reshard.price import ways_of
from ms_symtensor.reshard.slices import Side
from ms_symtensor.reshard.transfers import Transfers, Way, transfers_of
from ms_symtensor.reshard.units import Pair, UnitClass, classes_of, pairs_of


@dataclass(frozen=True)
class Request:
    """What is asked for: on `cluster`, within `limit_B` bytes of a device.

    `apart`: the second plan runs on other devices, the next ones; `aligns`: its ranks may run on any of its devices; `keeps`: old
    slices stay.
    """

    cluster: Cluster
    limit_B: int
    apart: bool = False
    aligns: bool = True
    keeps: bool = False


@dataclass(frozen=True)
class Move:
    """How the units of class `of` move: `ways` are the seconds of every possible way for all of them together."""

    of: UnitClass
    held: NDArray[np.bool_]
    needed: NDArray[np.bool_]
    transfers: Transfers
    ways: dict[Way, float]
    load: Load

    @property
    def way(self) -> Way:
        """The cheapest."""
        return min(self.ways, key=lambda way: self.ways[way])

    @cached_property
    def whole_B(self) -> NDArray[np.int64]:
        """What each device would receive if whole tensors were gathered."""
        wanting = self.needed.any(axis=1)
        return np.where(wanting, (self.held.shape[1] - self.held.sum(axis=1)) * self.of.moved_B, 0)


@dataclass(frozen=True)
class Resharding:
    """The way from `source` to `target`; `device_of` is the device of every rank of `target`, `time_s` that of every bucket."""

    source: Side
    target: Side
    device_of: tuple[int, ...]
    moves: tuple[Move, ...]
    order: tuple[int, ...]
    """The class of every unit, as they move."""
    buckets: tuple[Bucket, ...]
    bucket_B: int
    times_s: tuple[float, ...]
    peak_B: tuple[int, ...]
    request: Request

    @property
    def time_s(self) -> float:
        return sum(self.times_s)

    @property
    def device_num(self) -> int:
        return len(self.peak_B)

    def received_B(self, states: bool | None = None) -> NDArray[np.int64]:
        """The bytes that each device receives; of weights only or of `states` only where that is said."""
        return self._sum([(m.load.received_B, m.of) for m in self.moves], states)

    def whole_B(self, states: bool | None = None) -> NDArray[np.int64]:
        """The bytes that each device would receive if every tensor were gathered whole."""
        return self._sum([(m.whole_B, m.of) for m in self.moves], states)

    def _sum(self, each_B: Sequence[tuple[NDArray[np.int64], UnitClass]], states: bool | None) -> NDArray[np.int64]:
        chosen = [size_B * of.count for size_B, of in each_B if states is None or of.is_state == states]
        return sum(chosen, np.zeros(self.device_num, dtype=np.int64))


def reshard(source: Side, target: Side, request: Request) -> Resharding:
    """The cheapest way from `source` to `target`.

    Errors: InputError for sides that are not of one network, more devices than the cluster has, or too little memory.
    """
    first = source.rank_num if request.apart else 0
    devices = max(source.rank_num, first + target.rank_num)
    most = MOST_DEVICES if request.cluster.max_ranks is None else request.cluster.max_ranks
    if devices > most:
        raise InputError(
            f"{devices} devices are needed, and cluster {request.cluster.name} has at most {most}: ask for fewer"
        )
    pairs = pairs_of(source, target)
    classes = classes_of(source, target, pairs)
    device_of = first + np.arange(target.rank_num)
    if request.aligns:
        device_of = first + aligned(kept_B(classes, devices)[:, first:], request.cluster)
    known: dict[tuple[bytes, bytes], Transfers] = {}
    moves = tuple(_move(one, device_of, devices, request.cluster, known) for one in classes)
    order = _order(classes, pairs)
    loads, counts = [move.load for move in moves], [move.of.count for move in moves]

    @cache
    def seconds_of(bucket: Bucket) -> float:
        return _bucket_s(bucket, moves, request.cluster)

    buckets, peak, bucket_B = fitting(order, loads, counts, request.keeps, request.limit_B, seconds_of)
    devices_of, peaks_B = tuple(device_of.tolist()), tuple(peak.tolist())
    times_s = tuple(map(seconds_of, buckets))
    return Resharding(source, target, devices_of, moves, order, buckets, bucket_B, times_s, peaks_B, request)


def _move(
    one: UnitClass,
    device_of: NDArray[np.int64],
    devices: int,
    cluster: Cluster,
    known: dict[tuple[bytes, bytes], Transfers],
) -> Move:
    """`known`: the transfers of units that lie so."""
    cells = one.held.shape[1]
    held, needed = np.zeros((devices, cells), dtype=bool), np.zeros((devices, cells), dtype=bool)
    held[: len(one.held)] = one.held
    needed[device_of] = one.needed
    key = held.tobytes(), needed.tobytes()
    if key not in known:
        known[key] = transfers_of(held, needed, cluster)
    transfers = known[key]
    ways = ways_of(transfers, one.moved_B * one.count, cluster)
    load = load_of(one, held, needed, transfers)
    if transfers.gatherings and min(ways, key=ways.__getitem__) is not Way.ALL_GATHER:
        transfers = replace(transfers, gatherings=())
    return Move(one, held, needed, transfers, ways, load)


def _order(classes: Sequence[UnitClass], pairs: Sequence[Pair]) -> tuple[int, ...]:
    """Units as their first tensors stand in the second plan."""
    position = {pair.source.name: number for number, pair in enumerate(pairs)}
    units = [(position[unit[0].source.name], number) for number, one in enumerate(classes) for unit in one.units]
    return tuple(number for _, number in sorted(units))


def _bucket_s(bucket: Bucket, moves: Sequence[Move], cluster: Cluster) -> float:
    """The seconds of a bucket: its collectives one after the other, and new slices put together in device memory."""
    time = 0.0
    copied = np.zeros_like(moves[0].load.new_B)
    for number, count in bucket:
        move = moves[number]
        time += ways_of(move.transfers, move.of.moved_B * count, cluster).get(move.way, 0.0)
        copied = copied + move.load.new_B * count
    return time + (float(local_time_s(cluster, "StridedSlice", 2.0 * int(copied.max()))) if copied.any() else 0.0)
