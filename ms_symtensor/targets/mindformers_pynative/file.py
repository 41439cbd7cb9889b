"""Degrees in a PyNative file: the sections that a plan decides, the others as they are."""

import copy
from typing import Any

from ms_symtensor.targets.mindformers_pynative.degrees import Degrees, range_texts
from ms_symtensor.targets.mindformers_pynative.shape import ModelShape
from ms_symtensor.targets.yaml_text import with_value

Config = dict[str, Any]


def planned_config(config: Config, shape: ModelShape, degrees: Degrees) -> Config:
    """`config` with the degrees of a plan."""
    found = copy.deepcopy(config)
    found["training"] = (config.get("training") or {}) | {
        "local_batch_size": degrees.local_batch,
        "global_batch_size": degrees.global_batch,
    }
    found["parallelism"] = (config.get("parallelism") or {}) | _parallelism(shape, degrees)
    given = config.get("recompute") or {}
    found["recompute"] = given | {key: v for key, v in _recompute(degrees).items() if v is not None or key in given}
    if degrees.context > 1:
        found["model"]["use_attn_mask_compression"] = True
    return found


def text_of(text: str, config: Config, planned: Config) -> str:
    """`text`, which says `config`, with what `planned` says otherwise; comments and all else stay.

    InputError where a value cannot be changed alone, because an anchor stands for it.
    """
    for section, values in planned.items():
        known = config.get(section) or {}
        if not isinstance(values, dict):
            continue
        for key, value in values.items():
            path = (section, key)
            if isinstance(value, dict) and isinstance(known.get(key), dict) and section != "recompute":
                for inner, one in value.items():  # a data set's own settings
                    text = _changed(text, (*path, inner), known[key].get(inner), one)
            else:
                text = _changed(text, path, known.get(key), value)
    return text


def _changed(text: str, path: tuple[str, ...], old: Any, new: Any) -> str:
    return text if old == new else with_value(text, path, new)


def _parallelism(shape: ModelShape, degrees: Degrees) -> Config:
    found: Config = {
        "data_parallel_shard": degrees.data_shard if degrees.replicas > 1 else -1,
        "dense_fsdp_shard_size": degrees.dense_shard,
        "reshard_after_forward_policy": degrees.reshard,
        "tensor_parallel": degrees.tensor,
        "sequence_parallel": degrees.tensor > 1,
        "context_parallel": degrees.context,
        "context_parallel_method": degrees.context_method,
        "ulysses_degree_in_cp": degrees.ulysses_degree if degrees.context_method == "hybrid" else None,
        "pipeline_parallel": degrees.pipeline,
        "pipeline_parallel_schedule": degrees.schedule,
        "pipeline_parallel_interleave_num": degrees.interleave,
        "pipeline_parallel_layers_per_stage": "auto",
        "expert_parallel": degrees.expert,
    }
    if degrees.pipeline > 1:
        chunks = degrees.chunks(shape.layers)
        texts = [",".join(f"{first}-{last}" for first, last in ranges) for ranges in chunks]
        found["pipeline_parallel_layers_per_stage"] = texts
    return found


def _recompute(degrees: Degrees) -> Config:
    recomputation = degrees.recompute
    mode = "select" if recomputation.modules else "full" if recomputation.layers else "None"
    return {
        "mode": mode,
        "full_recompute_layer": range_texts(recomputation.layers) or None,
        "select_module": {name: range_texts(ranges) for name, ranges in recomputation.modules} or None,
        "exclude_op": {name: range_texts(ranges) for name, ranges in recomputation.kept} or None,
    }
