"""Control edges between gathers, against MindSpore's compiled programs."""

import subprocess
import sys
from pathlib import Path

import pytest

from ms_symtensor.cli import main

ROOT = Path(__file__).parents[3]


@pytest.mark.matrix
def test_gathers_wait_for_each_other_as_compiled(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.overlaps", "--out", str(tmp_path / "overlaps.jsonl")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "40 of 40 programs" in done.stdout


def test_a_recomputed_reader_waits_as_the_one_that_it_copies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pins = ("overlap.computation_allgather_overlap=yes", "recompute=1", "micro_batch_num=1", "data_parallel=4")
    asked = [word for pin in pins for word in ("--fix", pin)]
    sizes = ["--num-layers", "2", "--seq-length", "128", "--device-num", "4", "--global-batch-size", "4"]
    assert main(["plan", "llama2_7b", *sizes, *asked, "--out", str(tmp_path)]) == 0
    assert main(["verify", str(tmp_path)]) == 0, capsys.readouterr().out
