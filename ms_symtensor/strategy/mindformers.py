"""A plan in the terms of MindFormers' YAML files: the parts of a training file that say how a step is laid out.

MindFormers cuts its operators by rules of its own from these degrees; what a plan cuts otherwise only `shard()` can say.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ms_symtensor.program.pipeline import Pipeline
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.strategy.plan import MicroBatchLoss, Plan
from ms_symtensor.tensor.graph import Graph

_SEMI_AUTO = 1  # MindFormers' number for "semi_auto_parallel"


def mindformers_yaml(plan: Plan, graph: Graph) -> str:
    """The file: comments on what it leaves out, and MindFormers' settings (names as of MindFormers 1.3 to 1.9)."""
    notes = [
        "The degrees of this plan in MindFormers' terms: put them into the file of your training.",
        "MindFormers cuts operators by its own rules; shard.py has the layouts of this plan.",
        *_left_out(plan),
    ]
    return "\n".join([*(f"# {note}" for note in notes), *_lines(settings_of(plan, graph), "")]) + "\n"


def settings_of(plan: Plan, graph: Graph) -> dict[str, Any]:
    """The settings as data."""
    settings, stage_num = plan.settings, plan.pipeline_stages
    level3 = settings.optimizer_level is OptimizerLevel.LEVEL3
    found: dict[str, Any] = {
        "runner_config": {"batch_size": plan.global_batch_size // (plan.data_parallel * plan.micro_batch_num)},
        "parallel": {
            "parallel_mode": _SEMI_AUTO,
            "full_batch": True,
            "enable_alltoall": settings.enable_alltoall,
            "enable_parallel_optimizer": settings.optimizer_level is not OptimizerLevel.NONE,
        },
        "parallel_config": {
            "data_parallel": plan.data_parallel,
            "model_parallel": plan.model_parallel,
            "context_parallel": plan.context_parallel,
            "expert_parallel": plan.expert_parallel,
            "pipeline_stage": stage_num,
            "micro_batch_num": plan.micro_batch_num,
            "use_seq_parallel": plan.sequence_parallel,
        },
        "recompute_config": {
            "recompute": _recomputed(plan, graph.blocks),
            "mp_comm_recompute": all(chosen.communication for chosen in settings.recompute.values()),
            "parallel_optimizer_comm_recompute": level3,
        },
    }
    if settings.optimizer_level is not OptimizerLevel.NONE:
        found["parallel"]["parallel_optimizer_config"] = {
            "optimizer_level": f"level{int(settings.optimizer_level)}",
            "optimizer_weight_shard_size": settings.optimizer_weight_shard_size,
            "parallel_optimizer_threshold": settings.parallel_optimizer_threshold_KB,
        }
    if settings.swap_optimizer:
        found["optimizer"] = {"type": "AdamW", "swap": True}
    if plan.pipeline is not None and stage_num > 1:
        model = {"offset": _offsets(plan.pipeline)}
        if plan.pp_interleave_num > 1:
            model = {"pp_interleave_num": plan.pp_interleave_num, **model}
        found["model"] = {"model_config": model}
    return found


def _recomputed(plan: Plan, blocks: tuple[str, ...]) -> Any:
    """True or False where that says it; else how many blocks of every stage, run by run where stages are interleaved."""
    recompute = plan.settings.recompute
    again = [name in recompute and not recompute[name].only for name in blocks]
    if len(set(again)) == 1:
        return again[0]
    if plan.pipeline is None:
        return [sum(again)]
    counts = [[sum(again[n] for n in run) for run in runs] for runs in plan.pipeline.layers]
    return _by_run(counts)


def _offsets(pipeline: Pipeline) -> Any:
    """How many blocks more than their even share (rounded down) the stages hold, run by run where they are interleaved."""
    even = pipeline.layer_num // (pipeline.stage_num * pipeline.interleave)
    return _by_run([[len(run) - even for run in runs] for runs in pipeline.layers])


def _by_run(numbers: list[list[int]]) -> Any:
    """From a list of runs for every stage to MindFormers' list of stages for every run, or to one list of stages."""
    turned = [list(one) for one in zip(*numbers, strict=True)]
    return turned[0] if len(turned) == 1 else turned


def _left_out(plan: Plan) -> list[str]:
    notes = []
    degrees = plan.data_parallel * plan.model_parallel * plan.context_parallel * plan.pipeline_stages
    if degrees != plan.device_num:
        notes.append(
            f"data_parallel x model_parallel x context_parallel x pipeline_stage is {degrees}, not {plan.device_num} devices:"
            " MindFormers cannot be told the layouts of this plan."
        )
    if any(chosen.in_part for chosen in plan.settings.recompute.values()):
        notes.append(
            "Some blocks have selective recomputation: see recompute in plan.json, and select_recompute and"
            " select_recompute_exclude here."
        )
    if plan.loss in (MicroBatchLoss.COUNTED, MicroBatchLoss.MEAN_OF_MEANS):
        notes.append(f"In MindFormers' own training step the loss is the {MicroBatchLoss.MEAN_OF_MEANS.value}.")
    if plan.settings.swap_optimizer:
        notes.append('swap (MindFormers 1.9) needs MS_DEV_RUNTIME_CONF="switch_inline:False" in the environment.')
    return notes


def _lines(data: Mapping[str, Any], margin: str) -> Iterator[str]:
    """YAML: an entry on every line; values that are not entries themselves as JSON, which YAML contains."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield f"{margin}{key}:"
            yield from _lines(value, margin + "  ")
        else:
            yield f"{margin}{key}: {json.dumps(value)}"
