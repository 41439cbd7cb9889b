"""The numbers that were tried for a question, for people and for programs."""

from collections.abc import Sequence
from typing import Any

from ms_symtensor.report.plan_report import plan_json
from ms_symtensor.report.text import seconds, size, table
from ms_symtensor.search.fit import Attempt
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph

WHY = 90
"""Characters of a reason that are shown; JSON has all of them."""


def fit_json(name: str, answer: int, tried: Sequence[Attempt[Plan]], graph: Graph) -> dict[str, Any]:
    """The answer, every attempt in the order of its number (seconds, bytes), and the plan at the answer (`plan_json`),
    which is for `graph`."""
    (plan,) = (one.found for one in tried if one.number == answer)
    assert plan is not None
    return {
        name: answer,
        "tried": [
            {
                name: one.number,
                "fits": one.fits,
                "step_time_s": None if one.found is None else one.found.prediction.step_time_s,
                "peak_memory_B": None if one.found is None else one.found.prediction.peak_memory_B,
                "why": one.why,
            }
            for one in sorted(tried, key=lambda one: one.number)
        ],
        "plan": plan_json(plan, graph),
    }


def fit_text(head: str, name: str, tried: Sequence[Attempt[Plan]]) -> str:
    """`head`, the answer, and a row for every number that was tried."""
    rows = [_row(one) for one in sorted(tried, key=lambda one: one.number)]
    return f"{head}\n\n" + table(rows, (name, "fits", "step", "peak", ""), right=(0, 2, 3))


def _row(one: Attempt[Plan]) -> tuple[str, ...]:
    if one.found is None:
        why = one.why if len(one.why) <= WHY else f"{one.why[:WHY]}…"
        return str(one.number), "no", "", "", why
    prediction, plan = one.found.prediction, one.found
    layout = (
        f"data {plan.data_parallel}, model {plan.model_parallel}, stages {plan.pipeline_stages}, micro-batches"
        f" {plan.micro_batch_num}"
    )
    return str(one.number), "yes", seconds(prediction.step_time_s), size(prediction.peak_memory_B), layout
