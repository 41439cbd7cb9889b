"""A priced configuration for people and for programs."""

from collections.abc import Sequence
from typing import Any

from ms_symtensor.report.plan_report import headline, plan_json, times_and_memory
from ms_symtensor.report.rates import rates, rates_text
from ms_symtensor.report.text import seconds, size, table
from ms_symtensor.search.constraints.request import KEPT_FREE
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph

_OF_A_SEARCH = ("optimality_gap", "search_time_s", "candidates", "considered")


def estimate_json(plan: Plan, graph: Graph) -> dict[str, Any]:
    """The keys of `symtensor plan --json`, without those of a search."""
    return {name: value for name, value in plan_json(plan, graph).items() if name not in _OF_A_SEARCH}


def estimate_text(plan: Plan, graph: Graph) -> str:
    """Degrees, rates, time and memory."""
    prediction = plan.prediction
    is_near = prediction.fits and prediction.peak_memory_B > (1 - KEPT_FREE) * prediction.limit_B
    warned = (
        [f"  the peak is within {100 * KEPT_FREE:g} % of the limit: predictions are off by so much"] if is_near else []
    )
    return "\n\n".join([headline(plan), rates_text(plan, rates(plan, graph)), times_and_memory(plan), *warned])


def estimates_text(found: Sequence[tuple[Plan, Graph]]) -> str:
    """A table with a line for every configuration."""
    rows = []
    for plan, graph in found:
        its = rates(plan, graph)
        fits = "" if plan.prediction.fits else "does not fit"
        degrees = f"dp{plan.data_parallel} tp{plan.model_parallel} cp{plan.context_parallel} pp{plan.pipeline_stages}"
        rows.append(
            (
                plan.model,
                str(plan.device_num),
                f"{degrees} mb{plan.micro_batch_num}",
                seconds(plan.prediction.step_time_s),
                f"{its['tokens_per_s_device']:,.0f}",
                f"{100 * its['mfu']:.1f} %",
                size(plan.prediction.peak_memory_B),
                fits,
            )
        )
    head = ("model", "devices", "layout", "step", "tokens/s/device", "MFU", "peak", "")
    return table(rows, head, right=(1, 3, 4, 5, 6))
