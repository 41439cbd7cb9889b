"""The files of the plan, with buttons that copy them, and the commands that use them."""

from collections.abc import Iterator

from ms_symtensor.report.html.markup import Html, bytes_B, copied, element, folded, section, table
from ms_symtensor.strategy import digest
from ms_symtensor.strategy.folder import (
    BESIDE,
    CODE_FILE,
    DIGESTS_FILE,
    GRAPH_FILE,
    MINDFORMERS_FILE,
    MINDSPEED_FILE,
    OPERATOR_FILE,
    PLAN_FILE,
    REPORT_FILE,
    SPEED_UP_FILE,
    TIMING_FILE,
    PlanFolder,
)  # fmt: skip

MOST_B, MOST_OF_ALL_B = 100_000, 250_000
"""Larger files are named only: the page stays below 1 MB."""
WHAT = {
    PLAN_FILE: "the plan, complete", GRAPH_FILE: "the network's graph", CODE_FILE: "shard() calls in Python",
    MINDFORMERS_FILE: "degrees for MindFormers", MINDSPEED_FILE: "arguments for MindSpeed-LLM", REPORT_FILE: "the report as text",
    TIMING_FILE: "how long the search took", DIGESTS_FILE: "digests of the files", SPEED_UP_FILE: "overlap for MindSpore",
    OPERATOR_FILE: "strategies of operators, for MindSpore",
}  # fmt: skip
SHOWN = (MINDFORMERS_FILE, MINDSPEED_FILE, CODE_FILE, REPORT_FILE, OPERATOR_FILE)
"""Whose content is in the page, if it is not too large."""


def files_section(folder: PlanFolder, place: str) -> Html:
    """The table of files, the content of the small ones, and commands."""
    names = [name for name in folder.files if name not in BESIDE]
    rows = [
        (
            name, WHAT.get(name, "strategy checkpoint, for MindSpore"), bytes_B(len(folder.files[name])),
            element("code", digest.of_content(folder.files[name])[:12]), copied(f"{place}/{name}", "copy path"),
        )
        for name in names
    ]  # fmt: skip
    commands = [
        f"symtensor verify {place}",
        f"symtensor prove {place}",
        f"symtensor explain {place}",
        f"launch/msrun.sh {place}",
    ]
    shown = element("ul", *(element("li", element("code", one), copied(one)) for one in commands), class_="commands")
    return section(
        "files", "Files", "", shown, table(("file", "what", "bytes", "SHA-256", ""), rows, left=2), *_contents(folder)
    )


def _contents(folder: PlanFolder) -> Iterator[Html]:
    left_B = MOST_OF_ALL_B
    for name in SHOWN:
        content = folder.files.get(name, b"")
        if not content or len(content) > min(MOST_B, left_B):
            continue
        left_B -= len(content)
        text = content.decode("utf-8", errors="replace")
        button = element("button", "copy", type="button", class_="copy", data_copy_from=f"file-{name}")
        yield folded(name, button, element("pre", text, id=f"file-{name}"), on_paper=False)
