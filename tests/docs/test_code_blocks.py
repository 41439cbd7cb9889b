"""Commands and code that documents show: they are run. What needs NPUs says so, and what it needs."""

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import ms_symtensor
from ms_symtensor.cli import main
from tests.docs.pages import PAGES, ROOT, Block, blocks, commands

CODE = [block for page in PAGES for block in blocks(page) if block.kind in ("sh", "python")]
MARKS = ("fast", "slow", "npu", "skip", "file")


def mark_of(block: Block) -> str:
    return block.mark.partition(" ")[0]


def run(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a block in `folder` as a user would, with this Python's commands and this package."""
    command = ["bash", "-euc", block.text] if block.kind == "sh" else [sys.executable, "-c", block.text]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    there = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=there, capture_output=True, text=True, timeout=1200)


@pytest.mark.parametrize("block", CODE, ids=lambda block: block.name)
def test_every_block_says_how_it_is_tested(block: Block) -> None:
    mark, _, reason = block.mark.partition(" ")
    assert mark in MARKS, "put <!-- test: fast, slow, npu WHAT, skip WHY or file PATH --> above it"
    assert reason or mark in ("fast", "slow")


@pytest.mark.parametrize("block", [block for block in CODE if block.kind == "python"], ids=lambda block: block.name)
def test_python_is_python_and_its_names_exist(block: Block) -> None:
    names = {
        node.attr
        for node in ast.walk(ast.parse(block.text))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ms_symtensor"
    }
    assert names <= set(ms_symtensor.__all__)


@pytest.mark.parametrize("block", [b for b in CODE if mark_of(b) == "file"], ids=lambda block: block.name)
def test_a_file_that_is_shown_is_that_file(block: Block) -> None:
    assert (ROOT / block.mark.partition(" ")[2]).read_text(encoding="utf-8") == block.text


FAST = sorted({block.page for block in CODE if mark_of(block) == "fast"})


@pytest.mark.parametrize("page", FAST, ids=lambda page: str(page.relative_to(ROOT)))
def test_fast_commands_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(page):
        for line in commands(block.text) if mark_of(block) == "fast" else ():
            program, *arguments = shlex.split(line)
            assert program == "symtensor"
            assert main(arguments) == 0, line


RUN = sorted({block.page for block in CODE if mark_of(block) in ("slow", "file")})


@pytest.mark.matrix
@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_all_blocks_run(page: Path, tmp_path: Path) -> None:
    """All that needs no NPU, in the order of the page; what it shows of the output is what is printed, but for numbers."""
    pytest.importorskip("mindspore")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    printed = ""
    for block in blocks(page):
        mark, _, rest = block.mark.partition(" ")
        if mark == "output":
            lines = {masked(line) for line in printed.splitlines()}
            assert not [line for line in block.text.splitlines() if masked(line) not in lines]
        elif mark == "file" and rest.endswith("in_python.py"):
            done = run(Block(page, block.line, "sh", "", f"cd examples && python {Path(rest).name}"), tmp_path)
            assert done.returncode == 0, done.stderr
        elif mark in ("fast", "slow"):
            done = run(block, tmp_path)
            wanted = int(rest.removeprefix("exit ") or 0)
            assert done.returncode == wanted, f"{block.name}: {done.stdout}{done.stderr}"
            printed = done.stdout


def masked(line: str) -> str:
    """A line without its numbers and their units."""
    return " ".join(re.sub(r"[\d.,]+(?:e-?\d+)? ?(?:ms|us|s|GiB|MiB|%)?(?= |$)", "#", line).split())
