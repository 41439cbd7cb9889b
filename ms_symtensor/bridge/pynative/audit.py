"""A PyNative file audited: MindFormers' own parallelization of one rank of every stage, traced in a process of its own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ms_symtensor.bridge.pynative.interpreter import ask
from ms_symtensor.errors import InputError
from ms_symtensor.targets.mindformers_pynative.calls import Call, Calls, Parameter, Unit, counted
from ms_symtensor.targets.mindformers_pynative.modelled import Modelled, of_borders, of_units
from ms_symtensor.targets.mindformers_pynative.planning import natural_device_num, read_config
from ms_symtensor.targets.mindformers_pynative.shape import streams_of


@dataclass(frozen=True)
class StageTrace:
    """What one rank of a stage does in one step."""

    stage: int
    rank: int
    layers: tuple[tuple[int, int], ...]
    """First and last layer of each of its model chunks."""
    micro_batches: int
    calls: Calls
    """MindFormers' own, of one micro-batch."""
    modelled: tuple[Modelled, ...]
    units: tuple[Unit, ...]
    parameters_B: int
    kept_B: int
    """Activations of one micro-batch that the forward pass keeps."""
    kept_weights_B: int
    kept: tuple[tuple[str, str, tuple[int, ...], int, int], ...]
    """Operation, dtype, shape, bytes, how many; those that are most in number first."""


@dataclass(frozen=True)
class PynativeAudit:
    """A file, traced."""

    file: str
    device_num: int
    stages: tuple[StageTrace, ...]
    versions: dict[str, str]
    time_s: float
    peak_rss_B: int


def audit(file: str, device_num: int | None = None) -> PynativeAudit:
    """Trace `file` on `device_num` ranks; without a number, as many as give each rank one micro-batch.

    InputError with MindFormers' own words where it refuses the file.
    """
    config = read_config(file)
    devices = device_num or natural_device_num(config)
    found = ask({"task": "trace", "config": config, "device_num": devices})
    if "refused" in found:
        raise refused(file, devices, found["refused"])
    stages = tuple(stage_trace(one, config) for one in found["stages"])
    return PynativeAudit(file, devices, stages, found["versions"], found["time_s"], found["peak_rss_B"])


def refused(file: str, devices: int, words: str) -> InputError:
    """MindFormers' refusal as an error of ours, its words kept."""
    said = " ".join(words.split())
    return InputError(f"{Path(file).name} on {devices} ranks: MindFormers refuses it: {said}"[:440])


def stage_trace(found: dict[str, Any], config: dict[str, Any]) -> StageTrace:
    """What the child told of one stage."""
    own = counted((Call(*call[:5]), call[6]) for call in found["calls"] if call[5] == "mindformers")
    contexts = [
        Modelled(Call(*call[:5]), call[6] * found["micro_batches"], call[5])
        for call in found["calls"]
        if call[5] != "mindformers"
    ]
    units = tuple(_unit(unit) for unit in found["units"])
    stages = int((config["parallelism"]).get("pipeline_parallel") or 1)
    border = _borders(found, config, stages)
    return StageTrace(
        found["stage"],
        found["rank"],
        tuple((first, last) for first, last in found["layers"]),
        found["micro_batches"],
        own,
        (*of_units(units, found["micro_batches"], stages > 1), *contexts, *border),
        units,
        found["parameters"]["size_B"],
        found["kept_B"],
        found["kept_weights_B"],
        tuple((made_by, dtype, tuple(shape), size_B, count) for made_by, dtype, shape, size_B, count in found["kept"]),
    )


def _unit(found: dict[str, Any]) -> Unit:
    parameters = tuple(
        Parameter(dtype, elements, whole, partial) for dtype, elements, _, whole, partial in found["parameters"]
    )
    return Unit(found["name"], parameters, found["shards"], found["replicas"], found["reshards"])


def _borders(found: dict[str, Any], config: dict[str, Any], stages: int) -> tuple[Modelled, ...]:
    degrees, model = config["parallelism"], config["model"]
    if stages == 1:
        return ()
    last_layer = int(model["num_hidden_layers"]) - 1
    sides = sum((first > 0) + (last < last_layer) for first, last in found["layers"])
    length = int(model["seq_length"]) // int(degrees.get("context_parallel") or 1)
    length //= int(degrees.get("tensor_parallel") or 1)
    batch = int((config.get("training") or {}).get("local_batch_size") or 1)
    dtype = model.get("compute_dtype") or "bfloat16"
    streams = streams_of(model)
    hidden_B = (
        length
        * batch
        * (streams.number if streams else 1)
        * int(model["hidden_size"])
        * (4 if dtype == "float32" else 2)
    )
    return of_borders(hidden_B, dtype, sides, found["micro_batches"])
