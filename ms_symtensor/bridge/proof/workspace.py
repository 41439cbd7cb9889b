"""The files of one job: programs and values for the processes, and what they found."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy

from ms_symtensor.bridge.compiled.gradient_sums import ACCUMULATED
from ms_symtensor.bridge.proof.programs import Executable
from ms_symtensor.bridge.proof.values import slice_of


@dataclass(frozen=True)
class Results:
    """What one process found: the loss of every call, gradients in the order of the weights, what these added up in where
    there are micro-batches, parameters by name.
    """

    losses: tuple[numpy.ndarray, ...]
    gradients: tuple[numpy.ndarray, ...]
    accumulated: tuple[numpy.ndarray, ...]
    parameters: Mapping[str, numpy.ndarray]


def write_program(
    job: Path,
    process: str,
    program: str,
    executable: Executable,
    inputs: Sequence[numpy.ndarray],
    parameters: Mapping[str, numpy.ndarray],
) -> None:
    """The program of one process, with its slices of the whole `inputs` (in the program's order) and `parameters`.

    What gradients add up in begins with zeros.
    """
    values = {}
    for number, ((name, _), value) in enumerate(zip(executable.inputs, inputs, strict=True)):
        values[f"i:{number:03d}"] = slice_of(value, executable.layouts.get(name), executable.rank)
    for name, kind in executable.parameters:
        if name.startswith(f"{ACCUMULATED}."):
            values[f"p:{name}"] = numpy.zeros(kind.shape, kind.dtype)
        else:
            values[f"p:{name}"] = slice_of(parameters[name], executable.layouts.get(name), executable.rank)
    (job / f"{process}.{program}.mindir").write_bytes(executable.mindir)
    with open(job / f"{process}.{program}.values", "wb") as file:
        numpy.savez(file, **values)


def begin(job: Path, programs: Mapping[str, int], groups: Mapping[str, Sequence[int]]) -> None:
    """Tell the processes that `job` is complete: programs by name with their number of calls, and all groups in them."""
    text = json.dumps({"programs": list(programs.items()), "groups": sorted((n, list(r)) for n, r in groups.items())})
    (job / "job.part").write_text(text, encoding="utf-8")
    os.replace(job / "job.part", job / "job.json")


def read_results(job: Path, process: str, program: str) -> Results:
    with numpy.load(job / f"{process}.{program}.results") as found:
        return Results(
            tuple(found[key] for key in sorted(found) if key.startswith("loss:")),
            tuple(found[key] for key in sorted(found) if key.startswith("gradient:")),
            tuple(found[key] for key in sorted(found) if key.startswith("accumulated:")),
            {key.removeprefix("parameter:"): found[key] for key in found if key.startswith("parameter:")},
        )
