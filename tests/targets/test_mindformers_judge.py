"""MindFormers' own code over planned training files, in an environment of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.matrix
@pytest.mark.parametrize("version", ["1.9.0", "2.1.0"])
def test_planned_files_are_what_mindformers_reads(version: str) -> None:
    command = [sys.executable, "-m", "benchmarks.mindformers_files", "--version", version]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "84 of 84 files as planned" in done.stdout
