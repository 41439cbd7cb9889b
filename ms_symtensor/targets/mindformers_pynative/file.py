"""Degrees in a PyNative file: the sections that a plan decides, the others as they are."""

import copy
from typing import Any

import yaml

from ms_symtensor.targets.mindformers_pynative.degrees import Degrees, range_texts
from ms_symtensor.targets.mindformers_pynative.shape import ModelShape

Config = dict[str, Any]


def planned_config(config: Config, shape: ModelShape, degrees: Degrees) -> Config:
    """`config` with the degrees of a plan."""
    found = copy.deepcopy(config)
    found["training"] = (config.get("training") or {}) | {
        "local_batch_size": degrees.local_batch,
        "global_batch_size": degrees.global_batch,
    }
    found["parallelism"] = (config.get("parallelism") or {}) | _parallelism(shape, degrees)
    found["recompute"] = _recompute(degrees)
    if degrees.context > 1:
        found["model"]["use_attn_mask_compression"] = True
    return found


def text_of(config: Config, head: tuple[str, ...] = ()) -> str:
    """The file's text, with lines of comment before it."""
    comment = "".join(f"# {line}\n" for line in head)
    return comment + yaml.dump(config, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


class _Dumper(yaml.SafeDumper):
    """Mappings in lines of their own, lists in one."""


def _in_one_line(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)


_Dumper.add_representer(list, _in_one_line)


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
    again = degrees.recompute
    if again.modules:
        found: Config = {"mode": "select", "select_module": {name: range_texts(r) for name, r in again.modules}}
        return found | ({"full_recompute_layer": range_texts(again.layers)} if again.layers else {})
    if again.layers:
        return {"mode": "full", "full_recompute_layer": range_texts(again.layers)}
    return {"mode": "None"}
