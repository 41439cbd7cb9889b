"""Processes that do not end well, and what is left of them: nothing."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ms_symtensor.bridge.proof.launch import started
from ms_symtensor.errors import ExecutionError

NETWORKS = Path(__file__).parents[1] / "hand_written.py"
ROOT = Path(__file__).parents[3]


def processes_in(directory: Path) -> list[int]:
    """Numbers of the processes that have `directory` in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(directory).encode() in command:
                found.append(int(entry.name))
    return found


def wait_for(condition: Iterator[bool]) -> None:
    for _ in range(600):
        if next(condition):
            return
        time.sleep(0.1)
    pytest.fail("it did not happen within a minute")


def exist(*files: Path) -> Iterator[bool]:
    while True:
        yield all(file.exists() for file in files)


def gone(number: int) -> Iterator[bool]:
    while True:
        stat = Path(f"/proc/{number}/stat")
        yield not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_hung_rank_is_ended_by_the_time_limit(tmp_path: Path) -> None:
    """They wait for a job that never begins."""
    with pytest.raises(ExecutionError, match="reference, rank0, rank1 did not finish within the time limit of 1 s"):  # noqa: SIM117
        with started(tmp_path, 2) as processes:
            processes.wait(processes.next_job(), 1.0)
    assert processes_in(tmp_path) == []


def test_a_crashed_rank_and_a_damaged_program_are_reported(tmp_path: Path) -> None:
    crash, damage = tmp_path / "crash", tmp_path / "damage"
    for folder in (crash, damage):
        folder.mkdir()
    died = r"rank1 was ended by signal 11 \(SIGSEGV\); its last log lines: "
    with pytest.raises(ExecutionError, match=died), started(crash, 3) as processes:
        job = processes.next_job()
        wait_for(exist(crash / "rank0.pid", crash / "rank1.pid", crash / "rank2.pid"))
        os.kill(int((crash / "rank1.pid").read_text()), signal.SIGSEGV)
        wait_for(gone(int((crash / "rank0.pid").read_text())))  # msrun has ended the others
        processes.wait(job, 60.0)
    assert processes_in(crash) == []
    with pytest.raises(ExecutionError, match="reference failed: FileNotFoundError"), started(damage, 1) as processes:
        job = processes.next_job()
        (job / "job.json").write_text('{"programs": [["gradients", 1]], "groups": []}')
        processes.wait(job, 60.0)
    assert processes_in(damage) == []


def test_a_process_that_just_starts_another_program_is_waited_for(tmp_path: Path) -> None:
    """It has no arguments for a moment, which happens here a thousand times."""
    script = 'test "$1" = 0 || exec sh -c "$0" "$0" $(($1 - 1)) "$2"'
    with subprocess.Popen(["sh", "-c", script, script, "1000", str(tmp_path)]) as restless:
        with started(tmp_path, 1):
            pass
        assert restless.poll() is not None


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.matrix)]
)
def test_an_interrupted_proof_leaves_nothing_behind(sent: signal.Signals, code: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ms_symtensor", "prove", f"{NETWORKS}:plain", "--device-num", "8"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    # Where tests run in the background of a shell, SIGINT is ignored: not here.
    heeding = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, preexec_fn=heeding
    ) as process:
        assert process.stderr is not None

        def running() -> Iterator[bool]:
            while True:
                yield len(list(tmp_path.glob("symtensor_prove_*/rank?.pid"))) == 8

        wait_for(running())
        process.send_signal(sent)
        assert process.wait(30) == code
        assert "Traceback" not in process.stderr.read()
    assert processes_in(tmp_path) == []
    assert list(tmp_path.glob("symtensor_prove_*")) == []
