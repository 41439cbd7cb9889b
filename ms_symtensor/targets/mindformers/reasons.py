"""Why a key changes: what it is for, with the numbers of the steps before and after."""

from ms_symtensor.strategy.plan import Plan
from ms_symtensor.targets.mindformers.writing import Change

GIB = 1 << 30


def reason_of(change: Change, planned: Plan, yours: Plan | None) -> str:
    """In a few words; `yours`: the file's own step, None where it has no price."""
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
    if key in (
        "pipeline_stage",
        "offset",
        "pp_interleave_num",
        "pipeline_interleave",
        "pipeline_scheduler",
        "seq_split_num",
    ):
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
