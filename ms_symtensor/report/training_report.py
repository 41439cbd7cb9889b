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
from ms_symtensor.targets.mindformers.writing import Change
from ms_symtensor.targets.plain_yaml import value_text

_WIDEST = 44
"""Characters of a value in the table."""
_OF_STAGES = (
    "pipeline_stage", "offset", "pp_interleave_num", "pipeline_interleave", "pipeline_scheduler", "seq_split_num",
)  # fmt: skip
GIB = 1 << 30


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
            {"key": one.key, "old": one.old, "new": one.new, "reason": _reason_of(one, found.planned, _plan(yours))}
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
        (one.key, _short(one.old), _short(one.new), _reason_of(one, found.planned, _plan(found.yours)))
        for one in found.changes
    ]
    return table(rows, ("key", "yours", "planned", "why"))


def _short(value: Any) -> str:
    text = "-" if value is None else value_text(value)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _plan(yours: Plan | str) -> Plan | None:
    return None if isinstance(yours, str) else yours


def _reason_of(change: Change, planned: Plan, yours: Plan | None) -> str:
    """Why a key changes: what it is for, with the numbers of the steps before and after. `yours`: the file's own step, None where
    it has no price.
    """
    key = str(change.path[-1]) if len(change.path) < 4 else str(change.path[1])
    if key in ("batch_size", "micro_batch_num", "gradient_accumulation_steps", "micro_batch_interleave_num"):
        each = planned.global_batch_size // (planned.data_parallel * planned.micro_batch_num)
        counts = f"{planned.data_parallel} copies x {planned.micro_batch_num} micro-batches x {each} samples"
        return f"{counts} = {planned.global_batch_size}"
    if key == "dataset_strategy" or change.path[:2] == ("parallel", "dataset_strategy"):
        return "samples are cut as often as the model is copied"
    if change.path[0] == "recompute_config":
        return f"{_time('compute', planned, yours)}; peak {_peak(planned, yours)} of {planned.prediction.limit_B / GIB:.1f} GiB"
    if key in ("enable_parallel_optimizer", "parallel_optimizer_config") or "parallel_optimizer_config" in change.path:
        at_rest = ("parameters", "gradients", "optimizer_states")
        return f"weights, gradients and states {_bytes(at_rest, planned, yours)}"
    if key in _OF_STAGES:
        return _time("bubble", planned, yours)
    if key == "enable_alltoall":
        return "tensors change their cuts by AlltoAll, as priced"
    return _time("communication", planned, yours)


def _time(part: str, planned: Plan, yours: Plan | None) -> str:
    new = planned.prediction.time_s.get(part, 0.0)
    old = "" if yours is None else f"{yours.prediction.time_s.get(part, 0.0):.3g} s -> "
    return f"{part} {old}{new:.3g} s a step"


def _peak(planned: Plan, yours: Plan | None) -> str:
    old = "" if yours is None else f"{yours.prediction.peak_memory_B / GIB:.1f} -> "
    return f"{old}{planned.prediction.peak_memory_B / GIB:.1f}"


def _bytes(parts: tuple[str, ...], planned: Plan, yours: Plan | None) -> str:
    def size(plan: Plan) -> str:
        return f"{sum(plan.prediction.memory_B.get(part, 0) for part in parts) / GIB:.1f}"

    return f"{'' if yours is None else size(yours) + ' -> '}{size(planned)} GiB"
