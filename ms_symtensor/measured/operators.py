"""What operators took, by kind: `kernel_details.csv` of the device (microseconds), or where the run was one on a CPU
`FRAMEWORK/cpu_op_type_info_<rank>.csv` (milliseconds of all steps). Columns: mindspore.profiler 2.10.0,
analysis/viewer/ascend_kernel_details_viewer.py, and what its CPU profiler writes.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from ms_symtensor.errors import InputError
from ms_symtensor.measured.columns import columns, number
from ms_symtensor.measured.kinds import kind_of_collective, kind_of_operator

FILE = "kernel_details.csv"
COLUMNS = ("Type", "Accelerator Core", "Duration(us)")
STEP = "Step ID"
CPU_FILES = "cpu_op_type_info_*.csv"
CPU_COLUMNS = ("op_type", "type_occurrences", "execution_frequency(per-step)", "total_compute_time")
_COMMUNICATION_CORES = ("HCCL", "COMMUNICATION")


def read_kernels(path: Path, step: str | None, steps: int) -> Mapping[str, float]:
    """Seconds by kind of what ran on the device in `step`, or where kernels do not know their step in one of `steps`."""
    total_us: dict[str, float] = defaultdict(float)
    every_us: dict[str, float] = defaultdict(float)
    for type_, core, duration, of in columns(path, COLUMNS, (STEP,)):
        if core.upper() in _COMMUNICATION_CORES or kind_of_collective(type_) is not None:
            continue
        kind = kind_of_operator(type_)
        duration_us = number(path, COLUMNS[2], duration)
        every_us[kind] += duration_us
        if step is not None and of == step:
            total_us[kind] += duration_us
    if total_us:
        return {kind: time_us / 1e6 for kind, time_us in total_us.items()}
    return {kind: time_us / 1e6 / steps for kind, time_us in every_us.items()}


def read_cpu_operators(path: Path) -> Mapping[str, float]:
    """Seconds of a step by kind, of a run on a CPU."""
    total_s: dict[str, float] = defaultdict(float)
    for type_, *cells in columns(path, CPU_COLUMNS):
        count, each_step, time_ms = (
            number(path, name, cell) for name, cell in zip(CPU_COLUMNS[1:], cells, strict=True)
        )
        if not (count > 0 and each_step > 0):
            raise InputError(f"{path}: {type_} ran {count:g} times: the file is damaged; profile again")
        total_s[kind_of_operator(type_)] += time_ms / 1e3 * each_step / count
    return dict(total_s)
