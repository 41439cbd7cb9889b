import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from ms_symtensor.allocator import TUNABLES, tuned

SCRIPT = f"""
import os, sys
from ms_symtensor.allocator import restart_tuned
print("begun", flush=True)
restart_tuned()
print(os.environ.get({TUNABLES!r}), sys.argv[1:], sys.flags.utf8_mode)
"""


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != TUNABLES}
    return subprocess.run(
        [sys.executable, *command], env=clean | environment, cwd=Path(__file__).parents[1],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")
def test_a_process_begins_anew_once_as_it_was_started() -> None:
    done = run("-X", "utf8", "-c", SCRIPT, "a", "b c")
    assert done.stdout == f"begun\nbegun\n{tuned()} ['a', 'b c'] 1\n", done.stderr


def test_settings_of_the_user_stay() -> None:
    done = run("-c", SCRIPT, **{TUNABLES: "glibc.malloc.arena_max=2"})
    assert done.stdout == "begun\nglibc.malloc.arena_max=2 [] 0\n", done.stderr


@pytest.mark.parametrize("command", ["verify", "explain"])
def test_a_mistake_is_one_line_whether_it_begins_anew_or_not(command: str) -> None:
    done = run("-m", "ms_symtensor", command, "/no/such/plan")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
