"""Control edges between gathers, against MindSpore's compiled programs."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.matrix
def test_gathers_wait_for_each_other_as_compiled(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.overlaps", "--out", str(tmp_path / "overlaps.jsonl")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "40 of 40 programs" in done.stdout
