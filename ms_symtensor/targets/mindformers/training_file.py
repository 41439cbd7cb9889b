"""A training file of MindFormers in graph mode: its network, its step, and the layout that it says."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_zoo.config import TransformerConfig
from model_zoo.config_json import FILE, described
from ms_symtensor.errors import InputError
from ms_symtensor.files.reading import read_json
from ms_symtensor.program.schedules import SCHEDULERS
from ms_symtensor.search.constraints.request import GIB
from ms_symtensor.targets.mindformers.defaults import misspelt, said
from ms_symtensor.targets.mindformers.dimensions import DEREDUNDANCY, as_mindformers_runs, hugging_face, is_legacy
from ms_symtensor.targets.mindformers.reading import devices_of, layout_of, require_modelled, samples_of
from ms_symtensor.targets.yaml_text import data_of
from ms_symtensor.uniform.layout import UniformLayout


@dataclass(frozen=True)
class TrainingFile:
    """What a file says.

    Attributes:
        config: the network, whose batch is that of a step.
        layout: of the step, on `devices` devices; or why there is none: MindFormers refuses it, or it is not modelled.
        swaps: the optimizer is offloaded to host memory.
        threshold_KB: smaller parameters are not sharded by the optimizer.
        least_experts: expert_parallel must be at least this: two levels of AlltoAll need a node (transformer_config.py).
        memory_limit_B: `context.max_device_memory`; None: not given.
        notes: what the price takes for something else.
    """

    name: str
    text: str
    data: dict[str, Any]
    config: TransformerConfig
    layout: UniformLayout | str
    swaps: bool
    threshold_KB: int
    least_experts: int
    devices: int
    memory_limit_B: int | None
    is_legacy: bool
    notes: tuple[str, ...]


def read_training_file(path: str | os.PathLike[str], pretrained: Path | None = None) -> TrainingFile:
    """The training file at `path`; `pretrained`: a config.json or its folder, in the place of the file's pretrained_model_dir.

    Raises:
        InputError: for a file that is none, or is not for training in graph mode, and for what is not modelled.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read {path} ({getattr(error, 'strerror', None) or 'no text'}): check the path"
        ) from error
    data = data_of(text, Path(path).name)
    try:
        return _read(text, data, Path(path), pretrained)
    except InputError as error:
        raise InputError(f"{Path(path).name}: {error}") from error


def _read(text: str, data: dict[str, Any], path: Path, pretrained: Path | None) -> TrainingFile:
    _require_training(data)
    model = _record(_record(data, "model"), "model_config")
    if not model and not data.get("pretrained_model_dir") and pretrained is None:
        raise InputError(
            "it has neither model.model_config nor pretrained_model_dir: nothing says which network it trains"
        )
    published = _pretrained(data, path, pretrained, not _has_dims(model))
    found = described(hugging_face(model, published), _model_name(data, path))
    batch, _ = samples_of(data)
    config = as_mindformers_runs(found, model, _seq_length(data, model), batch)
    require_modelled(data)
    layout: UniformLayout | str
    try:
        layout = layout_of(data, config.num_layers, config.experts is not None, is_legacy(model))
    except InputError as error:
        layout = str(error)
    swaps = bool(said(data, "optimizer", "swap"))
    threshold_KB = int(said(data, "parallel", "parallel_optimizer_config", "parallel_optimizer_threshold"))
    levels = str(model.get("moe_token_dispatcher_type")) == "alltoall_deredundency"
    least = int(model.get("npu_nums_per_device") or 1) if levels else 1
    notes = tuple(_notes(data, model, config))
    return TrainingFile(
        path.name,
        text,
        data,
        config,
        layout,
        swaps,
        threshold_KB,
        least,
        devices_of(data),
        _limit_B(data),
        is_legacy(model),
        notes,
    )


def _require_training(data: dict[str, Any]) -> None:
    mode = said(data, "run_mode")
    if mode not in ("train", "finetune", None):
        raise InputError(f"run_mode is {mode!r}: only files for training are planned")
    if said(data, "context", "mode") not in (0, None, "GRAPH_MODE") or "training" in data or "parallelism" in data:
        raise InputError(
            "it is a file for PyNative: give --target mindformers-pynative, or a file in graph mode (context.mode 0)"
        )
    for key, meant in misspelt(data):
        raise InputError(f"{key} is no key of MindFormers: is {meant} meant?")
    if "parallel_config" not in data:
        raise InputError("it has no parallel_config: give a training file in graph mode")
    if data.get("use_parallel") is False:
        raise InputError("use_parallel is False: nothing is parallel in it; turn it on")
    optimizer = said(data, "optimizer", "type")
    if optimizer not in (None, "AdamW", "FP32StateAdamWeightDecay", "FusedAdamW", "PmaAdamW"):
        raise InputError(f"optimizer.type {optimizer!r} is not modelled: its states are not those of AdamW")


def _record(data: dict[str, Any], key: str) -> dict[str, Any]:
    found = data.get(key)
    return found if isinstance(found, dict) else {}


def _has_dims(model: dict[str, Any]) -> bool:
    """Whether the file itself says the network: its class, and a dim or two."""
    return any(key in model for key in ("type", "model_type")) and any(
        key in model for key in ("hidden_size", "num_layers")
    )


def _pretrained(data: dict[str, Any], path: Path, given: Path | None, is_needed: bool) -> dict[str, Any]:
    """The config.json that the file, or the user, points to; {} where there is none and none is needed."""
    place = given if given is not None else data.get("pretrained_model_dir")
    if not place:
        if is_needed:
            raise InputError("model.model_config has no dims: give --pretrained-model-dir, a config.json or its folder")
        return {}
    folder = Path(str(place))
    tried = [folder, folder / FILE, path.parent / folder, path.parent / folder / FILE]
    file = next((one for one in tried if one.is_file()), None)
    if file is None:
        if not is_needed and given is None:
            return {}
        raise InputError(
            f"{'--pretrained-model-dir' if given is not None else 'pretrained_model_dir'} {place} holds no {FILE}: give"
            " --pretrained-model-dir, a config.json or its folder"
        )
    found = read_json(file, "a config.json", "give another")
    if not isinstance(found, dict):
        raise InputError(f"{file} is no config.json: it holds no record of keys")
    return found


def _model_name(data: dict[str, Any], path: Path) -> str:
    name = said(data, "trainer", "model_name") or path.stem
    return re.sub(r"[^\w.-]+", "_", str(name))


def _seq_length(data: dict[str, Any], model: dict[str, Any]) -> int:
    loader = _record(_record(data, "train_dataset"), "data_loader")
    every = [model.get("seq_length"), _record(loader, "config").get("seq_length"), *_handled(loader)]
    found = next((one for one in every if one is not None), 4096)  # MindFormers' default
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise InputError(f"seq_length is {found!r}: give a whole number above 0")
    return found


def _handled(loader: dict[str, Any]) -> Iterator[Any]:
    for one in loader.get("handler") or ():
        if isinstance(one, dict):
            yield one.get("seq_length")


def _limit_B(data: dict[str, Any]) -> int | None:
    """`max_device_memory` in words such as 58GB, which MindSpore counts in GiB."""
    said_so = said(data, "context", "max_device_memory")
    found = re.fullmatch(r"(\d+\.?\d*) ?GB", str(said_so))
    if found is None and said_so is not None:
        raise InputError(f"context.max_device_memory is {said_so!r}: give a size such as 58GB")
    return int(float(found[1]) * GIB) if found else None


def _notes(data: dict[str, Any], model: dict[str, Any], config: TransformerConfig) -> Iterator[str]:
    """What the price takes for something else."""
    scheduler = said(data, "parallel", "pipeline_config", "pipeline_scheduler")
    if scheduler not in SCHEDULERS and said(data, "parallel_config", "pipeline_stage") != 1:
        yield f"pipeline_scheduler {scheduler} is priced as 1f1b, which the planned file says"
    if model.get("fp32_residual_connection"):
        yield "fp32_residual_connection: residuals are priced in the compute type"
    slices = said(data, "recompute_config", "recompute_slice_activation")
    if slices and said(data, "parallel_config", "model_parallel") != 1:
        yield "recompute_slice_activation: what recomputed blocks keep is priced whole"
    if config.experts is not None:
        form = f"experts have room for {config.experts.load_imbalance:g} times their even share of tokens"
        yield f"{form}: what their run-time sizes come to on the busiest rank"
        dispatcher = model.get("moe_token_dispatcher_type", "alltoall")
        if dispatcher not in ("alltoall", *DEREDUNDANCY):
            yield f"moe_token_dispatcher_type {dispatcher} is priced as {config.experts.dispatcher}"
