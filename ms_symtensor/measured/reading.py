"""Where a run's logs and profiles are: files and folders that a user names, read as what they are."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ms_symtensor.errors import InputError
from ms_symtensor.measured import exchanges, memory, operators, step_trace
from ms_symtensor.measured.log import read_log
from ms_symtensor.measured.run import Log, Memory, Profile, Run

OUTPUT, FRAMEWORK = "ASCEND_PROFILER_OUTPUT", "FRAMEWORK"
_RAW = "PROF_"
"""Folders in which the profiler keeps what it has not parsed."""
_RANK_FILE = re.compile(r"profiler_info_(\d+)\.json")
_RANK_FOLDER = re.compile(r"rank_?(\d+)")


def read_run(paths: Sequence[Path], profiled_steps: int | None = None) -> Run:
    """The run that left `paths`: logs, folders of logs, folders of MindSpore's profiler, or folders that hold those of ranks.

    `profiled_steps`: how many steps a profile holds that does not tell them apart. Errors: InputError for a path that holds
    nothing of a run, for two profiles of one rank, and those of the readers.
    """
    logs: list[Log] = []
    profiles: list[Profile] = []
    for path in paths:
        found_profiles = [_profile(folder, profiled_steps) for folder in _profiled(path)] if path.is_dir() else []
        found_logs = [log for file in _log_files(path) if (log := read_log(file)) is not None]
        if not found_profiles and not found_logs:
            raise InputError(
                f"{path} holds nothing of a run: give a training log (lines with per_step_time: …ms), or a folder of MindSpore's"
                f" profiler (…_ascend_ms with {OUTPUT})"
            )
        profiles += found_profiles
        logs += found_logs
    by_rank: dict[int, Profile] = {}
    for profile in profiles:
        if profile.rank in by_rank:
            first = by_rank[profile.rank].path
            raise InputError(f"{first} and {profile.path} are both of rank {profile.rank}: give one of them")
        by_rank[profile.rank] = profile
    return Run(tuple(logs), tuple(by_rank[rank] for rank in sorted(by_rank)))


def _log_files(path: Path) -> list[Path]:
    """The file itself, or the logs of a folder."""
    return sorted(path.glob("*.log")) if path.is_dir() else [path]


def _profiled(path: Path) -> Iterator[Path]:
    """The folders in `path`, or itself or above it, that the profiler made for a rank each."""
    if path.name == OUTPUT:
        yield path.parent
        return
    for folder, names, _ in os.walk(path):
        names[:] = sorted(name for name in names if not name.startswith(_RAW))
        if OUTPUT in names:
            names.clear()
            yield Path(folder)


def _profile(folder: Path, profiled_steps: int | None) -> Profile:
    output = folder / OUTPUT
    step, steps, parts = None, profiled_steps or 1, None
    if (file := output / step_trace.FILE).exists():
        step, steps, parts = step_trace.read_step_trace(file, profiled_steps)
    file = output / exchanges.FILE
    exchanged = exchanges.read_exchanges(file, step, steps) if file.exists() else {}
    by_kind, peaks = _operators(folder, step, steps), _memory(folder)
    if parts is None and not by_kind and not exchanged and peaks == Memory():
        files = ", ".join((step_trace.FILE, operators.FILE, exchanges.FILE, memory.FILE))
        raise InputError(f"{folder} holds none of {files}: let the profiler parse it")
    return Profile(str(folder), _rank(folder), parts, by_kind, exchanged, peaks)


def _operators(folder: Path, step: str | None, steps: int) -> Mapping[str, float]:
    """From the table of the device, or else from that of the CPU."""
    if (file := folder / OUTPUT / operators.FILE).exists():
        return operators.read_kernels(file, step, steps)
    return next(map(operators.read_cpu_operators, sorted((folder / FRAMEWORK).glob(operators.CPU_FILES))), {})


def _memory(folder: Path) -> Memory:
    """From the table of the device, or else from what MindSpore itself recorded."""
    if (file := folder / OUTPUT / memory.FILE).exists():
        return memory.read_memory(file)
    return next(map(memory.read_framework_memory, sorted((folder / FRAMEWORK).glob(memory.FRAMEWORK_FILES))), Memory())


def _rank(folder: Path) -> int:
    """The rank that a folder is of, as its files or the folders above it say; 0 where none says any."""
    for name in sorted(os.listdir(folder)):
        if found := _RANK_FILE.fullmatch(name):
            return int(found[1])
    for name in reversed(folder.resolve().parts):
        if found := _RANK_FOLDER.fullmatch(name):
            return int(found[1])
    return 0
