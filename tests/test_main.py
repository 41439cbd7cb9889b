"""`python -m ms_symtensor`, from the first import on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

INTERRUPTED = """
import importlib.abc, sys
from ms_symtensor.__main__ import command

at, sys.argv[1:] = sys.argv[1], ["plan", "llama2_7b", "--device-num", "8", "--out", "/nowhere"]

class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == at:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
sys.exit(command())
"""


@pytest.mark.parametrize("at", ["ms_symtensor.cli", "sympy", "ms_symtensor.search.nearest"])
def test_an_interrupt_is_silent(at):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, at], capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_importing_the_package_takes_no_time_that_could_be_interrupted():
    script = "import sys, ms_symtensor; assert not {'sympy', 'numpy', 'scipy', 'yaml'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
