"""Training logs: steps and throughput as MindFormers' MFLossMonitor prints them, memory as MindSpore does when it ends.

    { Epoch:[  1/  2], step:[    2/   19], loss: 10.633, per_step_time: 1752ms, lr: 1e-05, …
      10.5% |█████                                             | 0.57078 samples/s/p  0:00:29 }
    Used peak memory usage (without fragments): 48874M
    Actual peak memory usage (with fragments): 51200M

Lines of other versions that hold these words are read too; so is what `mindspore.runtime.memory_stats()` returns, where a script
prints it. Sources: mindformers 1.9.0, core/callback/callback.py; MindSpore's AscendMemAdapter (M: 2^20 bytes).
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from ms_symtensor.errors import InputError
from ms_symtensor.measured.run import Log, Memory

_STEP = re.compile(r"\bper_step_time:\s*(\d{1,12}(?:\.\d+)?)\s*ms")
_FIRST = re.compile(r"(?!.*\bEpoch:\[\s*(?!1/)\d).*\bstep:\[\s*1/.*\bper_step_time:")
_THROUGHPUT = re.compile(r"\b(\d{1,12}(?:\.\d+)?) samples/s/p")
_MIB = 1 << 20
_ALLOCATED = (
    (re.compile(r"Used peak memory usage \(without fragments\): *(\d{1,12})M"), _MIB),
    (re.compile(r"'max_allocated_memory': *(\d{1,18})\b"), 1),
)
_RESERVED = (
    (re.compile(r"Actual peak memory usage \(with fragments\): *(\d{1,12})M"), _MIB),
    (re.compile(r"'max_reserved_memory': *(\d{1,18})\b"), 1),
)


def read_log(path: Path) -> Log | None:
    """The steps and the memory of the log at `path`, None where it holds neither.

    The first step, which compiles, is left out; of runs that were appended, all but the last.

    Errors: InputError if the file cannot be read, or has no step but that one.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}): check the path") from error
    lines = lines[max((number for number, line in enumerate(lines) if _FIRST.match(line)), default=0) :]
    steps_ms = [(number, float(found[1])) for number, line in enumerate(lines) if (found := _STEP.search(line))]
    memory = Memory(_most(lines, _ALLOCATED), _most(lines, _RESERVED))
    if not steps_ms:
        return None if memory == Memory() else Log(str(path), 0, None, None, None, memory)
    used_ms = steps_ms[1:]
    if not used_ms:
        raise InputError(f"{path} has one step (per_step_time: …ms), which compiles: give a log of some more")
    if any(step_ms == 0 for _, step_ms in used_ms):
        raise InputError(f"{path} has steps of 0 ms, from which nothing is learnt: give a log of longer steps")
    used_s = [step_ms / 1e3 for _, step_ms in used_ms]
    return Log(str(path), len(used_s), median(used_s), max(used_s), _samples(lines, used_ms), memory)


def _samples(lines: Sequence[str], steps_ms: Iterable[tuple[int, float]]) -> float | None:
    """Samples that a device takes in a step: its throughput, which is printed behind the step, times the step."""
    found = []
    for number, step_ms in steps_ms:
        behind = _THROUGHPUT.search(lines[number + 1]) if number + 1 < len(lines) else None
        if behind is not None:
            found.append(float(behind[1]) * step_ms / 1e3)
    return median(found) if found else None


def _most(lines: Iterable[str], forms: Sequence[tuple[re.Pattern[str], int]]) -> int | None:
    found = [int(value) * unit_B for line in lines for form, unit_B in forms for value in form.findall(line)]
    return max(found, default=None)
