"""The other ways to lay out the step: a table of the best, and why one of them was not taken."""

import math

from ms_symtensor.errors import InputError
from ms_symtensor.report.text import seconds, size, table
from ms_symtensor.strategy.considered import Considered
from ms_symtensor.strategy.plan import Plan

_NAMES = {"dp": "data", "tp": "model", "pp": "pipeline_stages", "mb": "micro_batch_num"}
_PARTS = ("work", "recompute", "bubble", "once")
_KEYS = ("pipeline_stages", "micro_batch_num", "data", "model")


def considered_text(plan: Plan, count: int) -> str:
    """The best `count` ways to lay out the step, with what an average stage spends in each."""
    rows: list[tuple[str, ...]] = []
    for one in plan.search.considered[:count]:
        if one.step_time_s is None:
            rows.append((*_layout(one), "", "", "", "", "", "", reason(one)))
            continue
        parts = (seconds(one.time_s[name]) if one.time_s else "" for name in _PARTS)
        ratio = f"{one.step_time_s / plan.prediction.step_time_s:.2f}"
        rows.append((*_layout(one), seconds(one.step_time_s), ratio, *parts, size(one.peak_memory_B or 0)))
    head = ("stages", "micro-batches", "mesh", "step", "ratio", "work", "recompute", "bubble", "once", "kept")
    return "Ways to lay out the step, surveyed\n" + table(rows, head, right=tuple(range(2)) + tuple(range(3, 10)))


def reason(one: Considered) -> str:
    """Why this way to lay out the step was not worked out."""
    if math.isinf(one.bound_s):
        return "operators cannot be laid out so"
    return f"takes {seconds(one.bound_s)} or more" if one.fits else "does not fit"


def why_not(plan: Plan, wanted: str) -> str:
    """Why the plan is not laid out as `wanted` says: `dp=8,tp=8`, also `pp`, `mb` or the long names.

    InputError for other names or numbers.
    """
    asked = _read(wanted)
    found = [one for one in plan.search.considered if all(_values(one)[key] == n for key, n in asked.items())]
    if not found:
        return (
            f"{wanted}: not among the {len(plan.search.considered)} ways that were looked at. Stages x mesh must be the"
            f" {plan.device_num} devices and not outnumber the blocks; micro-batches must divide the batch of"
            f" {plan.global_batch_size} and not be fewer than the stages. One stage is searched over all meshes at once, operator"
            " by operator (pp=1): the alternatives in report.txt are the usual ways to cut it"
        )
    one = found[0]
    ours, theirs = seconds(plan.prediction.step_time_s), _shown(one)
    if not one.fits:
        return f"{theirs}: its stages do not fit {size(plan.prediction.limit_B)}, whatever is recomputed"
    if one.step_time_s is None:
        return f"{theirs}: no plan of this kind takes less than {seconds(one.bound_s)}; the plan takes {ours}"
    lines = [f"{theirs}: takes {seconds(one.step_time_s)} at best; the plan takes {ours}"]
    mine = next((o for o in plan.search.considered if _is_plan(o, plan)), None)
    if mine is not None and mine is not one and mine.time_s and one.time_s:
        rows = [(name, seconds(mine.time_s[name]), seconds(one.time_s[name])) for name in _PARTS]
        lines.append(table(rows, ("an average stage", "the plan", wanted), right=(1, 2)))
    return "\n".join(lines)


def _is_plan(one: Considered, plan: Plan) -> bool:
    data, context, model = plan.data_parallel, plan.context_parallel, plan.model_parallel
    meshes = _mesh(data, model), _mesh(data * context, model), _mesh(data, context * model)
    return (one.pipeline_stages, one.micro_batch_num) == (plan.pipeline_stages, plan.micro_batch_num) and (
        one.mesh in meshes
    )


def _mesh(data: int, model: int) -> tuple[int, ...]:
    return tuple(n for n in (data, model) if n > 1) or (1,)


def _values(one: Considered) -> dict[str, int]:
    data, model = (*one.mesh, 1)[:2]
    return dict(zip(_KEYS, (one.pipeline_stages, one.micro_batch_num, data, model), strict=True))


def _layout(one: Considered) -> tuple[str, str, str]:
    return str(one.pipeline_stages), str(one.micro_batch_num), " x ".join(map(str, one.mesh))


def _shown(one: Considered) -> str:
    stages, number, mesh = _layout(one)
    return f"pipeline_stages {stages}, micro_batch_num {number}, mesh {mesh}"


def _read(wanted: str) -> dict[str, int]:
    asked: dict[str, int] = {}
    for part in wanted.split(","):
        name, _, number = part.strip().partition("=")
        key = _NAMES.get(name, name)
        if key not in _KEYS or not number.isdigit():
            known = ", ".join([*_NAMES, *_KEYS])
            raise InputError(f"{part!r} is no way to lay out a step: give NAME=NUMBER, with the names {known}")
        asked[key] = int(number)
    return asked
