"""The files through which a proof speaks with its processes: programs and values out, results back."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy

from ms_symtensor.bridge.proof.programs import Executable
from ms_symtensor.bridge.proof.values import slice_of

REFERENCE = "reference"


@dataclass(frozen=True)
class Results:
    """What one process found: the loss of every call, gradients in the order of the weights, parameters by name."""

    losses: tuple[numpy.ndarray, ...]
    gradients: tuple[numpy.ndarray, ...]
    parameters: Mapping[str, numpy.ndarray]


def write_job(directory: Path, programs: Sequence[tuple[str, int]], groups: Mapping[str, Sequence[int]]) -> None:
    """What all processes are to do: programs by name, with the number of calls, and the groups they need."""
    job = {"programs": list(programs), "groups": sorted((name, list(ranks)) for name, ranks in groups.items())}
    (directory / "job.json").write_text(json.dumps(job), encoding="utf-8")


def write_program(
    directory: Path,
    process: str,
    program: str,
    executable: Executable,
    inputs: Mapping[str, numpy.ndarray],
    parameters: Mapping[str, numpy.ndarray],
) -> None:
    """One process's program, with its slices of the whole `inputs` (in the program's order) and `parameters`."""
    values = {}
    for number, (name, _) in enumerate(executable.inputs):
        values[f"i:{number:03d}"] = slice_of(inputs[name], executable.layouts.get(name), executable.rank)
    for name, _ in executable.parameters:
        values[f"p:{name}"] = slice_of(parameters[name], executable.layouts.get(name), executable.rank)
    (directory / f"rank{process}.{program}.mindir").write_bytes(executable.mindir)
    with open(directory / f"rank{process}.{program}.values.npz", "wb") as file:
        numpy.savez(file, **values)


def read_results(directory: Path, process: str, program: str) -> Results:
    with numpy.load(directory / f"rank{process}.{program}.results.npz") as found:
        return Results(
            tuple(found[key] for key in sorted(found) if key.startswith("loss:")),
            tuple(found[key] for key in sorted(found) if key.startswith("gradient:")),
            {key.removeprefix("parameter:"): found[key] for key in found if key.startswith("parameter:")},
        )
