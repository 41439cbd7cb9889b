"""In which portions tensors move: each within the memory that is left, so few that fixed costs count little.

Before a bucket a device holds the old slices of what has not moved and the new ones of what has; during it also the new slices of
the bucket, what it receives, and what it sends in one piece. Then the bucket's old slices go, unless they are to be kept.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.errors import InputError
from ms_symtensor.reshard.transfers import Transfers
from ms_symtensor.reshard.units import UnitClass

SIZES_B = tuple(1 << power for power in range(36, 19, -1))
"""Buckets that are tried, 64 GiB to 1 MiB of messages on a device, the largest first."""
WORTH = 1.01
"""Smaller buckets may take so many times as long as the fastest (empirical: memory is worth more than 1 % of the time)."""
_GIB = 1 << 30


@dataclass(frozen=True)
class Load:
    """Bytes of one unit on every device: its `old` and `new` slices, what is received and sent; 0 new where it stays as it is."""

    old_B: NDArray[np.int64]
    new_B: NDArray[np.int64]
    received_B: NDArray[np.int64]
    sent_B: NDArray[np.int64]
    stays: NDArray[np.bool_]

    @property
    def messages_B(self) -> NDArray[np.int64]:
        return self.received_B + self.sent_B


Bucket = tuple[tuple[int, int], ...]
"""How many units of which class."""


def load_of(one: UnitClass, held: NDArray[np.bool_], needed: NDArray[np.bool_], transfers: Transfers) -> Load:
    """The load of a unit of class `one`; `held` and `needed` are by device."""
    sent = np.zeros(len(held), dtype=np.int64)
    if transfers.gatherings:
        shares = {move.source: len(move.cells) for move in transfers.sends}  # the same piece for all
        for device, cells in shares.items():
            sent[device] = cells
    else:
        for move in transfers.sends:
            sent[move.source] += len(move.cells)
    stays = (held == needed).all(axis=1) & (one.source_B == one.target_B)
    return Load(
        held.sum(axis=1) * one.source_B,
        np.where(stays, 0, needed.sum(axis=1) * one.target_B),
        (needed & ~held).sum(axis=1) * one.moved_B,
        sent * one.moved_B,
        stays,
    )


def buckets_of(order: Sequence[int], loads: Sequence[Load], size_B: int) -> tuple[Bucket, ...]:
    """`order`, the class of every unit, in buckets of messages of at most `size_B` on every device, or of one unit."""
    found: list[Bucket] = []
    inside: Counter[int] = Counter()
    messages = np.zeros_like(loads[0].received_B)
    for number in order:
        more = loads[number].messages_B
        if inside and int((messages + more).max()) > size_B:
            found.append(tuple(sorted(inside.items())))
            inside, messages = Counter(), np.zeros_like(messages)
        inside[number] += 1
        messages = messages + more
    return (*found, tuple(sorted(inside.items())))


def peaks_B(buckets: Sequence[Bucket], loads: Sequence[Load], counts: Sequence[int], keeps: bool) -> NDArray[np.int64]:
    """The most bytes that each device holds at once; `counts` are units of each class, `keeps` whether old slices stay."""
    held = sum((load.old_B * count for load, count in zip(loads, counts, strict=True)), np.zeros_like(loads[0].old_B))
    peak = held.copy()
    for bucket in buckets:
        new = sum((loads[number].new_B * count for number, count in bucket), np.zeros_like(held))
        messages = sum((loads[number].messages_B * count for number, count in bucket), np.zeros_like(held))
        peak = np.maximum(peak, held + new + messages)
        held = held + new
        if not keeps:
            old = (np.where(loads[n].stays, 0, loads[n].old_B) * count for n, count in bucket)
            held = held - sum(old, np.zeros_like(held))
    return peak


def fitting(
    order: Sequence[int],
    loads: Sequence[Load],
    counts: Sequence[int],
    keeps: bool,
    limit_B: int,
    seconds_of: Callable[[Bucket], float],
) -> tuple[tuple[Bucket, ...], NDArray[np.int64], int]:
    """Of the buckets with which every device stays within `limit_B` the smallest that take hardly longer than the fastest
    (`WORTH`); the peaks of devices, and the messages of the largest bucket on a device, in bytes.

    Errors: InputError where even the smallest are too large.
    """
    whole_B = _messages_B(tuple(enumerate(counts)), loads)
    sizes = [
        size for size in SIZES_B if size <= 2 * whole_B or size == SIZES_B[-1]
    ]  # else all in one with half of that
    found: tuple[tuple[Bucket, ...], NDArray[np.int64], int] | None = None
    fastest_s = math.inf
    peak = np.zeros(1, dtype=np.int64)
    for size_B in sizes:
        buckets = buckets_of(order, loads, size_B)
        peak = peaks_B(buckets, loads, counts, keeps)
        if int(peak.max()) > limit_B:
            continue
        time_s = sum(map(seconds_of, buckets))
        fastest_s = min(fastest_s, time_s)
        if time_s > fastest_s * WORTH:
            break
        found = buckets, peak, max(_messages_B(bucket, loads) for bucket in buckets)
    if found is not None:
        return found
    device = int(peak.argmax())
    raise InputError(
        f"device {device} needs {int(peak[device]) / _GIB:.2f} GiB at its fullest, however small the buckets, and has"
        f" {limit_B / _GIB:.2f}: " + ("do not keep the old slices, or " if keeps else "") + "use more devices"
    )


def _messages_B(bucket: Bucket, loads: Sequence[Load]) -> int:
    """The most bytes of messages on a device."""
    return int(sum((loads[n].messages_B * count for n, count in bucket), np.zeros_like(loads[0].received_B)).max())
