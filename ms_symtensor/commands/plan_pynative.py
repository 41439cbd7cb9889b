"""`symtensor plan --target mindformers-pynative`: for a network of the zoo or a PyNative file, the file of the trainer."""

import argparse
from typing import Any


def plan_pynative(chosen: argparse.Namespace) -> int:
    """Plan, write and show; the exit code."""
    import json

    from ms_symtensor.arguments import memory_limit_B
    from ms_symtensor.cluster.load import load as load_cluster
    from ms_symtensor.commands.shared import require_positive, show_found, warned
    from ms_symtensor.files.writing import write_file
    from ms_symtensor.report.pynative_plan_report import pynative_plan_json, pynative_plan_text
    from ms_symtensor.report.text import seconds
    from ms_symtensor.search.possible import require_devices
    from ms_symtensor.targets.mindformers_pynative.file import text_of
    from ms_symtensor.targets.mindformers_pynative.planning import fixed_of, plan

    cluster = warned(load_cluster(chosen.cluster))
    require_positive("--device-num", chosen.device_num)
    require_devices(cluster, chosen.device_num)
    limit_B = memory_limit_B(cluster, chosen.memory_limit, chosen.memory_margin)
    name, config = _network(chosen)
    found = plan(name, config, chosen.device_num, cluster, limit_B, fixed_of(chosen.fix))
    text, data = pynative_plan_text(found, cluster), pynative_plan_json(found, cluster)
    head = (
        f"{name} on {chosen.device_num} devices of {cluster.name}: predicted {seconds(data['step_time_s'])} a step",
        "Planned for MindFormers 2.1 in PyNative mode; paths of data and checkpoints are yours to set.",
    )
    kept = {key: value for key, value in data.items() if key != "search_time_s"}  # the same plan, the same bytes
    written = {
        found.file: text_of(found.config, head),
        "pynative.json": json.dumps(kept, indent=1, sort_keys=True) + "\n",
        "report.txt": text + "\n",
    }
    for file, content in written.items():
        write_file(chosen.out / file, content)
    took = f"Searched in {seconds(found.search_time_s)}\nWritten to {chosen.out}: {', '.join(written)}"
    show_found(chosen, data, f"{text}\n\n{took}")
    return 0


def _network(chosen: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The network's name and its file: of the zoo, or a file that is there."""
    from pathlib import Path

    from ms_symtensor.targets.mindformers_pynative.network import config_of
    from ms_symtensor.targets.mindformers_pynative.planning import read_config

    if Path(chosen.model).suffix in (".yaml", ".yml"):
        config = read_config(chosen.model)
        if chosen.global_batch_size:
            config["training"] = (config.get("training") or {}) | {"global_batch_size": chosen.global_batch_size}
        if chosen.seq_length:
            config["model"]["seq_length"] = chosen.seq_length
        return Path(chosen.model).stem.removeprefix("pretrain_").removesuffix("_pynative"), config
    from model_zoo import dimensions_of

    batch = 16 if chosen.global_batch_size is None else chosen.global_batch_size
    return chosen.model, config_of(dimensions_of(chosen.model, chosen.num_layers, chosen.seq_length, batch), batch)
