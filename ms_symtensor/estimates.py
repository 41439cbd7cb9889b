"""What `symtensor estimate` prices: the configuration of a command line, those of a file, or a plan."""

import argparse
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from model_zoo.config import TransformerConfig
from ms_symtensor.arguments import limits, memory_limit_B, with_overlap
from ms_symtensor.cluster.load import is_known
from ms_symtensor.cluster.load import load as load_cluster
from ms_symtensor.cost.runtime import DEFAULT, runtime_of
from ms_symtensor.errors import InputError
from ms_symtensor.files.reading import read_json, read_text
from ms_symtensor.models import Model, asked, is_captured
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.streams import notice
from ms_symtensor.targets.mindspeed.reading import described
from ms_symtensor.targets.mindspeed.script import options_in
from ms_symtensor.targets.registry import MINDSPEED
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.uniform.estimate import estimate, reprice
from ms_symtensor.uniform.layout import UniformLayout
from ms_symtensor.uniform.request import pinned_layout
from ms_symtensor.uniform.rules import refused_by_mindspore

Priced = tuple[Plan, Graph]
DEFAULT_CLUSTER = "atlas_800t_a2"
NO_MARGIN = "0"
"""What fits is told at the device's limit: margins are for searches."""

OPTIONS = (
    "model", "cluster", "device_num", "global_batch_size", "seq_length", "num_layers", "attention", "dtype", "experts",
    "load_imbalance", "token_groups", "lora", "dim", "approximate", "memory_limit", "memory_margin", "runtime", "hide", "fix",
    "arguments",
)  # fmt: skip
"""What the command line, or an entry of a list, says of a configuration."""

_WHOLE, _NUMBER, _TEXT = ("a whole number", int), ("a number", (int, float)), ("a text", str)
_KINDS: Mapping[str, tuple[str, Any]] = {
    **dict.fromkeys(("device_num", "global_batch_size", "seq_length", "num_layers", "token_groups", "lora"), _WHOLE),
    **dict.fromkeys(("load_imbalance", "memory_limit"), _NUMBER),
    "memory_margin": ("a share such as 10%, or GiB such as 4", (int, float, str)),
    "dim": ("a list of texts", list),
    "approximate": ("true or false", bool),
    "fix": ("an object or a list of texts", (dict, list)),
}


def _is_of_kind(name: str, value: Any) -> bool:
    """Whether the option `name` of a list's entry may be `value`, which JSON gave."""
    kind = _KINDS.get(name, _TEXT)[1]
    if isinstance(value, list) and not all(isinstance(one, str) for one in value):
        return False
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def estimates(chosen: argparse.Namespace) -> list[Priced]:
    """The configurations that the command line, or its file, asks for, priced."""
    options = {name: getattr(chosen, name) for name in OPTIONS}
    if chosen.requests is None:
        return [_priced(options)]
    data = read_json(chosen.requests, "a list of configurations", "write it again")
    every = data if isinstance(data, list) else [data]
    found = []
    for number, one in enumerate(every):
        try:
            found.append(_priced(_asked_by(one, options)))
        except InputError as error:
            raise InputError(f"{chosen.requests}: entry {number}: {error}") from error
    return found


def _asked_by(entry: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """What an entry of a list asks for, beside the command line's options. Errors: InputError for what an entry cannot hold."""
    if not isinstance(entry, dict) or "model" not in entry:
        raise InputError("it is no object with a model: give model, device_num, fix, …")
    unknown = sorted(set(entry) - set(OPTIONS))
    if unknown:
        raise InputError(f"it has {unknown[0]!r}; known are {', '.join(OPTIONS)}")
    for name, value in entry.items():
        if value is not None and not _is_of_kind(name, value):
            raise InputError(f"{name} is {value!r}: give {_KINDS.get(name, _TEXT)[0]}")
    fix = entry.get("fix") or {}
    pins = [f"{name}={value}" for name, value in fix.items()] if isinstance(fix, dict) else fix
    return {**options, **entry, "fix": [*options["fix"], *pins]}


def _priced(options: Mapping[str, Any]) -> Priced:
    cluster = load_cluster(options["cluster"] or DEFAULT_CLUSTER)
    if not options["device_num"] or options["device_num"] < 1:
        given = "missing" if options["device_num"] is None else options["device_num"]
        raise InputError(f"--device-num is {given}: give the number of devices")
    if is_captured(options["model"]) or (model := asked(options).by_sample).config is None:
        raise InputError(
            f"{options['model']} has no uniform layouts: these are for decoders of the zoo and of a config.json; plan it, and"
            " give --plan DIR"
        )
    for note in model.notes:
        notice(note)
    fix, hide = with_overlap(options["fix"], options["hide"] or "")
    options = {**options, "hide": hide}
    wanted, config = limits(fix, []), model.config
    if options["arguments"]:
        model, config, layout, hide = _of_script(options["arguments"], model, config, options)
        options = {**options, "runtime": options["runtime"] or MINDSPEED.runtime, "hide": options["hide"] or hide}
    else:
        layout = pinned_layout(config, wanted, options["device_num"])
        if (options["runtime"] or DEFAULT) == DEFAULT and (reason := refused_by_mindspore(config, layout)):
            raise InputError(f"{reason}: pin pipeline_stages=2 or micro_batch_num=1, or give another --runtime")
    request = Request(
        cluster,
        options["device_num"],
        model.global_batch_size,
        model.seq_length,
        memory_limit_B(cluster, options["memory_limit"], str(options["memory_margin"] or NO_MARGIN)),
        model.name,
        model.source,
        wanted,
        runtime=runtime_of(options["runtime"] or DEFAULT, options["hide"] or ""),
    )
    return estimate(config, layout, request)


def _of_script(
    path: str | os.PathLike[str], model: Model, config: TransformerConfig, options: Mapping[str, Any]
) -> tuple[Model, TransformerConfig, UniformLayout, str]:
    """`model` of `config` with the batch and length of the launch script at `path`, both, its layout, and what it hides."""
    if options["fix"] or options["global_batch_size"] or options["seq_length"]:
        raise InputError(
            "--arguments says the layout, the batch and the length: leave --fix, --global-batch-size and --seq-length out"
        )
    said = options_in(read_text(path, "a launch script"), str(path))
    config, layout, hide = described(config, said, options["device_num"])
    source = {**model.source, "seq_length": str(config.seq_length)}
    sized = replace(model, global_batch_size=config.batch_size, seq_length=config.seq_length, source=source)
    return sized, config, layout, hide


def of_plan(
    plan: Plan,
    graph: Graph | None,
    cluster: str | None,
    runtime: str | None,
    hide: str,
    limit_GiB: float | None = None,
    margin: str | None = None,
) -> Priced:
    """`plan` with its price on `cluster` under `runtime`, or on its own under its own, and what fits there: within its own limit,
    or that of devices with another memory.
    """
    if graph is None:
        raise InputError(f"the plan of {plan.model} has no graph.json, on which its price stands: plan again")
    there = plan.planned_for if cluster is None else load_cluster(cluster)
    name, hides = runtime or plan.runtime, hide or ("" if runtime else plan.hide)
    prediction = reprice(plan, graph, there, runtime_of(name, hides))
    own = None if is_known(there) else there
    changed = replace(plan, cluster=there.name, own_cluster=own, runtime=name, hide=hides)
    prediction = replace(prediction, host_memory_B=plan.prediction.host_memory_B)
    is_larger_or_smaller = there.device.hbm_usable_B != plan.planned_for.device.hbm_usable_B
    if limit_GiB is not None or margin is not None or is_larger_or_smaller:
        limit_B = memory_limit_B(there, limit_GiB, margin or NO_MARGIN)
        prediction = replace(prediction, limit_B=limit_B, fits=prediction.peak_memory_B <= limit_B)
    return replace(changed, prediction=prediction), graph
