"""The front of time against memory, for people and for programs."""

from collections.abc import Sequence
from typing import Any

from ms_symtensor.report.text import seconds, size, table
from ms_symtensor.strategy.plan import Plan


def pareto_json(front: Sequence[Plan]) -> list[dict[str, Any]]:
    """Each plan of the front by what tells it from the others; times in seconds, sizes in bytes."""
    return [
        {
            "step_time_s": plan.prediction.step_time_s,
            "peak_memory_B": plan.prediction.peak_memory_B,
            "pipeline_stages": plan.pipeline_stages,
            "micro_batch_num": plan.micro_batch_num,
            "data_parallel": plan.data_parallel,
            "model_parallel": plan.model_parallel,
            "optimizer_level": int(plan.settings.optimizer_level),
            "recompute": len(plan.settings.recompute),
        }
        for plan in front
    ]


def pareto_text(front: Sequence[Plan]) -> str:
    """A row for every plan of the front, the fastest first."""
    rows = [
        (
            size(one["peak_memory_B"]),
            seconds(one["step_time_s"]),
            f"{one['step_time_s'] / front[0].prediction.step_time_s:.2f}",
            *(str(one[name]) for name in list(one)[2:]),
        )
        for one in pareto_json(front)
    ]
    head = ("peak", "step", "ratio", "stages", "micro-batches", "data", "model", "optimizer level", "recomputed blocks")
    return "Time against memory\n" + table(rows, head, right=tuple(range(len(head))))
