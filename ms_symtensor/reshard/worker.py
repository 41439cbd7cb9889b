"""One process of a proof: it holds the slices of some devices, sends and receives cells, and compares what it has made.

Nothing but numpy is needed here, so that processes start at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.reshard.values import Bits, box, cast, from_cells, slice_of, to_cells, whole

Key = tuple[int, int, int, int]
"""Class, unit, sending and receiving device of a message."""


@dataclass(frozen=True)
class Member:
    """A tensor's place in the units of a class."""

    grid: tuple[int, ...]
    source: str
    moved: str
    target: str
    size_B: int

    @property
    def cells(self) -> int:
        return int(np.prod(self.grid, dtype=int))


@dataclass(frozen=True)
class Kind:
    """A class: `units` are names of tensors, `held` and `needed` cells by device, `sends` (source, target, cells)."""

    members: tuple[Member, ...]
    units: tuple[tuple[str, ...], ...]
    held: NDArray[np.bool_]
    needed: NDArray[np.bool_]
    sends: tuple[tuple[int, int, NDArray[np.int64]], ...]


@dataclass(frozen=True)
class Job:
    """What process `number` does: `process_of` every device, and the units of every bucket, (class, unit)."""

    number: int
    process_of: tuple[int, ...]
    kinds: tuple[Kind, ...]
    buckets: tuple[tuple[tuple[int, int], ...], ...]


@dataclass
class Result:
    """Bytes received by device, how many slices were compared, and the tensors of which one differs."""

    received_B: dict[int, int] = field(default_factory=dict)
    compared: int = 0
    different: list[str] = field(default_factory=list)


def work(job: Job, inboxes: Sequence[Any], results: Any) -> None:
    """Do `job`; what comes of it goes to `results`, an exception too."""
    try:
        results.put((job.number, _Process(job, inboxes).run()))
    except Exception as error:
        results.put((job.number, f"{type(error).__name__}: {error}"))


class _Process:
    def __init__(self, job: Job, inboxes: Sequence[Any]) -> None:
        self.job, self.inboxes = job, inboxes
        self.devices = [device for device, process in enumerate(job.process_of) if process == job.number]
        self.result = Result({device: 0 for device in self.devices})
        self.arrived: dict[Key, list[Bits]] = {}
        self.old = {
            (number, unit, device): self._slices(kind, unit, kind.held[device])
            for number, kind in enumerate(job.kinds)
            for unit in range(len(kind.units))
            for device in self.devices
        }

    def run(self) -> Result:
        for bucket in self.job.buckets:
            for number, unit in bucket:
                self._send(number, unit)
            for number, unit in bucket:
                self._receive(number, unit)
                for device in self.devices:
                    self._compare(number, unit, device)
                    del self.old[number, unit, device]
        return self.result

    def _slices(self, kind: Kind, unit: int, row: NDArray[np.bool_]) -> list[Bits | None]:
        """The slice of every tensor of a unit that a device with the cells `row` holds, in the first plan's type."""
        found: list[Bits | None] = []
        for member, name, part in zip(kind.members, kind.units[unit], _parts(kind, row), strict=True):
            tensor = whole(name, member.grid, member.source, member.size_B)
            found.append(slice_of(tensor, box(part, member.grid)) if part.any() else None)
        return found

    def _send(self, number: int, unit: int) -> None:
        kind = self.job.kinds[number]
        for source, target, cells in kind.sends:
            if self.job.process_of[source] == self.job.number:
                message = self._taken(number, unit, source, cells)
                self.inboxes[self.job.process_of[target]].put(((number, unit, source, target), message))

    def _taken(self, number: int, unit: int, device: int, cells: NDArray[np.int64]) -> list[Bits]:
        """`cells` of a unit out of what `device` holds, tensor by tensor, in the type in which they travel."""
        kind = self.job.kinds[number]
        found = []
        wanted = np.zeros(kind.held.shape[1], dtype=bool)
        wanted[cells] = True
        slices = self.old[number, unit, device]
        rows = zip(_parts(kind, wanted), _parts(kind, kind.held[device]), strict=True)
        for member, values, (part, has) in zip(kind.members, slices, rows, strict=True):
            if part.any() and values is not None:
                own = to_cells(values, _counts(has, member.grid))
                values = own[np.searchsorted(np.flatnonzero(has), np.flatnonzero(part))]
                found.append(cast(values, member.source, member.moved))
        return found

    def _receive(self, number: int, unit: int) -> None:
        for source, target, _ in self.job.kinds[number].sends:
            key = (number, unit, source, target)
            if self.job.process_of[target] == self.job.number:
                while key not in self.arrived:
                    came, message = self.inboxes[self.job.number].get()
                    self.arrived[came] = message
                self.result.received_B[target] += sum(one.nbytes for one in self.arrived[key])

    def _compare(self, number: int, unit: int, device: int) -> None:
        kind = self.job.kinds[number]
        rows = zip(_parts(kind, kind.needed[device]), _parts(kind, kind.held[device]), strict=True)
        messages = [
            (cells, iter(self.arrived.pop((number, unit, source, target))))
            for source, target, cells in kind.sends
            if target == device
        ]
        start = 0
        for place, (member, (need, has)) in enumerate(zip(kind.members, rows, strict=True)):
            arrived = [
                (inside - start, next(bits))
                for cells, bits in messages
                if len(inside := cells[(cells >= start) & (cells < start + member.cells)])
            ]
            start += member.cells
            if not need.any():
                continue
            made = self._made(member, self.old[number, unit, device][place], has, need, arrived)
            name = kind.units[unit][place]
            tensor = cast(whole(name, member.grid, member.source, member.size_B), member.source, member.target)
            wanted = slice_of(tensor, box(need, member.grid))
            self.result.compared += 1
            if made is None or made.dtype != wanted.dtype or made.tobytes() != wanted.tobytes():
                self.result.different.append(name)

    def _made(
        self,
        member: Member,
        old: Bits | None,
        has: NDArray[np.bool_],
        need: NDArray[np.bool_],
        arrived: Sequence[tuple[NDArray[np.int64], Bits]],
    ) -> Bits | None:
        """The new slice out of the old one and of what arrived; None where a cell of it is missing."""
        wanted = np.flatnonzero(need)
        filled = np.zeros(len(wanted), dtype=bool)
        made: Bits | None = None
        parts = list(arrived)
        if old is not None and (has & need).any():
            own = np.flatnonzero(has & need)
            cells = to_cells(old, _counts(has, member.grid))[np.searchsorted(np.flatnonzero(has), own)]
            parts.append((own, cast(cells, member.source, member.moved)))
        for cells, values in parts:
            turned = cast(values, member.moved, member.target)
            made = np.zeros((len(wanted), turned.shape[1]), dtype=turned.dtype) if made is None else made
            at = np.searchsorted(wanted, cells)
            made[at], filled[at] = turned, True
        return from_cells(made, _counts(need, member.grid)) if made is not None and filled.all() else None


def _parts(kind: Kind, row: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """The cells of a unit, tensor by tensor."""
    ends = np.cumsum([member.cells for member in kind.members])[:-1]
    return np.split(row, ends)


def _counts(row: NDArray[np.bool_], grid: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(len(one) for one in box(row, grid))
