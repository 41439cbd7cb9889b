"""`prove`: the moves of a resharding are made by local processes, and every new slice is compared bit by bit.

Every cell of a tensor has two elements here, whatever it has in the network: the moves are the same, cell by cell.
"""

import os
import pickle
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.errors import ExecutionError
from ms_symtensor.reshard.buckets import Bucket
from ms_symtensor.reshard.reshard import Move, Resharding
from ms_symtensor.reshard.values import ELEMENTS
from ms_symtensor.reshard.worker import Job, Kind, Result
from ms_symtensor.tensor.dtype import size_B

PROCESSES = 8


@dataclass(frozen=True)
class Proof:
    """What came of it: slices `compared`, names of tensors that `differ`, and bytes each device received and was to receive."""

    compared: int
    different: tuple[str, ...]
    received_B: tuple[int, ...]
    predicted_B: tuple[int, ...]

    @property
    def holds(self) -> bool:
        return not self.different and self.received_B == self.predicted_B and self.compared > 0


def prove(found: Resharding, time_limit_s: float = 300.0) -> Proof:
    """Make the moves of `found` on local processes.

    Errors: ExecutionError if a process ends with an error, or they take longer than `time_limit_s`.
    """
    processes = min(PROCESSES, found.device_num)
    process_of = tuple(device * processes // found.device_num for device in range(found.device_num))
    kinds = tuple(map(_kind, found.moves))
    buckets = tuple(_units(found.buckets, found.order))
    jobs = [Job(number, process_of, kinds, buckets) for number in range(processes)]
    done = _results(jobs, time_limit_s)
    received = {device: count for one in done for device, count in one.received_B.items()}
    return Proof(
        sum(one.compared for one in done),
        tuple(sorted({name for one in done for name in one.different})),
        tuple(received[device] for device in range(found.device_num)),
        tuple(_predicted_B(found.moves, found.device_num).tolist()),
    )


def _results(jobs: list[Job], time_limit_s: float) -> list[Result]:
    package = Path(__file__).parents[2]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH")))),
    }
    with subprocess.Popen(
        [sys.executable, "-m", "ms_symtensor.reshard.worker"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True,
    ) as host:  # fmt: skip
        try:
            written, said = host.communicate(pickle.dumps((jobs, time_limit_s)))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(host.pid, signal.SIGKILL)
    if host.returncode:
        last = said.decode(errors="replace").strip().splitlines()
        raise ExecutionError(
            f"the processes of the proof could not be started: {last[-1] if last else host.returncode}"
        )
    found = pickle.loads(written)
    for number, came in found:
        if not isinstance(came, Result):
            raise ExecutionError(f"process {number} of the proof ended with {came}")
    if len(found) < len(jobs):
        raise ExecutionError(f"the processes did not end within {time_limit_s:g} s: prove fewer blocks or devices")
    return [came for _, came in found]


def _kind(move: Move) -> Kind:
    one, pair = move.of, move.of.sample
    sends = tuple((each.source, each.target, each.cells) for each in move.transfers.sends)
    units = tuple(tuple(member.source.name for member in unit) for unit in one.units)
    types = pair.source.dtype, pair.moved_as, pair.target.dtype
    return Kind(units, types, size_B(pair.source.dtype), move.held, move.needed, sends)


def _units(buckets: tuple[Bucket, ...], order: tuple[int, ...]) -> list[tuple[tuple[int, int], ...]]:
    """The units of every bucket: (class, number within the class), as they move."""
    next_of = dict.fromkeys(order, 0)
    found = []
    for bucket in buckets:
        inside = []
        for number, count in bucket:
            inside += [(number, next_of[number] + i) for i in range(count)]
            next_of[number] += count
        found.append(tuple(inside))
    return found


def _predicted_B(moves: tuple[Move, ...], devices: int) -> NDArray[np.int64]:
    """The bytes that each device is to receive, at the size of the proof."""
    total = np.zeros(devices, dtype=np.int64)
    for move in moves:
        cell_B = ELEMENTS * size_B(move.of.sample.moved_as)
        total += move.load.received_B // move.of.moved_B * cell_B * move.of.count
    return total
