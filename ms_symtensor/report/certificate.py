"""What a verdict on a plan is worth for the files that MindSpore reads: whether they say what the plan says."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ms_symtensor.report.emit import for_mindspore
from ms_symtensor.report.programs import programs_of
from ms_symtensor.report.text import numbered
from ms_symtensor.strategy.folder import FOR_MINDSPORE, PlanFolder
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph


@dataclass(frozen=True)
class Certificate:
    """The operator strategies and strategy checkpoints of a folder: names of those that `agree` with the plan, of those that
    `differ` from it, with how they do, and of those that are `absent`.
    """

    agree: tuple[str, ...]
    differ: Mapping[str, str]
    absent: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether no file that is there differs."""
        return not self.differ


def certify(folder: PlanFolder, plan: Plan, graph: Graph | None) -> Certificate:
    """Compare the files of `folder` that MindSpore reads with those that `plan`, the plan in it, gives on its `graph`.

    JSON is compared as data, checkpoints byte by byte. Without a graph nothing is known: all that are there differ. Errors: as of
    `programs_of`.
    """
    there = {name: content for name, content in folder.files.items() if FOR_MINDSPORE.fullmatch(name)}
    if graph is None:
        return Certificate((), dict.fromkeys(there, "cannot be compared without graph.json"), ())
    expected = for_mindspore(plan, graph, programs_of(plan, graph))
    differ = {
        name: "differs from the plan" if name in expected else "is not of this plan"
        for name, content in there.items()
        if name not in expected or not _is_same(content, expected[name])
    }
    agree = tuple(name for name in expected if name in there and name not in differ)
    return Certificate(agree, differ, tuple(name for name in expected if name not in there))


def certificate_json(found: Certificate) -> dict[str, Any]:
    """What was certified beside plan.json, by the key that `symtensor verify --json` promises."""
    return {"files": {"certified": list(found.agree), "differ": dict(found.differ), "absent": list(found.absent)}}


def with_certificate(verdict: str, found: Certificate) -> str:
    """The text of a verdict on the plan, with what was found of the files before its last line, which tells whether it holds."""
    lines = []
    if found.agree:
        lines.append(f"  as the plan says: {numbered(found.agree)}")
    if found.absent:
        lines.append(f"  not in the folder: {numbered(found.absent)}")
    lines += [f"  NOT certified: {name} {how}" for name, how in found.differ.items()]
    head, _, last = verdict.rpartition("\n")
    if found.differ:
        last = f"{last} for the plan, NOT for the files that MindSpore reads"
    return "\n".join([*([head] if head else []), *lines, last])


def _is_same(content: bytes, expected: str | bytes) -> bool:
    if isinstance(expected, bytes):
        return content == expected
    try:
        return bool(json.loads(content) == json.loads(expected))
    except (ValueError, RecursionError):
        return False
