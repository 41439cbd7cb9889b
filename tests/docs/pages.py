"""The documents, and the blocks of code that they show."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md")))
SHOWN = (ROOT / "README.md", *sorted((ROOT / "docs" / "tutorial").glob("*.md")))
"""Pages of which every block is run, or says why not."""

_FENCE = re.compile(
    r"(?:^<!-- test: (?P<mark>.*?) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and what the comment above it says of its test (`fast`, `slow`, `npu …`)."""

    page: Path
    line: int
    kind: str
    mark: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start("kind")) + 1
        yield Block(page, line, found["kind"], found["mark"] or "", found["text"])


def commands(text: str) -> Iterator[str]:
    """The lines of a shell block that run something."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line.strip()


def prose(page: Path) -> str:
    """A page without its blocks, tables, comments and pieces of code."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "code", text)
    return "\n".join(line for line in text.splitlines() if not line.startswith(("|", "    ", ":::")))


def sentences(page: Path) -> Iterator[str]:
    """The sentences of a page's prose; a heading, an item of a list or a paragraph ends one."""
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-#]|\d+\.) )", prose(page)):
        text = re.sub(r"\]\([^)]*\)", "]", " ".join(paragraph.split()))
        yield from re.split(r"(?<=[.!?])[*\"]*\s+", text)
