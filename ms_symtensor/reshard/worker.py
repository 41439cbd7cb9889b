"""One process of a proof: it holds the slices of some devices, sends and receives cells, and compares what it has made.

`python -m ms_symtensor.reshard.worker` starts all of them, so that none runs the script again which asks for a proof. It reads
jobs and a time limit from standard input, and writes what came of them, pickled by its own parent. Nothing but numpy is needed,
so that processes start at once.
"""

import multiprocessing
import pickle
import queue
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.reshard.values import Bits, cast, whole

Key = tuple[int, int, int, int]
"""Class, unit, sending and receiving device of a message."""


@dataclass(frozen=True)
class Kind:
    """A class: `units` are names of tensors, `held` and `needed` cells by device, `sends` (source, target, cells).

    `types`: in the first plan, on the way, and in the second plan; `size_B`: of an element in the first one.
    """

    units: tuple[tuple[str, ...], ...]
    types: tuple[str, str, str]
    size_B: int
    held: NDArray[np.bool_]
    needed: NDArray[np.bool_]
    sends: tuple[tuple[int, int, NDArray[np.int64]], ...]

    @property
    def cells(self) -> int:
        """Of a tensor."""
        return self.held.shape[1] // len(self.units[0])

    def whole(self, unit: int) -> Bits:
        """All cells of a unit, tensor by tensor."""
        return np.vstack([whole(name, self.cells, self.types[0], self.size_B) for name in self.units[unit]])


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


def run(jobs: Sequence[Job], time_limit_s: float) -> list[tuple[int, Any]]:
    """What came of every job, `Result`s, or words that say what went wrong; fewer where time ran out."""
    context = multiprocessing.get_context("fork")  # nothing but numpy is loaded, and no thread runs
    inboxes: list[Any] = [context.Queue() for _ in jobs]
    results: Any = context.Queue()
    processes = [context.Process(target=work, args=(job, inboxes, results), daemon=True) for job in jobs]
    found: list[tuple[int, Any]] = []
    try:
        for process in processes:
            process.start()
        for _ in jobs:
            found.append(results.get(timeout=time_limit_s))
            if isinstance(found[-1][1], str):
                break  # others wait for its messages
    except queue.Empty:
        pass
    finally:
        for process in processes:
            process.kill()
    return found


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
        self.arrived: dict[Key, Bits] = {}
        self.old: dict[tuple[int, int, int], Bits] = {}
        for number, kind in enumerate(job.kinds):
            for unit in range(len(kind.units)):
                values = kind.whole(unit)
                self.old |= {(number, unit, device): values[kind.held[device]] for device in self.devices}

    def run(self) -> Result:
        for bucket in self.job.buckets:
            for number, unit in bucket:
                self._send(number, unit)
            for number, unit in bucket:
                self._receive(number, unit)
                kind = self.job.kinds[number]
                wanted = cast(kind.whole(unit), kind.types[0], kind.types[2])
                for device in self.devices:
                    self._compare(number, unit, device, wanted)
                    del self.old[number, unit, device]
        return self.result

    def _send(self, number: int, unit: int) -> None:
        kind = self.job.kinds[number]
        for source, target, cells in kind.sends:
            if self.job.process_of[source] == self.job.number:
                message = cast(self._taken((number, unit, source), cells), *kind.types[:2])
                self.inboxes[self.job.process_of[target]].put(((number, unit, source, target), message))

    def _taken(self, key: tuple[int, int, int], cells: NDArray[np.int64]) -> Bits:
        """`cells` of a unit out of what a device holds."""
        return self.old[key][np.searchsorted(np.flatnonzero(self.job.kinds[key[0]].held[key[2]]), cells)]

    def _receive(self, number: int, unit: int) -> None:
        for source, target, _ in self.job.kinds[number].sends:
            key = (number, unit, source, target)
            if self.job.process_of[target] == self.job.number:
                while key not in self.arrived:
                    came, message = self.inboxes[self.job.number].get()
                    self.arrived[came] = message
                self.result.received_B[target] += self.arrived[key].nbytes

    def _compare(self, number: int, unit: int, device: int, wanted: Bits) -> None:
        """The new slices out of the old ones and of what arrived, with `wanted` of whole tensors."""
        kind = self.job.kinds[number]
        first, way, second = kind.types
        own = np.flatnonzero(kind.held[device] & kind.needed[device])
        parts = [(own, cast(self._taken((number, unit, device), own), first, way))]
        for source, target, cells in kind.sends:
            if target == device:
                parts.append((cells, self.arrived.pop((number, unit, source, target))))
        made, filled = np.zeros_like(wanted), np.zeros(len(wanted), dtype=bool)
        for cells, values in parts:
            made[cells], filled[cells] = cast(values, way, second), True
        right = filled & (made == wanted).all(axis=1) | ~kind.needed[device]
        for name, each, needs in zip(
            kind.units[unit], np.split(right, len(right) // kind.cells), kind.needed[device].reshape(-1, kind.cells),
            strict=True,
        ):  # fmt: skip
            self.result.compared += bool(needs.any())
            self.result.different += [] if each.all() else [name]


if __name__ == "__main__":
    from ms_symtensor.reshard import worker  # whose classes are those of the jobs

    pickle.dump(worker.run(*pickle.load(sys.stdin.buffer)), sys.stdout.buffer)
    sys.stdout.flush()
