"""What became of a training file of MindFormers, for people and for programs."""

from dataclasses import dataclass
from typing import Any

from ms_symtensor.bridge.judge.audit import Audit
from ms_symtensor.report.estimate_report import estimate_json
from ms_symtensor.report.plan_report import plan_json
from ms_symtensor.report.text import seconds, size, table
from ms_symtensor.report.verdict_report import verdict_json, verdict_text
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.targets.mindformers.better import Better
from ms_symtensor.targets.mindformers.reasons import reason_of
from ms_symtensor.targets.plain_yaml import value_text

_WIDEST = 44
"""Characters of a value in the table."""


@dataclass(frozen=True)
class Checked:
    """The audit of MindFormers' own network of so many blocks, with the planned degrees."""

    blocks: int
    audit: Audit


def check_json(checked: Checked) -> dict[str, Any]:
    """`check` of `symtensor mindformers --check --json`: the verdict by the keys of `verify`, and the blocks."""
    return {"blocks": checked.blocks, "device_num": checked.audit.device_num, **verdict_json(checked.audit.verdict)}


def check_text(checked: Checked) -> str:
    """The verdict, and of what."""
    head = (
        f"MindFormers' own network, {checked.blocks} blocks, the planned degrees on {checked.audit.device_num} devices"
    )
    return f"{head}\n{verdict_text(checked.audit.verdict)}"


def training_json(found: Better, out: str | None) -> dict[str, Any]:
    """What `symtensor mindformers --json` promises: times in seconds, sizes in bytes."""
    yours, free, graph = found.yours, found.free_s, found.yours_graph
    return {
        "file": found.file.name,
        "written": out,
        "global_batch_size": found.planned.global_batch_size,
        "yours": {"reason": yours} if isinstance(yours, str) or graph is None else estimate_json(yours, graph),
        "planned": plan_json(found.planned, found.graph),
        "free_layouts": {"reason": free} if isinstance(free, str) else {"step_time_s": free},
        "changes": [
            {"key": one.key, "old": one.old, "new": one.new, "reason": reason_of(one, found.planned, _plan(yours))}
            for one in found.changes
        ],
        "notes": list(found.file.notes),
    }


def training_text(found: Better, out: str | None) -> str:
    """The three steps in a line, what was taken for what, and every change with its reason."""
    plan = found.planned
    head = (
        f"{found.file.name}: {plan.model}, {plan.device_num} devices of {plan.cluster}, {plan.global_batch_size} samples of"
        f" {plan.seq_length} tokens"
    )
    parts = [head, _steps(found)]
    if found.file.notes:
        parts.append("\n".join(f"  note: {note}" for note in found.file.notes))
    parts.append(_changes(found))
    gap = plan.search.optimality_gap
    parts.append(f"At most {100 * gap:.0f} % above the best layout that MindFormers can be told, by this model.")
    if out is not None:
        parts.append(f"Written to {out}")
    return "\n\n".join(parts)


def _steps(found: Better) -> str:
    yours, free = found.yours, found.free_s
    first = f"yours has no price: {yours}" if isinstance(yours, str) else f"yours {_step(yours)}"
    last = f"free layouts: none, {free}" if isinstance(free, str) else f"free layouts {seconds(free)}"
    if not isinstance(free, str) and free > found.planned.prediction.step_time_s:
        last += " (their search found none faster)"
    return f"{first}; planned {_step(found.planned)}; {last}"


def _step(plan: Plan) -> str:
    fits = "" if plan.prediction.fits else " (does not fit)"
    return f"{seconds(plan.prediction.step_time_s)}, {size(plan.prediction.peak_memory_B)}{fits}"


def _changes(found: Better) -> str:
    if not found.changes:
        return "Nothing changes: no layout that fits and that MindFormers can be told is faster."
    rows = [
        (one.key, _short(one.old), _short(one.new), reason_of(one, found.planned, _plan(found.yours)))
        for one in found.changes
    ]
    return table(rows, ("key", "yours", "planned", "why"))


def _short(value: Any) -> str:
    text = "-" if value is None else value_text(value)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _plan(yours: Plan | str) -> Plan | None:
    return None if isinstance(yours, str) else yours
