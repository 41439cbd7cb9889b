"""Some damaged inputs of every kind (benchmarks/fuzz.py has thousands)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.fuzz import Case, verdict

ROOT = Path(__file__).parents[1]


def test_damaged_inputs_are_refused_in_a_line_or_accepted_for_what_they_are():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fuzz", "--number", "48"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    kinds = [line.partition(":")[0] for line in done.stdout.splitlines()]
    assert kinds == ["plan", "graph", "cluster", "yaml", "csv", "command"]
    assert "refused" in done.stdout and "accepted" in done.stdout


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ((0, "a plan", "", ""), ""),
        ((2, "", "symtensor: error: no such file\n", ""), ""),
        ((2, "", "symtensor: warning: odd\nsymtensor: error: no such file\n", ""), ""),
        ((2, "half a plan", "symtensor: error: no such file\n", ""), "lines"),
        ((2, "", f"symtensor: error: {'x' * 460}\n", ""), "lines"),
        ((None, "", "", "hang"), "hang"),
    ],
)
def test_what_is_wrong_is_seen(answer, wrong):
    assert verdict(Case(()), *answer).partition("\n")[0] == wrong


def test_a_changed_file_that_is_accepted_is_seen():
    assert verdict(Case((), is_changed=True), 0, "explained", "", "") == "digest"
