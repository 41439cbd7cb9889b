"""The other ways to lay out the step: a table of the best, and why the others were filtered out."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ms_symtensor.program.schedules import DEFAULT_SCHEDULER
from ms_symtensor.report.text import seconds, size, table
from ms_symtensor.strategy.considered import Considered
from ms_symtensor.strategy.plan import Plan

ALIKE = 5e-4
"""Steps of one layout that differ by so little are the same, priced on another mesh (empirical)."""

_PARTS = ("work", "recompute", "bubble", "once")


def considered_text(plan: Plan, count: int) -> str:
    """The best `count` ways to lay out the step, with what an average stage spends in each."""
    rows: list[tuple[str, ...]] = []
    for one in _different(ways(plan))[:count]:
        if one.step_time_s is None:
            rows.append((*_layout(one), "", "", "", "", "", "", reason(one)))
            continue
        parts = (seconds(one.time_s[name]) if one.time_s else "" for name in _PARTS)
        ratio = f"{one.step_time_s / plan.prediction.step_time_s:.2f}"
        rows.append((*_layout(one), seconds(one.step_time_s), ratio, *parts, size(one.peak_memory_B or 0)))
    head = ("stages", "micro-batches", "mesh", "step", "ratio", "work", "recompute", "bubble", "once", "kept")
    return "Step layouts, screened\n" + table(rows, head, right=tuple(range(2)) + tuple(range(3, 10)))


def ways(plan: Plan) -> list[Considered]:
    """All ways to lay out the step, the best first: of those that the survey takes for faster than the plan, which is the best of
    all that were worked out, what it estimates is no step but a bound.
    """
    every = [
        one if not _is_faster(plan, one) else replace(one, bound_s=one.step_time_s or 0.0, step_time_s=None)
        for one in plan.search.considered
    ]
    return sorted(every, key=lambda one: one.rank)


def _is_faster(plan: Plan, one: Considered) -> bool:
    """Whether `one`, as screened, takes less than the plan does."""
    return one.step_time_s is not None and one.step_time_s < (1 - ALIKE) * plan.prediction.step_time_s


def _different(ways: Sequence[Considered]) -> list[Considered]:
    """`ways`, but for those that divide an axis of another one's mesh in two and take as long."""
    known = [way for way in ways if way.step_time_s is not None]
    return [one for one in ways if not any(_divides(one, other) for other in known)]


def _divides(one: Considered, other: Considered) -> bool:
    if one.step_time_s is None or other.step_time_s is None or len(one.mesh) <= len(other.mesh):
        return False
    if abs(one.step_time_s - other.step_time_s) > ALIKE * other.step_time_s:
        return False
    layout, same = (
        (
            w.pipeline_stages,
            w.micro_batch_num,
            w.pp_interleave_num,
            w.pipeline_scheduler,
            *w.mesh[: len(other.mesh) - 1],
        )
        for w in (one, other)
    )
    return layout == same


def reason(one: Considered) -> str:
    """Why this way to lay out the step was not worked out."""
    if math.isinf(one.bound_s):
        return "operators cannot be laid out so"
    return f"takes {seconds(one.bound_s)} or more" if one.fits else "does not fit"


def families_text(plan: Plan) -> str:
    """For every number of stages: how many ways there are, the best, and why the others were filtered out."""
    rows = []
    faster = any(_is_faster(plan, one) for one in plan.search.considered)
    for stages in sorted({one.pipeline_stages for one in plan.search.considered}):
        every = [one for one in plan.search.considered if one.pipeline_stages == stages]
        promised = [one.step_time_s for one in every if one.step_time_s is not None and _is_faster(plan, one)]
        times = [one.step_time_s for one in every if one.step_time_s is not None and not _is_faster(plan, one)]
        slow = [one.bound_s for one in every if one.step_time_s is None and one.fits and math.isfinite(one.bound_s)]
        large = sum(not one.fits for one in every)
        none = sum(math.isinf(one.bound_s) for one in every)
        rows.append((
            str(stages), str(len(every)), seconds(min(times)) if times else "", _from(slow), str(large or ""),
            str(none or ""), *((_from(promised),) if faster else ()),
        ))  # fmt: skip
    known = ("stages", "ways", "best step", "too slow by their bound", "do not fit", "operators cannot be laid out so")
    head = (*known, *(("screened as faster, not reached",) if faster else ()))
    return "Step layouts, screened (the plan: as its programs cost)\n" + table(
        rows, head, right=tuple(range(len(head)))
    )


def _from(times_s: Sequence[float]) -> str:
    """How many there are, and the least."""
    return f"{len(times_s)} (from {seconds(min(times_s))})" if times_s else ""


def considered_json(plan: Plan) -> list[dict[str, Any]]:
    """All ways to lay out the step, with the best step found, or the reason why none was looked for."""
    return [
        {
            "pipeline_stages": one.pipeline_stages, "micro_batch_num": one.micro_batch_num,
            "pp_interleave_num": one.pp_interleave_num, "pipeline_scheduler": one.pipeline_scheduler, "mesh": list(one.mesh),
            **({"reason": reason(one)} if one.step_time_s is None else {"step_time_s": one.step_time_s}),
        }
        for one in ways(plan)
    ]  # fmt: skip


def _layout(one: Considered) -> tuple[str, str, str]:
    stages = str(one.pipeline_stages) + (f" x {one.pp_interleave_num}" if one.pp_interleave_num > 1 else "")
    stages += f" {one.pipeline_scheduler}" if one.pipeline_scheduler != DEFAULT_SCHEDULER else ""
    return stages, str(one.micro_batch_num), " x ".join(map(str, one.mesh))
