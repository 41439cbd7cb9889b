"""The command with standard streams that are closed, full, or know few characters."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ms_symtensor.streams import notice_error, one_line

ROOT = Path(__file__).parents[1]
SMALL = "--num-layers 2 --global-batch-size 8 --seq-length 512 --device-num 2"


def run(shell, **variables):
    """Exit code, output and errors of `shell`, in which $SYMTENSOR is the command."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SYMTENSOR": f"{sys.executable} -m ms_symtensor", **variables}
    done = subprocess.run(["sh", "-c", shell], capture_output=True, env=environment)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("redirected", "code", "said"),
    [
        (">/dev/full", 2, b"symtensor: error: cannot write to standard output (No space left on device)"),
        (">&-", 0, b""),
        ("2>&-", 0, b""),
    ],
)
def test_a_plan_is_written_whatever_the_streams_are(redirected, code, said, tmp_path):
    found, out, errors = run(f"$SYMTENSOR plan gpt2_xl {SMALL} --out {tmp_path}/p {redirected}")
    assert found == code and errors.startswith(said) and len(errors.splitlines()) == bool(said)
    assert (tmp_path / "p/plan.json").read_text().startswith("{")
    assert bool(out) == (redirected == "2>&-")


def test_json_that_cannot_be_written_is_told_as_other_output_is(tmp_path):
    said = b"symtensor: error: cannot write to standard output (No space left on device)"
    code, _, errors = run(f"$SYMTENSOR plan gpt2_xl {SMALL} --json --out {tmp_path}/p >/dev/full")
    assert code == 2 and errors.startswith(said) and len(errors.splitlines()) == 1
    assert (tmp_path / "p/plan.json").read_text().startswith("{")


def test_a_working_directory_that_was_removed_is_told_in_a_line(tmp_path):
    gone = f"mkdir {tmp_path}/gone && cd {tmp_path}/gone && rmdir ../gone"
    code, out, errors = run(f"{gone} && $SYMTENSOR plan gpt2_xl {SMALL} --out p")
    assert (code, out) == (2, b"")
    assert errors == b"symtensor: error: the working directory was removed: change to one that exists\n"


@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full", ">&- 2>&- <&-"])
def test_a_mistake_is_told_by_the_exit_code_at_least(redirected):
    assert run(f"$SYMTENSOR plan nothing {SMALL} --out here {redirected}") == (2, b"", b"")


def test_help_that_cannot_be_written_is_no_traceback():
    code, _, errors = run("$SYMTENSOR plan --help >/dev/full")
    assert code == 2 and errors.startswith(b"symtensor: error: cannot write to standard output")


def test_characters_that_the_stream_does_not_have_are_replaced(tmp_path):
    common = f"$SYMTENSOR plan gpt2_xl {SMALL} --out {tmp_path}/p"
    code, out, errors = run(common, PYTHONIOENCODING="ascii")
    assert (code, errors) == (0, b"") and b"layers.0 ? 1" in out
    code, out, errors = run(f"$SYMTENSOR plan 'zoé…' {SMALL} --out {tmp_path}/p", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert (code, out) == (2, b"") and b"unknown model 'zo?" in errors


def test_a_refusal_is_one_line_of_printable_characters_with_its_beginning_and_end():
    line = one_line("what was wrong\n \x1b[31m" + "x" * 600 + ": what to do")
    assert line.startswith("what was wrong ?[31mx") and line.endswith("x: what to do") and len(line) == 450
    assert one_line("as\nit is…") == "as it is…"


def test_a_refusal_is_no_longer_than_a_line_may_be_with_what_stands_before_it(capsys):
    notice_error(ValueError("x" * 600 + ": what to do"))
    line = capsys.readouterr().err.rstrip("\n")
    assert line.startswith("symtensor: error: xxx") and line.endswith("x: what to do") and len(line) == 450


def test_a_place_that_the_locale_cannot_name_is_written_and_reported(tmp_path: Path) -> None:
    place = tmp_path / "plän"
    plain = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment = {**os.environ, **plain, "XDG_STATE_HOME": str(tmp_path / "state")}
    request = [
        "plan",
        "llama2_7b",
        "--num-layers",
        "1",
        "--device-num",
        "1",
        "--seq-length",
        "128",
        "--out",
        str(place),
    ]
    for arguments in (request, ["report", str(place)]):
        command = [sys.executable, "-m", "ms_symtensor", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr
    assert "plän" in (place / "report.html").read_text(encoding="utf-8")
