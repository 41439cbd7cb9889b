"""What documents have to be: short, linked, of the field's words, and the same as the data and the commands they tell of."""

import re
import shlex
from pathlib import Path

import pytest

from benchmarks.results import filled, pages
from ms_symtensor.command_line import parse
from tests.docs.pages import PAGES, ROOT, blocks, commands, sentences

README_LINES, README_B, SENTENCE_WORDS = 150, 10_000, 30
GENERATED = {"reference/cli.md", "reference/operators.md", "reference/python.md"}
"""Pages that `make docs` makes (docs/hooks.py)."""

COMMIT = re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{7,40}\b")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_readme_is_short() -> None:
    readme = ROOT / "README.md"
    assert len(readme.read_text(encoding="utf-8").splitlines()) <= README_LINES
    assert readme.stat().st_size <= README_B


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "results"], ids=name_of)
def test_sentences_are_short(page: Path) -> None:
    assert not [text for text in sentences(page) if len(text.split()) > SENTENCE_WORDS]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_commit_is_named(page: Path) -> None:
    assert not COMMIT.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [(page.parent / target).resolve() for target in LINK.findall(page.read_text(encoding="utf-8"))]
    made = {ROOT / "docs" / name for name in GENERATED}
    assert not [str(target) for target in targets if not target.exists() and target not in made]


def test_pages_of_docs_have_a_kind() -> None:
    assert {page.name for page in (ROOT / "docs").glob("*.md")} == {"index.md"}


@pytest.mark.parametrize("page", [file for file, _, _ in pages()], ids=name_of)
def test_results_are_those_of_the_data(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == filled(text), "write it again: python -m benchmarks.results"


SHELL = [
    (block.name, line)
    for page in PAGES
    for block in blocks(page)
    if block.kind == "sh"
    for line in commands(block.text)
]


@pytest.mark.parametrize("line", [line for _, line in SHELL if line.startswith("symtensor ") and ">" not in line])
def test_commands_are_those_of_the_parser(line: str) -> None:
    _, *arguments = shlex.split(line, comments=True)
    parse(arguments)


@pytest.mark.parametrize("name, line", SHELL, ids=lambda x: x)
def test_scripts_and_modules_exist(name: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    if words[:2] == ["python", "-m"]:
        assert (ROOT / f"{words[2].replace('.', '/')}.py").exists(), name
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE), name
    if words[0].startswith(("launch/", "tests/", "examples/")):
        assert (ROOT / words[0]).exists(), name
