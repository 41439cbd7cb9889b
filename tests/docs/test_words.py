"""The field's words: what documents, messages and docstrings do not say, and what they say in its place."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT

WORDS = {
    "made again": "recomputed",
    "computed again": "recomputed",
    "blocks in part": "selective recomputation",
    "runs of blocks": "virtual stages, model chunks",
    "on the fly": "functional operator",
    "states on the host": "optimizer offload",
    "brought together": "all-gathered, all-reduced, reduce-scattered",
    "spoilt": "miscompiled",
}
NAMES = {
    "again": "recompute", "again_s": "recompute_s", "at_depth": "unfold", "below_s": "cutoff_s", "enough_s": "target_s",
    "flights": "in_flight", "known_s": "incumbent_s", "lots": "stage-split cases", "Judged": "a priced plan",
    "scatters_unasked": "implicit_reduce_scatter", "spoilt": "miscompiled", "spoilt_dims": "miscompiled_dims",
    "Turns": "PipelineSchedule", "worth_s": "min_gain_s",
}  # fmt: skip
SEARCH_NAMES = {
    "apart": "split_period", "asked": "request, constraints", "fitting": "make_feasible", "given": "fixed",
    "joined": "merge_period", "Lines": "column pool",
    "Met": "screening result", "moves": "redistributions", "Outcome": "screening result",
    "Row": "candidate", "Setting": "config group", "settled": "materialized plan", "tried": "incumbents", "waiting": "in_flight",
    "ways": "reshard paths, alternatives", "Whole": "materialized plan",
}  # fmt: skip
"""Names of the code: everywhere, and in the search."""
FILES = sorted(file for folder in ("ms_symtensor", "model_zoo", "launch") for file in (ROOT / folder).rglob("*.py"))


def said(text: str) -> list[str]:
    """The phrases of `WORDS` in `text`, which may be broken over lines; names of the code (`spoilt`) are none."""
    text = " ".join(re.sub(r"`[^`]*`", "", text).lower().split())
    return [f"{phrase!r}: say {word}" for phrase, word in WORDS.items() if re.search(rf"\b{phrase}\b", text)]


def texts(file: Path) -> Iterator[str]:
    """The texts in a module: messages, and docstrings."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


def named(file: Path) -> Iterator[str]:
    """What a module names: itself and its folder, functions, their parameters, classes, and fields."""
    yield from (file.stem, file.parent.name)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documents_use_the_words_of_the_field(page: Path) -> None:
    assert not said(page.read_text(encoding="utf-8"))


def test_messages_use_the_words_of_the_field() -> None:
    found = {str(file.relative_to(ROOT)): phrases for file in FILES for text in texts(file) if (phrases := said(text))}
    assert not found


def test_names_are_those_of_the_field() -> None:
    found = {
        f"{file.relative_to(ROOT)}: {name}": banned[name]
        for file in FILES
        for banned in [NAMES | SEARCH_NAMES if file.is_relative_to(ROOT / "ms_symtensor" / "search") else NAMES]
        for name in named(file)
        if name in banned
    }
    assert not found
