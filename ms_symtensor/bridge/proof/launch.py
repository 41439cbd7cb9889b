"""The processes of a proof: started, given jobs, waited for, and nothing of them left behind."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ms_symtensor.errors import EndedBySignal, ExecutionError

REFERENCE = "reference"
_WORKER = Path(__file__).with_name("worker.py")
_POLL_S = 0.1
_READS, _REREAD_S = 100, 0.001
"""A tenth of a second in all: a program takes the place of another in less than a hundredth (empirical)."""
_LOG_LINES, _SHOWN_CHARACTERS = 3, 600
_NO_NOISE = ("[WARNING]", "[INFO]", "[DEBUG]", "----", "- C++ Call Stack", "mindspore/ccsrc", "mindspore/core")
_CLUSTER_TIMEOUT_S = 600
"""Seconds that ranks wait for each other: as long as a proof may take by default."""

_NO_KERNEL = re.compile(r"Unsupported op \[(\w+)\] on CPU")
_RANK_ENDED = re.compile(r"Worker process (\d+) exit with exception\. Error code: (-?\d+)")
"""What msrun writes of the first rank that it finds ended; it looks once a second."""
_MSRUN_TELLS_POLLS = 50

_signals: list[int] = []


def end_on_signals() -> None:
    """SIGTERM ends this process, and its processes with it; so does SIGINT, unless it is ignored.

    MindSpore can swallow an exception that is raised while it calls Python back: whoever waits next asks again.
    """

    def end(number: int, _: object) -> None:
        _signals.append(number)
        raise EndedBySignal(128 + number)

    signal.signal(signal.SIGTERM, end)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, end)


# It ends with its parent, however that ends; had the parent ended before this was asked for, it ends at once.
_MSRUN = (
    "import ctypes, os, signal; ctypes.CDLL(None).prctl(1, signal.SIGKILL)\n"
    "if os.getppid() != int(os.environ['SYMTENSOR_PARENT']): raise SystemExit(1)\n"
    "os.environ['SYMTENSOR_PARENT'] = str(os.getpid())\n"
    "from mindspore.parallel.cluster.run import main; main()\n"
)


class Processes:
    """One process per rank, in a cluster of their own, and the reference. They take jobs one after the other.

    `directory` is theirs alone. Made by `started`.
    """

    def __init__(self, directory: Path, ranks: int, groups: Sequence[subprocess.Popen]) -> None:
        self.ranks = ranks
        self._directory, self._started = directory, groups
        self._jobs = 0
        self._logs = {REFERENCE: f"{REFERENCE}.log"} | {f"rank{rank}": f"worker_{rank}.log" for rank in range(ranks)}

    def next_job(self) -> Path:
        """The folder of the next job; to be filled, `job.json` last, which makes the processes begin."""
        folder = self._directory / f"job{self._jobs}"
        folder.mkdir()
        self._jobs += 1
        return folder

    def wait(self, job: Path, time_limit_s: float) -> None:
        """Until all processes have done `job`. ExecutionError if one fails, crashes, or is not ready in time."""
        if _signals:
            raise EndedBySignal(128 + _signals[0])
        end = time.monotonic() + time_limit_s
        while late := [name for name in self._logs if not (job / f"{name}.done").exists()]:
            self._require_alive()
            if any(process.poll() is not None for process in self._started):
                raise ExecutionError(f"the processes ended early; last log lines: {self._last_lines('msrun.log')}")
            if time.monotonic() > end:
                shown = "; ".join(f"{name}: {self._last_lines(self._logs[name])}" for name in late[:2])
                raise ExecutionError(
                    f"{', '.join(late)} did not finish within the time limit of {time_limit_s:g} s and was ended; last log"
                    f" lines of {shown}"
                )
            time.sleep(_POLL_S)

    def _require_alive(self) -> None:
        dead = [name for name in self._logs if not self._is_alive(name)]
        for name in self._logs:  # asked after that: a failure is written before the end
            failure = self._directory / f"{name}.failure"
            if failure.exists():
                raise ExecutionError(f"{name} failed: {_reason(failure.read_text(encoding='utf-8', errors='replace'))}")
        if dead:
            name, code = self._first_of(dead)
            raise ExecutionError(f"{name} {_how_ended(code)}; its last log lines: {self._last_lines(self._logs[name])}")

    def _is_alive(self, name: str) -> bool:
        return _is_alive(self._directory / f"{name}.pid")

    def _first_of(self, dead: Sequence[str]) -> tuple[str, int | None]:
        """Of the `dead` processes the one that ended by itself, and its exit code: when a rank ends, msrun ends the others."""
        if REFERENCE in dead:
            return REFERENCE, self._started[0].wait()
        for _ in range(_MSRUN_TELLS_POLLS):
            text = (self._directory / "msrun.log").read_text(encoding="utf-8", errors="replace")
            if (told := _RANK_ENDED.search(text)) is not None:
                numbers = {file.read_text(encoding="ascii"): file.stem for file in self._directory.glob("rank*.pid")}
                return numbers.get(told[1], dead[0]), int(told[2])
            time.sleep(_POLL_S)
        return dead[0], None

    def _last_lines(self, log: str) -> str:
        path = self._directory / log
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(_NO_NOISE)]
        return " | ".join(lines[-_LOG_LINES:])[:_SHOWN_CHARACTERS] or "(none)"


@contextmanager
def started(directory: Path, ranks: int) -> Iterator[Processes]:
    """Processes that start while the block goes on. At its end, whatever happens, all of them have ended."""
    msrun = [
        "-c", _MSRUN, f"--worker_num={ranks}", f"--local_worker_num={ranks}", f"--master_port={_free_port()}",
        f"--log_dir={directory}", "--join=True", f"--cluster_time_out={_CLUSTER_TIMEOUT_S}",
        f"--tail_worker_log={ranks}",  # of no rank: else msrun starts a `tail` for each
        str(_WORKER), str(directory), "ranks",
    ]  # fmt: skip
    with ExitStack() as stack:
        stack.callback(_wait_until_gone, directory)
        reference = stack.enter_context(
            _process(directory, [str(_WORKER), str(directory), REFERENCE], f"{REFERENCE}.log")
        )
        yield Processes(directory, ranks, (reference, stack.enter_context(_process(directory, msrun, "msrun.log"))))


@contextmanager
def _process(directory: Path, arguments: Sequence[str], log: str) -> Iterator[subprocess.Popen]:
    """A process of Python, killed at the end of the block; what it has started ends with it."""
    python = directory / "bin" / "python"  # msrun starts `python`, whichever that is
    if not python.exists():
        python.parent.mkdir()
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
        python.chmod(0o700)
    ours = ("MS_", "RANK_", "DEVICE_ID", "SYMTENSOR_")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(ours)},
        "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "TMPDIR": str(directory),
        "GLOG_v": "3",
        "OMP_NUM_THREADS": "1",
        # A rank that comes late to a collective, on a busy machine, is no failure: what is too long, `wait` decides.
        "MS_CPU_COMM_OP_TIMEOUT": str(_CLUSTER_TIMEOUT_S),
        "SYMTENSOR_PARENT": str(os.getpid()),
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


def _how_ended(code: int | None) -> str:
    """In words: `was ended by signal 9 (SIGKILL)`; `code` as of Popen."""
    if code is None:
        return "crashed"
    if code >= 0:
        return f"ended early with exit code {code}"
    known = {number.value: number.name for number in signal.Signals}
    hint = ", as the system does when memory runs out" if -code == signal.SIGKILL else ""
    return f"was ended by signal {-code} ({known.get(-code, 'unknown')}){hint}"


def _is_alive(pid_file: Path) -> bool:
    """Whether the process that wrote `pid_file` runs; one that has not written it yet counts as alive."""
    if not pid_file.exists():
        return True
    try:
        stat = Path(f"/proc/{pid_file.read_text(encoding='ascii')}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def _wait_until_gone(directory: Path) -> None:
    """The processes end with those that started them; this waits until the system has taken them away."""
    for attempt in range(200):
        left = _processes_of(directory)
        if not left:
            return
        if attempt >= 100:
            for number in left:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
        time.sleep(_POLL_S / 2)


def _processes_of(directory: Path) -> list[int]:
    """The processes with `directory`, which is theirs alone, among their arguments."""
    wanted = os.fsencode(directory)
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended meanwhile
            if entry.name.isdigit() and wanted in _arguments(entry):
                found.append(int(entry.name))
    return found


def _arguments(process: Path) -> list[bytes]:
    """Those of a process, from its folder in /proc. While a program replaces another there are none: asked again."""
    for _ in range(_READS):
        arguments = (process / "cmdline").read_bytes()
        if arguments:
            return arguments.split(b"\0")
        os.readlink(process / "exe")  # OSError: it has ended, or it is a thread of the kernel
        time.sleep(_REREAD_S)
    return []


def _reason(text: str) -> str:
    if missing := _NO_KERNEL.search(text):
        return (
            f"MindSpore's CPU has no kernel of {missing[1]}, and prove no definition of it: write it with other operators for the"
            " proof"
        )
    lines = [line.strip() for line in text.splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(_NO_NOISE))[:_SHOWN_CHARACTERS]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
