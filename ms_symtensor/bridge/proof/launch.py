"""Start the processes of a proof, wait for them, and leave nothing of them behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ms_symtensor.errors import ExecutionError

_WORKER = Path(__file__).with_name("worker.py")
_POLL_S = 0.25
_LOG_LINES = 3
_NO_NOISE = ("[WARNING]", "[INFO]", "[DEBUG]", "----", "- C++ Call Stack", "mindspore/ccsrc", "mindspore/core")
# The parent's number is passed on: a process whose parent died before it could ask to end with it ends at once.
_MSRUN = (
    "import ctypes, os, signal; ctypes.CDLL(None).prctl(1, signal.SIGKILL)\n"
    "if os.getppid() != int(os.environ['SYMTENSOR_PARENT']): raise SystemExit(1)\n"
    "os.environ['SYMTENSOR_PARENT'] = str(os.getpid())\n"
    "from mindspore.parallel.cluster.run import main; main()\n"
)


def run_ranks(directory: Path, ranks: int, time_limit_s: float) -> None:
    """Run `worker.py` on `directory` in `ranks` processes, started by msrun, until all have written their results.

    Whatever happens, every process has ended when this returns. ExecutionError: a process failed or did not end in time.
    """
    arguments = [
        "-c", _MSRUN, f"--worker_num={ranks}", f"--local_worker_num={ranks}", f"--master_port={_free_port()}",
        f"--log_dir={directory}", "--join=True", f"--cluster_time_out={max(1, int(time_limit_s))}",
        f"--tail_worker_log={ranks}",  # of no rank: else msrun starts a `tail` for each
        str(_WORKER), str(directory),
    ]  # fmt: skip
    names = [f"rank{rank}" for rank in range(ranks)]
    with _processes(directory, arguments, "msrun.log") as process:
        _wait(process, directory, names, [f"worker_{rank}.log" for rank in range(ranks)], time_limit_s)


def run_reference(directory: Path, time_limit_s: float) -> None:
    """Run the reference in `directory` in one process; as `run_ranks`."""
    with _processes(directory, [str(_WORKER), str(directory)], "reference.log") as process:
        _wait(process, directory, ["rankreference"], ["reference.log"], time_limit_s)


@contextmanager
def _processes(directory: Path, arguments: Sequence[str], log: str) -> Iterator[subprocess.Popen]:
    """A process of Python, and whatever it starts, killed at the end of the block."""
    python = directory / "bin" / "python"  # msrun starts `python`, whichever that is
    python.parent.mkdir(exist_ok=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o700)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("MS_", "RANK_", "SYMTENSOR_"))},
        "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "GLOG_v": "3",
        "OMP_NUM_THREADS": "1",
        "SYMTENSOR_PARENT": str(os.getpid()),
        "TMPDIR": str(directory),
    }
    with open(directory / log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=directory, env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        _wait_until_gone(directory)


def _wait(process: subprocess.Popen, directory: Path, names: list[str], logs: list[str], time_limit_s: float) -> None:
    end = time.monotonic() + time_limit_s
    done = [directory / f"{name}.done" for name in names]
    while not all(path.exists() for path in done):
        for name, log in zip(names, logs, strict=True):
            _require_alive(directory, name, log)
        try:
            process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            if time.monotonic() < end:
                continue
            late = [i for i, path in enumerate(done) if not path.exists()]
            shown = "; ".join(f"{names[i]}: {_last_lines(directory / logs[i])}" for i in late[:2])
            raise ExecutionError(
                f"{', '.join(names[i] for i in late)} did not finish within the time limit of {time_limit_s:g} s and"
                f" was ended; last log lines of {shown}"
            ) from None
        if not all(path.exists() for path in done):
            for name, log in zip(names, logs, strict=True):
                _require_alive(directory, name, log)
            raise ExecutionError(f"the processes ended early; last log lines: {_last_lines(directory / 'msrun.log')}")


def _require_alive(directory: Path, name: str, log: str) -> None:
    pid = directory / f"{name}.pid"
    crashed = pid.exists() and not _is_alive(pid)  # asked first: it may end well between this look and the next
    failure = directory / f"{name}.failure"
    if failure.exists():
        raise ExecutionError(f"{name} failed: {_reason(failure.read_text(encoding='utf-8', errors='replace'))}")
    if crashed and not (directory / f"{name}.done").exists():
        raise ExecutionError(f"{name} crashed; its last log lines: {_last_lines(directory / log)}")


def _is_alive(pid_file: Path) -> bool:
    text = pid_file.read_text(encoding="ascii")
    if not text:
        return True  # being written
    try:
        state = Path(f"/proc/{text}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def _wait_until_gone(directory: Path) -> None:
    """The processes end with the one that was killed; this waits until the system has taken them away."""
    for _ in range(100):
        left = [path for path in directory.glob("*.pid") if _is_alive(path)]
        if not left:
            return
        time.sleep(0.05)
    for path in left:
        os.kill(int(path.read_text(encoding="ascii")), signal.SIGKILL)


def _reason(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(_NO_NOISE))[:600]


def _last_lines(log: Path) -> str:
    if not log.exists():
        return "(no log)"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    lines = [line.strip() for line in lines if line.strip() and not line.startswith(_NO_NOISE)]
    return " | ".join(lines[-_LOG_LINES:])[:600] or "(empty)"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
