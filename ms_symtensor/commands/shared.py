"""What the commands share: the network, the plan's folder, and how an answer is shown."""

import argparse
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from model_zoo.config import TransformerConfig
from ms_symtensor.cluster.load import load
from ms_symtensor.cluster.ranges import outside_ranges
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InputError
from ms_symtensor.models import Model, asked
from ms_symtensor.search.constraints.limits import Limits
from ms_symtensor.strategy import folder as folders
from ms_symtensor.strategy.file import check, graph_in, plan_in
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.trust import remember
from ms_symtensor.streams import notice, show
from ms_symtensor.tensor.graph import Graph


def model_of(chosen: argparse.Namespace) -> Model:
    """The network that the options ask for."""
    model = asked(vars(chosen))
    for note in model.notes:
        notice(note)
    return model


def config_named(model: str, dims: Sequence[str], approximate: bool) -> TransformerConfig:
    """A network of the zoo, or of a config.json with `dims`. InputError for another, and for options that are for the latter."""
    from model_zoo.config_json import file_of, read
    from model_zoo.dimensions import dimensions_of

    file = file_of(model)
    if file is None and (dims or approximate):
        raise InputError(f"{'--dim' if dims else '--approximate'} is for a config.json, not for {model}: leave it out")
    if file is None:
        return dimensions_of(model)
    described = read(file, list(dims), None, approximate)
    for note in described.notes:
        notice(note)
    return described.config


def folder_of(chosen: argparse.Namespace, path: str | os.PathLike[str]) -> folders.PlanFolder:
    """The plan's folder at `path`. With --edited a line says what differs from what was written."""
    folder = folders.read(path, chosen.edited)
    if folder.differences:
        notice(f"as it is, --edited: {folders.told(folder.differences)}")
    return folder


def plan_and_graph(chosen: argparse.Namespace, what: str) -> tuple[folders.PlanFolder, Plan, Graph]:
    """The plan's folder that the command names, its plan and its graph, on which `what` stands; its operators are known then.

    Errors: InputError where the folder holds no graph, or plan and graph do not belong together.
    """
    folder = folder_of(chosen, chosen.directory)
    plan, graph = plan_in(folder, chosen.trust), graph_in(folder)
    if graph is None:
        raise InputError(f"{chosen.directory} holds no graph.json, on which {what}: plan again")
    check(plan, graph)
    know_operators(plan, graph)
    return folder, plan, graph


def know_operators(plan: Plan, graph: Graph) -> None:
    """Run the file of a plan's network where that may register operators which are not known."""
    from ms_symtensor.ops.registry import is_known

    if "factory" in plan.source and not all(op.body or is_known(op.type) for op in graph.ops):
        from ms_symtensor.bridge.apply.load_network import run_file
        from ms_symtensor.strategy.source import require_trusted

        require_trusted(plan)
        run_file(plan.source["factory"])


def remembered(digest: str) -> None:
    """Note that this user made the plan. A state folder that cannot be written is no error: then its factory needs --trust."""
    try:
        remember(digest)
    except InputError as error:
        notice(f"not noted as your own plan, so that its factory needs --trust: {error}")


def warned(cluster: Cluster) -> Cluster:
    """`cluster`, whose warnings are printed beside the output."""
    for warning in (cluster.warning, outside_ranges(cluster)):
        if warning:
            notice(f"warning: cluster {cluster.name}: {warning}")
    return cluster


def cluster_of(name: str) -> Cluster:
    """The cluster of that name or file, whose warnings are printed."""
    return warned(load(name))


def show_found(chosen: argparse.Namespace, data: dict[str, Any], text: str) -> None:
    """Show what was found: as JSON if asked, or as text."""
    show(json.dumps(data, indent=1, allow_nan=False) if chosen.json else text)


def require_folder(directory: Path) -> None:
    """InputError, before a long search, for a place where no folder can be: a file, or below one."""
    found = next((path for path in (directory, *directory.parents) if path.exists()), directory)
    if found.exists() and not found.is_dir():
        raise InputError(f"cannot write to {directory} ({found} is a file): choose another directory")


def require_positive(option: str, value: float | None) -> None:
    """InputError for a number that is given and not above 0."""
    if value is not None and not value > 0:
        raise InputError(f"{option} is {value:g}: give a number above 0")


def require_cut(model: Model, device_num: int, wanted: Limits) -> None:
    """InputError for a batch of several samples of which no number of devices can take equal parts, where nothing that is pinned
    says how it is laid out all the same.
    """
    batch = model.global_batch_size
    is_laid_out = wanted.operators or any(wanted.least.get(name, 1) > 1 for name in _WITHOUT_SAMPLES)
    if is_laid_out or wanted.most.get("data_parallel") == 1:
        return
    if "model" in model.source and batch > 1 and device_num > 1 and math.gcd(batch, device_num) == 1:
        raise InputError(
            f"a global batch of {batch} samples cannot be cut for {device_num} devices: give a batch that shares a divisor"
            f" with {device_num}, such as {device_num}; or pin how to do without (--fix model_parallel={device_num}, --fix"
            f" micro_batch_num={batch})"
        )


_WITHOUT_SAMPLES = ("pipeline_stages", "micro_batch_num", "model_parallel", "context_parallel", "expert_parallel")
"""What gives several devices work on one sample, or takes samples one after the other."""
