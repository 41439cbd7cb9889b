"""The user's own file is run: whatever it does, its end is told in one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import mindspore as ms
import pytest

from ms_symtensor.bridge.apply.load_network import load_factory, run_file
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.cli import main
from ms_symtensor.errors import CompilerError, EndedBySignal, InputError
from tests.bridge.networks import empty

ENDS = "import sys\ndef factory():\n    sys.exit(0)\n"


@pytest.fixture
def place(tmp_path: Path) -> str:
    (tmp_path / "file_that_ends.py").write_text(ENDS)
    return f"{tmp_path}/file_that_ends.py:factory"


@pytest.mark.parametrize("command", ["prove", "audit", "plan"])
def test_a_factory_that_ends_the_process_is_no_success(command, place, tmp_path, capsys):
    out = ["--out", str(tmp_path / "plan")] if command == "plan" else []
    assert main([command, place, "--device-num", "2", *out]) == 2
    assert "called without arguments, failed (SystemExit: 0) at file_that_ends.py:3" in capsys.readouterr().err


def test_a_factory_that_raises_an_error_of_its_own_runs_once(tmp_path, capsys):
    (tmp_path / "file_that_fails.py").write_text(
        "def factory():\n    print('ran')\n    raise RuntimeError('no data')\n"
    )
    with pytest.raises(InputError, match=r"failed \(RuntimeError: no data\) at file_that_fails\.py:3"):
        load_factory(f"{tmp_path}/file_that_fails.py:factory")
    assert capsys.readouterr().out == "ran\n"


def test_nor_is_a_file_that_does(place, tmp_path):
    (tmp_path / "file_that_ends.py").write_text("raise SystemExit\n")
    for use in (load_factory, run_file):
        with pytest.raises(
            InputError,
            match=r"ends\.py cannot be imported \(SystemExit: SystemExit\) at file_that_ends\.py:1",
        ):
            use(place)


@pytest.mark.parametrize("relative", [True, False])
def test_a_path_that_python_cannot_pass_on_is_told(tmp_path, relative):
    folder = tmp_path / "größe"
    folder.mkdir()
    (folder / "netz.py").write_text("factory = print\n")
    place = "netz.py:factory" if relative else f"{folder}/netz.py:factory"
    ascii_only = {**os.environ, "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "ms_symtensor", "audit", place, "--device-num", "2"]
    done = subprocess.run(command, cwd=folder, env=ascii_only, capture_output=True, check=False)
    assert done.returncode == 2
    assert b"reads file names as ascii: set PYTHONUTF8=1, or LC_ALL=C.UTF-8" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("text", ["raise {}\nfactory = print\n", "def factory():\n    raise {}\n"])
def test_a_signal_ends_the_process(text, place, tmp_path):
    ends = f"from ms_symtensor.errors import EndedBySignal\n{text.format('EndedBySignal(143)')}"
    (tmp_path / "file_that_ends.py").write_text(ends)
    with pytest.raises(EndedBySignal):
        load_factory(place)


@ms.ops.constexpr
def _ends(size: int) -> int:
    raise SystemExit(size)


class _Ending(ms.nn.Cell):
    def construct(self, x):
        return x * _ends(3)


def test_a_function_that_runs_during_a_capture_is_told():
    with pytest.raises(
        CompilerError, match=r"rejects _Ending: a function of the network ended the process: sys.exit\(3\)"
    ):
        capture(_Ending(), empty(8, 16))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("async def factory():\n    return nn.ReLU(), ()", "a coroutine: it must return"),
        ("def factory():\n    return len, ()", "a tuple of 2, the first a builtin_function_or_method: it must return"),
        (
            "def factory():\n    return nn.ReLU(), (), {}",
            "a tuple of 3, the first a ReLU: it must return (cell, inputs)",
        ),
        ("def factory():\n    return None", "a NoneType: it must return (cell, inputs)"),
    ],
)
def test_what_is_no_network_with_its_inputs_is_told_in_a_line(lines, said, tmp_path, capsys):
    (tmp_path / "no_network.py").write_text(f"from mindspore import nn\n{lines}\n")
    assert main(["plan", f"{tmp_path}/no_network.py:factory", "--device-num", "2", "--out", str(tmp_path / "out")]) == 2
    errors = capsys.readouterr().err
    assert f"returned {said}" in errors and errors.count("\n") == 1


def test_a_file_called_as_a_library_takes_not_its_place(tmp_path):
    (tmp_path / "json.py").write_text("from mindspore import nn\ndef factory():\n    return nn.ReLU(), ()\n")
    cell, inputs = load_factory(f"{tmp_path}/json.py:factory")
    assert type(cell).__name__ == "ReLU" and inputs == ()
    assert sys.modules["json"] is json
    sys.path.remove(str(tmp_path))


def test_a_link_to_itself_is_told_in_a_line(tmp_path, capsys):
    (tmp_path / "loop.py").symlink_to("loop.py")
    assert main(["plan", f"{tmp_path}/loop.py:factory", "--device-num", "2", "--out", str(tmp_path / "out")]) == 2
    errors = capsys.readouterr().err
    assert "there is no file" in errors and errors.count("\n") == 1
