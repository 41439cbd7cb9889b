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
FILES = sorted(file for folder in ("ms_symtensor", "model_zoo", "launch") for file in (ROOT / folder).rglob("*.py"))


def said(text: str) -> list[str]:
    """The phrases of `WORDS` in `text`, which may be broken over lines; names of the code (`spoilt`) are none."""
    text = " ".join(re.sub(r"`[^`]*`", "", text).lower().split())
    return [f"{phrase!r}: say {word}" for phrase, word in WORDS.items() if re.search(rf"\b{phrase}\b", text)]


def texts(file: Path) -> Iterator[str]:
    """The texts in a module: messages, and docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    in_search = "search" in file.relative_to(ROOT).parts
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
        if is_text and not (in_search and id(node) in alone):  # of the search, messages alone
            yield node.value


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documents_use_the_words_of_the_field(page: Path) -> None:
    assert not said(page.read_text(encoding="utf-8"))


def test_messages_use_the_words_of_the_field() -> None:
    found = {str(file.relative_to(ROOT)): phrases for file in FILES for text in texts(file) if (phrases := said(text))}
    assert not found
