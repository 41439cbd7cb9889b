"""A PyNative file proved: MindFormers' own parallelization of a small network on local processes, against one process."""

import json
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ms_symtensor.bridge.pynative.interpreter import environment, interpreter
from ms_symtensor.errors import ExecutionError
from ms_symtensor.streams import notice
from ms_symtensor.targets.mindformers_pynative.reduced import reduced

TOLERANCE = 1e-5
SUMS = ("shards", "replicas", "tensor parallelism")
"""The sums of gradients that hyper-parallel makes."""


@dataclass(frozen=True)
class WrongSum:
    """A parameter whose gradient is wrong, and the sum that it lacks if adding one makes it right."""

    name: str
    error: float
    lacks: str


@dataclass(frozen=True)
class PynativeProof:
    """What the processes found."""

    ranks: int
    degrees: dict[str, Any]
    loss_rel_error: float
    grad_rel_error_max: float
    worst_parameter: str
    parameters: int
    wrong: tuple[WrongSum, ...]
    seconds: float

    @property
    def equal(self) -> bool:
        return self.loss_rel_error <= TOLERANCE and self.grad_rel_error_max <= TOLERANCE


def prove(config: dict[str, Any], device_num: int, time_limit_s: float = 600.0, left_out: str = "") -> PynativeProof:
    """Execute `config` at reduced dims. ExecutionError where the processes do not end well.

    `left_out`: one of SUMS that is not made, to see that its lack is found.
    """
    began_s = time.monotonic()
    small, ranks = reduced(config, device_num)
    with tempfile.TemporaryDirectory(prefix="symtensor_") as folder:
        answers = _run({"config": small, "left_out": left_out}, ranks, Path(folder), time_limit_s)
    rows: dict[str, tuple[float, str]] = {}
    for answer in answers:
        for name, error, lacks in answer["parameters"]:
            if name not in rows or error > rows[name][0]:
                rows[name] = (error, lacks)
    worst = max(rows, key=lambda name: rows[name][0])
    wrong = tuple(WrongSum(name, *row) for name, row in rows.items() if row[0] > TOLERANCE)
    return PynativeProof(
        ranks, small["parallelism"], max(a["loss_rel_error"] for a in answers), rows[worst][0], worst, len(rows), wrong,
        time.monotonic() - began_s,
    )  # fmt: skip


def _run(request: dict[str, Any], ranks: int, folder: Path, time_limit_s: float) -> list[dict[str, Any]]:
    """Answers of all processes, which MindSpore's scheduler brings together."""
    job = folder / "job.json"
    job.write_text(json.dumps(request | {"answer": str(folder / "answer")}), encoding="utf-8")
    port = _free_port()
    shared = environment() | {
        "MS_WORKER_NUM": str(ranks),
        "MS_SCHED_HOST": "127.0.0.1",
        "MS_SCHED_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    worker = [interpreter(), "-X", "faulthandler", "-m", "ms_symtensor.bridge.pynative.proof_worker", str(job)]
    scheduler = [interpreter(), "-c", "from mindspore.communication import init; init()"]
    started = [_start(scheduler, shared | {"MS_ROLE": "MS_SCHED"}, folder / "scheduler.log", folder)]
    try:
        for rank in range(ranks):
            own = shared | {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": str(rank)}
            started.append(_start(worker, own, folder / f"worker_{rank}.log", folder))
        _wait(started[1:], folder, time_limit_s)
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
            process.wait()
    return [json.loads((folder / f"answer.{rank}").read_text(encoding="utf-8")) for rank in range(ranks)]


def _start(command: list[str], own: dict[str, str], log: Path, folder: Path) -> "subprocess.Popen[bytes]":
    with open(log, "wb") as output:
        return subprocess.Popen(
            command, env=own, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )


def _wait(workers: "list[subprocess.Popen[bytes]]", folder: Path, time_limit_s: float) -> None:
    """Until all have ended. One that crashes after its answer is written has answered; a line on standard error says so."""
    end_s = time.monotonic() + time_limit_s
    while True:
        is_running = any(worker.poll() is None for worker in workers)
        for rank, worker in enumerate(workers):
            if worker.returncode and not (folder / f"answer.{rank}").is_file():
                raise _ended(rank, workers, folder)
        if not is_running:
            for rank, worker in enumerate(workers):
                if worker.returncode:
                    notice(f"process {rank} of the proof ended with code {worker.returncode}, after its answer")
            return
        if time.monotonic() > end_s:
            raise ExecutionError(f"the processes of the proof did not end within {time_limit_s:g} s")
        time.sleep(0.1)


def _ended(rank: int, workers: "list[subprocess.Popen[bytes]]", folder: Path) -> ExecutionError:
    code, said = workers[rank].returncode, _last(folder / f"worker_{rank}.log")
    return ExecutionError(f"process {rank} of the proof ended with code {code}: {said}")


def _last(log: Path) -> str:
    """The last line of a log that says an error."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if "error" in line.lower()]
    return (lines or ["no word"])[-1][:250]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
