"""`symtensor plan --target mindformers-pynative`: for a network of the zoo or a PyNative file, the file of the trainer."""

import argparse
import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ms_symtensor.errors import InputError
from ms_symtensor.streams import notice

if TYPE_CHECKING:
    from model_zoo.config import TransformerConfig


_READ = ("device_num", "cluster", "memory_limit", "memory_margin", "fix", "out")


def plan_pynative(chosen: argparse.Namespace) -> int:
    """Plan, write and show; the exit code."""
    import json

    from ms_symtensor.arguments import memory_limit_B
    from ms_symtensor.commands.options import require_read
    from ms_symtensor.commands.shared import cluster_of, require_positive, show_found
    from ms_symtensor.files.writing import write_file
    from ms_symtensor.report.progress import progress
    from ms_symtensor.report.pynative_plan_report import pynative_plan_json, pynative_plan_text
    from ms_symtensor.report.text import seconds
    from ms_symtensor.search.possible import require_devices
    from ms_symtensor.strategy.folder import PYNATIVE_FILE
    from ms_symtensor.targets.mindformers_pynative import hyper_parallel
    from ms_symtensor.targets.mindformers_pynative.checks import warning
    from ms_symtensor.targets.mindformers_pynative.file import text_of
    from ms_symtensor.targets.mindformers_pynative.graph_mode import in_graph_mode
    from ms_symtensor.targets.mindformers_pynative.planning import fixed_of, plan

    require_read(chosen, *_READ, "model", "global_batch_size", "seq_length", "num_layers", "dim")
    cluster = cluster_of(chosen.cluster)
    require_positive("--device-num", chosen.device_num)
    require_devices(cluster, chosen.device_num)
    limit_B = memory_limit_B(cluster, chosen.memory_limit, chosen.memory_margin)
    name, base, config, network = _network(chosen)
    with progress() as step:
        step("configurations")
        found = plan(name, config, chosen.device_num, cluster, limit_B, fixed_of(chosen.fix))
    if wrong := warning(found.shape, found.found.degrees):
        notice(wrong)
    graph = None if network is None else in_graph_mode(network, found.found.degrees, cluster, limit_B)
    text, data = pynative_plan_text(found, cluster, graph), pynative_plan_json(found, cluster, graph)
    head = (
        f"{name} on {chosen.device_num} devices of {cluster.name}: predicted {seconds(data['step_time_s'])} a step",
        "Planned for MindFormers 2.1 in PyNative mode; paths of data and checkpoints are yours to set.",
    )
    kept = {key: value for key, value in data.items() if key != "search_time_s"}  # the same plan, the same bytes
    written = {
        found.file: "".join(f"# {line}\n" for line in head) + text_of(base, config, found.config),
        PYNATIVE_FILE: json.dumps(kept, indent=1, sort_keys=True) + "\n",
        hyper_parallel.FILE: hyper_parallel.train_yaml(name, found.found.degrees),
        "report.txt": text + "\n",
    }
    for file, content in written.items():
        write_file(chosen.out / file, content)
    took = f"Searched in {seconds(found.search_time_s)}\nWritten to {chosen.out}: {', '.join(written)}"
    show_found(chosen, data, f"{text}\n\n{took}")
    return 0


def _network(chosen: argparse.Namespace) -> "tuple[str, str, dict[str, Any], TransformerConfig | None]":
    """The network's name and its file, as text and as what it says: of the zoo, with its dims, or a file that is there."""
    from model_zoo.config_json import file_of as config_file
    from ms_symtensor.commands.shared import require_positive
    from ms_symtensor.models import is_factory, resolve
    from ms_symtensor.targets.mindformers_pynative.file import text_of
    from ms_symtensor.targets.mindformers_pynative.network import file_of

    if Path(chosen.model).suffix in (".yaml", ".yml"):
        if chosen.num_layers is not None:
            raise InputError("--num-layers is for networks of the zoo: write num_hidden_layers into the file")
        if chosen.dim:
            raise InputError("--dim is for a config.json: write the key into the file")
        config, text = _read(chosen.model), Path(chosen.model).read_text(encoding="utf-8")
        other = copy.deepcopy(config)
        if chosen.global_batch_size is not None:
            require_positive("--global-batch-size", chosen.global_batch_size)
            other["training"] = (config.get("training") or {}) | {"global_batch_size": chosen.global_batch_size}
        if chosen.seq_length is not None:
            require_positive("--seq-length", chosen.seq_length)
            _lengthen(other, chosen.seq_length)
        return _name_of(chosen.model), text_of(text, config, other), other, None
    if config_file(chosen.model) is None and (is_factory(chosen.model) or Path(chosen.model).exists()):
        raise InputError(
            f"{chosen.model} is not planned for {chosen.target}: give qwen3_32b or deepseek_v3, a config.json of Qwen3 or"
            " DeepSeek-V3, or a YAML file of MindFormers' PyNative mode with your dims"
        )
    batch = 16 if chosen.global_batch_size is None else chosen.global_batch_size
    options = {} if chosen.num_layers is None else {"num_layers": chosen.num_layers}
    model = resolve(chosen.model, batch, chosen.seq_length, options, dims=chosen.dim)
    for note in model.notes:
        notice(note)
    if model.config is None:
        raise InputError(f"{chosen.model} has no PyNative class in MindFormers: give qwen3_32b or deepseek_v3")
    return model.config.name, *file_of(model.config, batch), model.config


def _lengthen(config: "dict[str, Any]", tokens: int) -> None:
    """Another length of the samples, for the network and for its data."""
    model = config["model"]
    model["seq_length"] = tokens
    if model.get("max_position_embeddings"):
        model["max_position_embeddings"] = max(model["max_position_embeddings"], tokens)
    data = config.get("train_dataset")
    for key in ("dataloader", "config"):
        data = data.get(key) if isinstance(data, dict) else None
    if isinstance(data, dict) and "seq_length" in data:
        data["seq_length"] = tokens


def _read(file: str) -> "dict[str, Any]":
    """The file; what no price is known for is told."""
    from ms_symtensor.targets.mindformers_pynative.planning import read_config
    from ms_symtensor.targets.mindformers_pynative.sections import not_priced

    config = read_config(file)
    if strange := not_priced(config):
        notice(f"no price is known for {', '.join(strange)}: the step is the one without")
    return config


def _name_of(file: str) -> str:
    return Path(file).stem.removeprefix("pretrain_").removesuffix("_pynative")


def mindformers_pynative(chosen: argparse.Namespace) -> int:
    """`symtensor mindformers FILE.yaml --target mindformers-pynative`: the file priced as it is, and a planned copy."""
    from ms_symtensor.arguments import memory_limit_B
    from ms_symtensor.commands.options import require_read
    from ms_symtensor.commands.shared import cluster_of, require_positive, show_found
    from ms_symtensor.files.writing import write_file
    from ms_symtensor.report.pynative_plan_report import better_json, better_text
    from ms_symtensor.search.possible import require_devices
    from ms_symtensor.targets.mindformers_pynative.checks import warning
    from ms_symtensor.targets.mindformers_pynative.degrees import degrees_of
    from ms_symtensor.targets.mindformers_pynative.file import text_of
    from ms_symtensor.targets.mindformers_pynative.planning import (
        fixed_of,
        natural_device_num,
        plan,
        priced,
    )

    require_read(chosen, *_READ, "file")
    cluster = cluster_of(chosen.cluster)
    config = _read(str(chosen.file))
    devices = natural_device_num(config) if chosen.device_num is None else chosen.device_num
    require_positive("--device-num", devices)
    require_devices(cluster, devices)
    if chosen.out is not None and chosen.out.exists() and chosen.out.samefile(chosen.file):
        raise InputError(f"--out is {chosen.out}, the file that is read: give another place")
    try:
        yours, refused = priced(config, devices, cluster), ""
    except InputError as error:
        yours, refused = None, str(error)
    limit_B = memory_limit_B(cluster, chosen.memory_limit, chosen.memory_margin)
    found = plan(_name_of(str(chosen.file)), config, devices, cluster, limit_B, fixed_of(chosen.fix))
    if wrong := warning(found.shape, degrees_of(config, devices)) or warning(found.shape, found.found.degrees):
        notice(wrong)
    out = None if chosen.out is None else str(chosen.out)
    if chosen.out is not None:
        write_file(chosen.out, text_of(chosen.file.read_text(encoding="utf-8"), config, found.config))
    show_found(
        chosen, better_json(found, yours, refused, out, cluster), better_text(found, yours, refused, out, cluster)
    )
    return 0
