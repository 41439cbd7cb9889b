"""What the command line takes, and what it prints beside its answers."""

import argparse
import importlib.util
import logging
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from ms_symtensor.cli import main
from ms_symtensor.command_line import MODULES, commands_of, parse, parser
from ms_symtensor.commands import options
from ms_symtensor.commands.sweep import LISTS
from ms_symtensor.cost import runtime
from ms_symtensor.errors import InputError
from ms_symtensor.search.constraints.limits import PINNED
from ms_symtensor.version import VERSION

ROOT = Path(__file__).parents[1]
COMMANDS = dict(commands_of(parser()))


def run(*arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    """`symtensor` in a process of its own; or `code`, to which the arguments are given."""
    start = ["-c", code] if code else ["-m", "ms_symtensor"]
    there = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *start, *arguments], capture_output=True, text=True, env=there, timeout=120)


def test_a_spelling_has_one_meaning() -> None:
    """In all commands an option takes the same, and its help begins with the same words; but a sweep takes several."""
    meanings: dict[str, set[tuple[object, ...]]] = defaultdict(set)
    for command in (parser(), *COMMANDS.values()):
        for option in command._actions:
            if command is COMMANDS["sweep"] and option.dest in LISTS:
                continue
            begin = re.split(r"[:;(,]", option.help or "")[0].strip()
            choices = tuple(option.choices or ()) if not isinstance(option, argparse._SubParsersAction) else ()
            for spelling in option.option_strings:
                meanings[spelling].add((option.dest, option.type, type(option), option.nargs, choices, begin))
    assert {spelling: found for spelling, found in meanings.items() if len(found) > 1} == {}


def test_the_names_in_help_texts_are_those_that_are_known() -> None:
    assert set(options.PINNED) == set(PINNED)
    assert set(options.HIDEABLE) == set(runtime.HIDEABLE)
    assert runtime.known_runtimes() == options.RUNTIMES


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_text_has_examples_that_are_right(name: str) -> None:
    text = COMMANDS[name].format_help()
    for example in MODULES[name].EXAMPLES:
        assert example in text
        assert parse(shlex.split(example)[1:]).command == name


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["--version"], ["plan", "--no-such-option"]])
def test_help_and_mistakes_import_nothing_that_plans(arguments: list[str]) -> None:
    code = """if True:
        import sys
        from ms_symtensor.__main__ import command
        try:
            command()
        finally:
            assert not {"numpy", "scipy", "sympy", "yaml", "ms_symtensor.search", "ms_symtensor.cli"} & set(sys.modules)
    """
    assert "Error" not in run(*arguments, code=code).stderr


def test_the_version_is_told() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"symtensor {VERSION}\n", "")


def test_help_tells_exit_codes() -> None:
    assert "exit codes:\n  0  done" in run("--help").stdout


@pytest.mark.skipif(importlib.util.find_spec("shtab") is None, reason="needs shtab")
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_is_told_what_to_complete(shell: str) -> None:
    done = run("--print-completion", shell)
    assert done.returncode == 0
    assert "--global-batch-size" in done.stdout


def test_without_shtab_the_remedy_is_told() -> None:
    code = "import sys; sys.modules['shtab'] = None; from ms_symtensor.__main__ import command; sys.exit(command())"
    done = run("--print-completion", "bash", code=code)
    assert done.returncode == 2
    assert "pip install" in done.stderr


def test_standard_output_holds_what_is_shown_alone() -> None:
    code = """if True:
        import os, subprocess, sys
        from ms_symtensor.streams import show, shown_alone
        with shown_alone():
            print("of Python")
            os.write(1, b"of C\\n")
            subprocess.run([sys.executable, "-c", "print('of a child')"])
            show("{}")
            print("of Python, later")
        print("afterwards")
    """
    done = run(code=code)
    assert done.stdout == "{}\nafterwards\n"
    assert {"of Python", "of C", "of a child", "of Python, later"} == set(done.stderr.splitlines())


@pytest.mark.matrix
def test_json_stands_alone_whatever_a_network_prints(tmp_path: Path) -> None:
    pytest.importorskip("mindspore")
    network = tmp_path / "net.py"
    text = (ROOT / "examples" / "mlp.py").read_text(encoding="utf-8")
    network.write_text(f'{text}\nimport os\nprint("noise")\nos.write(1, b"noise\\n")\n', encoding="utf-8")
    out = str(tmp_path / "plan")
    done = run("plan", f"{network}:factory", "--device-num", "4", "--out", out, "--json")
    assert done.returncode == 0
    assert done.stdout.startswith("{")
    assert "noise" not in done.stdout
    assert done.stderr.count("noise") >= 2


def test_what_is_done_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("ms_symtensor")
    command = [
        "plan",
        "gpt2_xl",
        "--num-layers",
        "1",
        "--seq-length",
        "128",
        "--device-num",
        "2",
        "--out",
        str(tmp_path),
    ]
    try:
        logger.addHandler(caplog.handler)
        assert main(["-v", *command]) == 0
        assert f"symtensor {VERSION}: plan" in caplog.messages
        assert "step: write" in caplog.messages
        caplog.clear()
        assert main(command) == 0
        assert not caplog.messages
    finally:
        logger.removeHandler(caplog.handler)
        logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    "words, near",
    (
        ("--batch-size 8", "; near: --global-batch-size"),
        ("--batch=8", "; near: --global-batch-size"),
        ("--devices 8", "; near: --device-num"),
        ("--qwertyuiop", ""),
        ("more", ""),
    ),
)
def test_an_unknown_option_is_told_with_those_that_are_near(words: str, near: str) -> None:
    with pytest.raises(InputError) as told:
        parse(["plan", "llama2_7b", "--device-num", "8", "--out", "x", *words.split()])
    assert str(told.value) == f"unrecognized arguments: {words}{near} (see symtensor plan --help)"
