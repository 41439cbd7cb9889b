"""MindSpore's cell `AutoParallel`, which has the settings of the parallel context of its own."""

from typing import Any


def is_auto_parallel(cell: Any) -> bool:
    """Whether `cell` is MindSpore's `AutoParallel`, which MindSpore itself knows by its name."""
    return type(cell).__name__ == "AutoParallel"


def set_on_auto_parallel(wrapper: Any, settings: dict[str, Any]) -> None:
    """The settings of a plan (`context_settings`) on an `AutoParallel` cell, in place of the user's."""
    wrapper._enable_alltoall = settings["enable_alltoall"]  # there is no interface for these two
    wrapper._gradient_fp32_sync = settings["gradient_fp32_sync"]
    optimizer = settings.get("parallel_optimizer_config")
    if optimizer is None:
        wrapper._enable_parallel_optimizer = False
    else:
        wrapper.hsdp(
            optimizer["optimizer_weight_shard_size"],
            optimizer["parallel_optimizer_threshold"],
            optimizer["optimizer_level"],
        )
