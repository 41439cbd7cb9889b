"""`communication.json`: every collective of a step with its times in milliseconds. Keys: mindspore.profiler 2.10.0,
analysis/viewer/ascend_communication_viewer.py.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ms_symtensor.errors import InputError
from ms_symtensor.files.reading import read_json
from ms_symtensor.measured.kinds import kind_of_collective
from ms_symtensor.measured.run import Exchange

FILE = "communication.json"
_TOTAL = "Total Op Info"
_REMEDY = "profile again"


def read_exchanges(path: Path, step: str | None, steps: int) -> Mapping[str, Exchange]:
    """Collectives by kind, of `step`, or of one of `steps` where they do not know their step."""
    data = read_json(path, "the profiler's communication", _REMEDY)
    if not isinstance(data, dict) or not data:
        raise InputError(f"{path} has no steps: {_REMEDY}")
    chosen = [data[f"step{step}"]] if f"step{step}" in data else list(data.values())
    share = 1 if f"step{step}" in data else 1 / steps
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for kind, time_ms, wait_ms in _collectives(path, chosen):
        for place, value in enumerate((1.0, time_ms / 1e3, wait_ms / 1e3)):
            sums[kind][place] += share * value
    return {kind: Exchange(*sums[kind]) for kind in sorted(sums)}


def _collectives(path: Path, steps: list[Any]) -> Iterator[tuple[str, float, float]]:
    try:
        for step in steps:
            for group in step.values():
                for name, found in group.items():
                    if name != _TOTAL:
                        times = found["Communication Time Info"]
                        kind = kind_of_collective(name) or name.partition("@")[0]
                        yield kind, float(times["Elapse Time(ms)"]), float(times["Wait Time(ms)"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not as MindSpore's profiler writes it ({error}): {_REMEDY}") from error
