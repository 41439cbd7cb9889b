"""A schedule, for people and for programs."""

from typing import Any

from ms_symtensor.report.text import seconds, size, table
from ms_symtensor.scheduling.problem import Kind
from ms_symtensor.scheduling.published import BOTH
from ms_symtensor.scheduling.solve import Candidate, Schedule
from ms_symtensor.scheduling.table import HEAD, rows
from ms_symtensor.strategy.plan import Plan


def schedule_json(plan: Plan, found: Schedule) -> dict[str, Any]:
    """The figures by key, without the table of actions; times in seconds, sizes in bytes of activations."""
    best, period = found.best, found.period
    by_name = {one.name: one for one in found.published}
    return {
        "model": plan.model,
        "cluster": plan.cluster,
        "pipeline_stages": found.network.stage_num,
        "micro_batch_num": found.network.micro_batch_num,
        "plan_step_time_s": plan.prediction.step_time_s,
        "activation_limit_B": found.network.limit_B,
        **_candidate(best),
        "step_bound_s": found.bound_s,
        "optimality_gap": found.gap,
        "period": None
        if period is None
        else {
            "period_s": period.period_s, "bound_s": period.bound_s, "gap": period.gap, "is_optimal": period.is_optimal,
            "micro_batches": len(best.problem.routes),
        },
        "gain": {
            name: one.simulated.step_s / best.simulated.step_s - 1 for name, one in by_name.items() if one.fits
        },
        "share_of_dualpipe_bubble": _share_of_dualpipe(best, by_name.get("DualPipe")),
        "published": [_candidate(one) for one in found.published],
        "left_out": dict(found.left_out),
        "placements": [
            {
                "placement": one.problem.placement,
                "splits": [part.splits for part in one.problem.parts],
                "period_s": one.period and one.period.period_s,
                "period_bound_s": one.period and one.period.bound_s,
                "period_gap": one.period and one.period.gap,
                "step_bound_s": one.bound_s,
                "step_time_s": one.best and one.best.simulated.step_s,
            }
            for one in found.searched
        ],
        "parts": [
            {
                "stage": part.stage, "forward_s": part.forward_s, "backward_s": part.backward_s,
                "weights_s": part.weights_s, "kept_B": part.kept_B, "deferred_B": part.deferred_B,
            }
            for part in best.problem.parts
        ],
        "limits_B": list(best.problem.limit_B),
        "start_s": list(best.problem.start_s),
        "end_s": list(best.problem.end_s),
    }  # fmt: skip


def actions_json(found: Schedule) -> dict[str, Any]:
    """The table of actions: its columns, and a line for each."""
    best = found.best
    return {"columns": list(HEAD), "actions": [list(row) for row in rows(best.problem, best.orders, best.simulated)]}


def splits(candidate: Candidate) -> bool:
    """Whether it splits a backward pass."""
    return any(action.kind is Kind.WEIGHTS for order in candidate.orders for action in order)


def _candidate(one: Candidate) -> dict[str, Any]:
    return {
        "schedule": one.name,
        "placement": one.problem.placement,
        "splits_backward": splits(one),
        "parameter_copies": 2 if one.problem.placement == BOTH else 1,
        "step_time_s": one.simulated.step_s,
        "bubble_s": _bubble_s(one),
        "activations_B": list(one.simulated.peak_B),
        "fits": one.fits,
    }


def _bubble_s(one: Candidate) -> float:
    """Seconds that stages wait, on average."""
    return sum(one.simulated.idle_s) / len(one.simulated.idle_s)


def _share_of_dualpipe(best: Candidate, dualpipe: Candidate | None) -> float | None:
    """The bubble beside DualPipe's, whatever memory that takes."""
    return _bubble_s(best) / _bubble_s(dualpipe) if dualpipe is not None and _bubble_s(dualpipe) > 0 else None


def schedule_text(plan: Plan, found: Schedule) -> str:
    """The figures on a page."""
    best, period = found.best, found.period
    shown = [*found.published, *([] if best in found.published else [best])]
    limit = size(round(found.network.limit_B))
    lines = [
        f"{plan.model}: {found.network.stage_num} stages, {found.network.micro_batch_num} micro-batches, {limit} of activations"
        " a stage",
        table([_row(one) for one in shown], _HEAD, right=(3, 4, 5)),
        f"The best: {best.name}, {best.problem.placement}, a step of {seconds(best.simulated.step_s)}, at most"
        f" {100 * found.gap:.1f} % above the bound for these placements",
    ]
    if best.problem.placement == BOTH:
        lines.append("  every parameter lies on two stages")
    if period is not None:
        proved = "optimal" if period.is_optimal else f"at most {100 * period.gap:.1f} % above the optimum"
        lines.append(
            f"  steady state: a micro-batch every {seconds(period.period_s / len(best.problem.routes))} ({proved})"
        )
    lines += [f"  not there: {name}: {why}" for name, why in found.left_out.items()]
    return "\n".join(lines)


_HEAD = ("schedule", "placement", "backward", "step", "bubble", "activations", "")


def _row(one: Candidate) -> tuple[str, ...]:
    return (
        one.name, one.problem.placement, "split" if splits(one) else "whole", seconds(one.simulated.step_s),
        seconds(_bubble_s(one)), size(round(max(one.simulated.peak_B))), "" if one.fits else _too_much(one),
    )  # fmt: skip


def _too_much(one: Candidate) -> str:
    """Of the stage that is furthest above what it may keep beside its weights, which may be less than others may."""
    peaks_B, limits_B = one.simulated.peak_B, one.problem.limit_B
    stage = max(range(len(peaks_B)), key=lambda n: peaks_B[n] - limits_B[n])
    return f"more than may be kept: stage {stage} {size(round(peaks_B[stage]))} of {size(round(limits_B[stage]))}"
