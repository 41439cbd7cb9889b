"""Peak memory of a rank: `memory_record.csv`, or where the run was one on a CPU `FRAMEWORK/cpu_ms_memory_record_<rank>.txt`.
Columns: mindspore.profiler 2.10.0, analysis/viewer/ascend_memory_viewer.py.
"""

from pathlib import Path

from ms_symtensor.measured.columns import columns, number
from ms_symtensor.measured.run import Memory

FILE = "memory_record.csv"
COLUMNS = ("Total Allocated(MB)", "Total Reserved(MB)")
MB = 1000 * 1024
"""MemoryRecordBean divides by 1024 and by KB_TO_MB, which is 1000."""
FRAMEWORK_FILES = "cpu_ms_memory_record_*.txt"
FRAMEWORK_COLUMNS = ("Total Allocated(Byte)", "Total Reserved(Byte)")
_OF_ALL = "APP"
"""The component that stands for all that the driver gave the process, buffers of communicators too."""


def read_memory(path: Path) -> Memory:
    """The peaks of MindSpore's pool, and of GE's with it where there is one."""
    rows = columns(path, ("Component", *COLUMNS))
    return _peaks(path, COLUMNS, [cells for component, *cells in rows if component != _OF_ALL], MB)


def read_framework_memory(path: Path) -> Memory:
    """The peaks of MindSpore's pool."""
    return _peaks(path, FRAMEWORK_COLUMNS, [list(cells) for cells in columns(path, FRAMEWORK_COLUMNS)], 1)


def _peaks(path: Path, names: tuple[str, str], rows: list[list[str]], unit_B: int) -> Memory:
    found = [[number(path, name, cell) for name, cell in zip(names, cells, strict=True)] for cells in rows]
    if not found:
        return Memory()
    return Memory(*(round(max(column) * unit_B) for column in zip(*found, strict=True)))
