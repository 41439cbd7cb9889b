"""A step from below: no schedule of a placement within its memory is shorter.

A stage works nothing before the first micro-batch has come to it, and can go forward alone until the first gradient has come
back, with as many micro-batches as its memory takes. Behind its last B the gradients go on to the stages before it; at most so
many W are left then as its memory holds. And what a micro-batch keeps it keeps for as long as its way from there and back takes:
bytes times seconds of all of them fit into the memory of the step.
"""

import math

from ms_symtensor.scheduling.problem import Part, Problem

ROUNDING = 1e-9


def step_bound_s(problem: Problem) -> float:
    """Seconds that every schedule of `problem` takes at least."""
    return max(_of_stage_s(problem, stage) for stage in range(problem.stage_num))


def _of_stage_s(problem: Problem, stage: int) -> float:
    parts, limit_B = problem.parts_of(stage), problem.limit_B[stage]
    of = [problem.parts[part] for part in parts]
    counts = [problem.count_of[part] for part in parts]
    reached = [_reached_s(problem, part) for part in parts]
    head_s = max(problem.start_s[stage], min(come_s for come_s, _ in reached))
    back_s = min(back_s for _, back_s in reached)
    ahead_s = min(
        sum(count * one.forward_s for one, count in zip(of, counts, strict=True)),
        max(_times(limit_B, one.kept_B) * one.forward_s for one in of),
        _whole_times(limit_B, min(one.kept_B for one in of)) * max(one.forward_s for one in of),
    )
    waits_s = max(0.0, back_s - head_s - ahead_s)
    busy_s = problem.busy_s[stage]
    put_off_s = max(_times(limit_B, one.deferred_B) * one.weights_s if one.splits else 0.0 for one in of)
    weights_s = sum(count * one.weights_s for one, count in zip(of, counts, strict=True))
    after_s = min(_after_s(problem, part) for part in parts)
    held_s = sum(count * _held_Bs(problem, part) for part, count in zip(parts, counts, strict=True)) / limit_B
    at_least_s = head_s + held_s + problem.end_s[stage]
    return max(
        at_least_s, head_s + waits_s + max(busy_s + problem.end_s[stage], busy_s - min(weights_s, put_off_s) + after_s)
    )


def _times(limit_B: float, each_B: float) -> float:
    return limit_B / each_B if each_B else float("inf")


def _whole_times(limit_B: float, each_B: float) -> float:
    return math.floor(limit_B / each_B * (1 + ROUNDING)) if each_B else float("inf")


def _reached_s(problem: Problem, part: int) -> tuple[float, float]:
    """When a micro-batch can have come to `part`, and the gradient that its B reads."""
    route = next(route for route in problem.routes if part in route)
    place = route.index(part)
    of = [problem.parts[one] for one in route]
    start_s = problem.start_s[of[0].stage]
    come_s = start_s + sum(one.forward_s for one in of[:place])
    back = of[place + 1 :]
    return come_s, come_s + sum(one.forward_s for one in of[place:]) + sum(_back_s(one) for one in back)


def _held_Bs(problem: Problem, part: int) -> float:
    """Bytes times seconds that a micro-batch keeps in `part` at least: until its gradient comes back, and through W."""
    come_s, back_s = _reached_s(problem, part)
    of = problem.parts[part]
    weights_Bs = min(of.kept_B, of.deferred_B) * of.weights_s if of.splits else 0.0
    return of.kept_B * (back_s - come_s + _back_s(of)) + weights_Bs


def _back_s(part: Part) -> float:
    return part.backward_s if part.splits else part.backward_s + part.weights_s


def _after_s(problem: Problem, part: int) -> float:
    """What follows the last B of a part: those of the parts before it, and W and the end of the first of them."""
    route = next(route for route in problem.routes if part in route)
    before = [problem.parts[one] for one in route[: route.index(part)]]
    if not before:
        of = problem.parts[part]
        return (of.weights_s if of.splits else 0.0) + problem.end_s[of.stage]
    first = before[0]
    passed_s = sum(_back_s(one) for one in before)
    return passed_s + (first.weights_s if first.splits else 0.0) + problem.end_s[first.stage]
