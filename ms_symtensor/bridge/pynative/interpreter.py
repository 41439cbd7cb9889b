"""Which Python has MindFormers, and how a child of it is asked."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ms_symtensor.errors import ExecutionError, InputError

VARIABLE = "SYMTENSOR_PYNATIVE_PYTHON"
"""Names an interpreter with MindFormers 2.1 in its environment."""
_ROOT = Path(__file__).parents[3]
_MADE = ".venv-pynative"


def interpreter() -> str:
    """The Python to trace with: what `VARIABLE` names, this one if it has MindFormers, or what `make pynative` made.

    InputError where there is none.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if not Path(named).is_file():
            raise InputError(
                f"{VARIABLE} names {named}, which is no file: set it to a Python that has MindFormers 2.1."
            )
        return named
    if importlib.util.find_spec("mindformers") is not None:
        return sys.executable
    for folder in (Path.cwd(), _ROOT):
        made = folder / _MADE / "bin" / "python"
        if made.is_file():
            return str(made)
    raise InputError(
        f"no MindFormers here: `make pynative` installs 2.1.0 with what it needs into {_MADE}, or set {VARIABLE} "
        "to a Python that has it beside MindSpore 2.10."
    )


def ask(request: dict[str, Any], timeout_s: float = 1800) -> dict[str, Any]:
    """A child's answer. ExecutionError if it dies or takes longer than `timeout_s`."""
    with tempfile.TemporaryDirectory(prefix="symtensor_") as folder:
        answer = Path(folder) / "answer.json"
        command = [interpreter(), "-m", "ms_symtensor.bridge.pynative.child"]
        try:
            done = subprocess.run(
                command,
                input=json.dumps(request | {"answer": str(answer)}),
                cwd=folder,
                env=environment(),
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ExecutionError(f"MindFormers did not answer within {timeout_s:.0f} s.") from error
        if not answer.is_file():
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            raise ExecutionError(
                f"the process with MindFormers ended with code {done.returncode}: {''.join(last)[:300]}"
            )
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return found


def environment() -> dict[str, str]:
    """MindFormers writes its logs below the folder it runs in, which is thrown away."""
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "GLOG_v": "3", "PYTHONWARNINGS": "ignore"}
