"""A plan for MindFormers' PyNative mode: from a network to its file, and from a file back to its price."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ms_symtensor.cluster.bounded_yaml import load_yaml
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InputError
from ms_symtensor.files.reading import read_json
from ms_symtensor.strategy.folder import PYNATIVE_FILE
from ms_symtensor.strategy.reading import Field
from ms_symtensor.targets.mindformers_pynative.checks import refusal
from ms_symtensor.targets.mindformers_pynative.degrees import Degrees, degrees_of, range_texts
from ms_symtensor.targets.mindformers_pynative.file import planned_config
from ms_symtensor.targets.mindformers_pynative.layers import EXCHANGES, MODULES, PREDICTED
from ms_symtensor.targets.mindformers_pynative.price import Price, price
from ms_symtensor.targets.mindformers_pynative.search import Found, search
from ms_symtensor.targets.mindformers_pynative.sections import require_sections
from ms_symtensor.targets.mindformers_pynative.shape import ModelShape, shape_of

Config = dict[str, Any]
FIXABLE = {
    "tensor_parallel": "tensor",
    "context_parallel": "context",
    "pipeline_parallel": "pipeline",
    "pipeline_parallel_interleave_num": "interleave",
    "expert_parallel": "expert",
    "local_batch_size": "local_batch",
    "data_parallel_shard": "shard",
    "dense_fsdp_shard_size": "dense_shard",
}
"""Keys of a file that a user may fix."""


@dataclass(frozen=True)
class PynativePlan:
    """A plan and its file."""

    name: str
    shape: ModelShape
    found: Found
    config: Config
    search_time_s: float
    cluster: str

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"pretrain_{self.name}_pynative.yaml"


def read_config(file: str) -> Config:
    """The file as MindFormers' `TrainConfig` will get it. InputError if it is none of PyNative."""
    config = load_yaml(Path(file), "MindFormers file")
    if not isinstance(config, dict) or "parallelism" not in config or "model" not in config:
        raise InputError(
            f"{file} has no sections `parallelism` and `model`: it is no file of MindFormers' PyNative mode."
        )
    require_sections(config, file)
    return config


def planned_file(path: Path) -> tuple[Path, int | None]:
    """The PyNative file of a plan's folder, and its devices; or a file as it is. InputError for another folder."""
    if not path.is_dir():
        return path, None
    record = path / PYNATIVE_FILE
    if not record.is_file():
        raise InputError(f"{path} has no {PYNATIVE_FILE}: give a plan of --target mindformers-pynative, or a file")
    root = Field(read_json(record, "a record of PyNative", "plan again"), str(record), remedy="plan again")
    return path / root["file"].text(), root["device_num"].integer(1)


def natural_device_num(config: dict[str, Any]) -> int:
    """Ranks for one micro-batch each: tensor x pipeline x context x (global / local batch size)."""
    degrees, training = config.get("parallelism") or {}, config.get("training") or {}
    names = ("tensor_parallel", "pipeline_parallel", "context_parallel")
    held = math.prod(int(degrees.get(name) or 1) for name in names)
    batch, local = int(training.get("global_batch_size") or 1), int(training.get("local_batch_size") or 1)
    return held * max(1, batch // local)


def plan(
    name: str, config: Config, device_num: int, cluster: Cluster, limit_B: int, fixed: Mapping[str, int] | None = None
) -> PynativePlan:
    """The fastest degrees for the network of `config`, its batch and its optimizer.

    InputError where MindFormers has no PyNative class for it; InfeasibleError where nothing fits.
    """
    began_s = time.perf_counter()
    shape = shape_of(config["model"])
    _require_priced(shape, (fixed or {}).get("context", 1))
    given = degrees_of(config, device_num)
    start = Degrees(
        device_num, global_batch=given.global_batch, safe_tokens=given.safe_tokens, optimizer=given.optimizer
    )
    found = search(shape, start, cluster, limit_B, fixed or {})
    shape = replace(shape, compressed_mask=shape.compressed_mask or found.degrees.context > 1)
    written = planned_config(config, shape, found.degrees)
    return PynativePlan(name, shape, found, written, time.perf_counter() - began_s, cluster.name)


def priced(config: Config, device_num: int, cluster: Cluster) -> Price:
    """The price of a file as it is. InputError where MindFormers would refuse it, in our words."""
    shape, degrees = shape_of(config["model"]), degrees_of(config, device_num)
    _require_priced(shape, degrees.context)
    why = refusal(shape, degrees) or _unpriced(shape, degrees)
    if degrees.tensor > 1 and not config["parallelism"].get("sequence_parallel"):
        why = why or f"tensor_parallel {degrees.tensor} needs sequence_parallel: true"
    if why:
        raise InputError(f"MindFormers would refuse these degrees on {device_num} devices: {why}")
    return price(shape, degrees, cluster)


def _require_priced(shape: ModelShape, context: int) -> None:
    if shape.compressed is not None and context > 1:
        raise InputError("context parallelism of DeepSeek-V4 has no price: leave context_parallel at 1")


def _unpriced(shape: ModelShape, degrees: Degrees) -> str:
    """What a file may say that no price is known for."""
    chunks = sorted(bounds for stage in degrees.chunks(shape.layers) for bounds in stage)
    if [layer for first, last in chunks for layer in range(first, last + 1)] != list(range(shape.layers)):
        return f"the stages' layers {', '.join(range_texts(tuple(chunks)))} are not those of the network, 0-{shape.layers - 1}"
    most = shape.layers + shape.predicted_tokens - 1
    recomputed = (
        degrees.recompute.layers,
        *(ranges for _, ranges in degrees.recompute.modules + degrees.recompute.kept),
    )
    beyond = [last for ranges in recomputed for _, last in ranges if last > most]
    if beyond:
        return f"layer {beyond[0]} is recomputed, and the last one is {most}"
    known = {inside + name for inside in ("", PREDICTED) for name in MODULES}
    strange = [name for name, _ in degrees.recompute.modules if name not in known]
    if strange:
        return f"recomputation of {strange[0]!r} is not priced: {', '.join(sorted(known))} are"
    slots = {inside + name for inside in ("", PREDICTED) for name in EXCHANGES}
    strange = [name for name, _ in degrees.recompute.kept if name not in slots]
    return f"exclude_op {strange[0]!r} is not priced: {', '.join(sorted(slots))} are" if strange else ""


def fixed_of(texts: list[str]) -> dict[str, int]:
    """`--fix tensor_parallel=4`. InputError for another name, or no number."""
    found: dict[str, int] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in FIXABLE or not value.isdecimal() or int(value) < 1:
            raise InputError(f"--fix {text!r}: of mindformers-pynative give a number for one of {', '.join(FIXABLE)}")
        if FIXABLE[name] in found:
            raise InputError(f"--fix {name} is given twice: leave one out")
        found[FIXABLE[name]] = int(value)
    return found
