"""Why the step is not laid out in another way: the best plan of that kind, beside the plan."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ms_symtensor.errors import ImpossibleError, InfeasibleError, InputError
from ms_symtensor.report.text import percent, seconds, size, table
from ms_symtensor.search.constraints.limits import SHORT, Limits, limits_of
from ms_symtensor.strategy.plan import Plan

_LAYOUT = (
    "data_parallel", "model_parallel", "sequence_parallel", "context_parallel", "expert_parallel", "pipeline_stages",
    "micro_batch_num", "pp_interleave_num",
)  # fmt: skip

_BETWEEN = re.compile(r",(?=[^,=()]+=)")
"""A comma before the next NAME=; others are part of a value: `*.query.matmul=(1,1)(8,1)`, `*/attention/*=dp,tp,dp=4`."""

SAME = 1e-6
"""Relative difference that is none: of sums in another order."""

_GROWTH, _MOST = 1.25, 10
"""Where nothing fits, so many larger memories are tried, each so much larger: up to nine times the limit."""


def why_not(plan: Plan, wanted: str, replan: Callable[[Limits, int], Plan]) -> str:
    """Why the plan is not laid out as `wanted` says: `dp=8,tp=8`, or other names that can be pinned, operators' patterns too.

    `replan(limits, limit_B)` is the best plan of the same network within these limits and bytes of a device. The other pins of
    the plan hold. Errors: InputError for what cannot be pinned, or what the network or the devices do not allow.
    """
    asked = _read(wanted)
    kept = [(name, value) for name, value in plan.fixed.items() if name not in asked]
    below = [(name, value) for name, value in plan.at_most.items() if name not in asked]
    limits = limits_of([*kept, *asked.items()], below)
    limit_B, ours = plan.prediction.limit_B, seconds(plan.prediction.step_time_s)
    try:
        other = replan(limits, limit_B)
    except ImpossibleError as error:
        return f"{wanted}: {error}"
    except InfeasibleError as error:
        found = _with_more_memory(limits, limit_B, replan)
        if found is None:
            return f"{wanted}: {error}"
        peak_B = found.prediction.peak_memory_B
        head = (
            f"{wanted}: does not fit. The smallest such plan that was found needs {size(peak_B)},"
            f" {size(peak_B - limit_B)} more than the {size(limit_B)} of a device"
        )
        return f"{head}\n{_compared(plan, found, wanted)}"
    theirs = other.prediction.step_time_s
    if theirs <= plan.prediction.step_time_s * (1 + SAME):
        alike = all(getattr(other, name) == getattr(plan, name) for name in _LAYOUT)
        if alike and other.settings.swap_optimizer == plan.settings.swap_optimizer:
            return f"{wanted}: the plan is so"
        faster = theirs < plan.prediction.step_time_s * (1 - SAME)
        head = (
            f"takes {seconds(theirs)}, less than the plan, {ours}: a pin forbids it"
            if faster
            else "takes as long as the plan"
        )
        return f"{wanted}: {head}\n{_compared(plan, other, wanted)}"
    slower = percent(theirs / plan.prediction.step_time_s - 1, digits=3)
    head = f"{wanted}: takes {seconds(theirs)} at best, {slower} % more than the plan, {ours}"
    return f"{head}\n{_compared(plan, other, wanted)}"


def _with_more_memory(limits: Limits, limit_B: int, replan: Callable[[Limits, int], Plan]) -> Plan | None:
    """The plan within the least of the larger memories in which there is one; None where memory is not what is missing."""
    found: Plan | None = None
    for power in (_MOST, *range(1, _MOST)):
        try:
            found = replan(limits, int(limit_B * _GROWTH**power))
        except InfeasibleError:
            if found is None:
                return None
        else:
            if power < _MOST:
                break
    return found


def _compared(plan: Plan, other: Plan, wanted: str) -> str:
    """Both plans side by side: how they are laid out, and what every part of the step and of the memory comes to."""
    rows = [(name, _shown(getattr(plan, name)), _shown(getattr(other, name)), "") for name in _LAYOUT]
    one, two = plan.settings, other.settings
    rows.append(("optimizer_level", str(int(one.optimizer_level)), str(int(two.optimizer_level)), ""))
    if one.swap_optimizer or two.swap_optimizer:
        rows.append(("swap_optimizer", _shown(one.swap_optimizer), _shown(two.swap_optimizer), ""))
    rows.append(("recompute", str(len(one.recompute)), str(len(two.recompute)), ""))
    part = [sum(chosen.in_part for chosen in of.recompute.values()) for of in (one, two)]
    rows += [("selective recomputation", str(part[0]), str(part[1]), "")] if any(part) else []
    first, second = plan.prediction, other.prediction
    rows += _differences(seconds, first.time_s, second.time_s, "step")
    rows += _differences(size, first.memory_B, second.memory_B, "peak memory")
    return table(rows, ("", "the plan", wanted, "difference"), right=(1, 2, 3))


def _differences(
    text: Callable[[Any], str], first: Mapping[str, float], second: Mapping[str, float], total: str
) -> Iterator[tuple[str, str, str, str]]:
    """What both have of every part, and of all together."""
    pairs = {name: (first.get(name, 0), second.get(name, 0)) for name in {**first, **second}}
    pairs[total] = sum(first.values()), sum(second.values())
    for name, (a, b) in pairs.items():
        more = b - a if abs(b - a) > SAME * abs(a) else 0
        yield name, text(a), text(b), ("-" if more < 0 else "+") + text(abs(more)) if more else ""


def _shown(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _read(wanted: str) -> dict[str, str]:
    asked: dict[str, str] = {}
    for part in _BETWEEN.split(wanted):
        name, equals, value = (x.strip() for x in part.partition("="))
        if not name or not equals or not value:
            raise InputError(
                f"{part!r} is no way to lay out a step: give NAME=VALUE, such as dp=8 ({', '.join(SHORT)}, or long names)"
            )
        name = SHORT.get(name, name)
        if name in asked:
            raise InputError(f"{wanted}: {name} is there twice, {asked[name]} and {value}: ask for one after the other")
        asked[name] = value
    return asked
