"""Measured steps of plans as rows of a CSV file, a row for a plan and a run of it."""

import csv
import os
from collections.abc import Iterator
from pathlib import Path

from ms_symtensor.errors import InputError
from ms_symtensor.files.writing import csv_of, write_file
from ms_symtensor.measured.comparison import Comparison

COLUMNS = ("plan", "step_time_s", "peak_memory_B", "reserved_memory_B", "run")


def add_row(file: Path, directory: Path, found: Comparison) -> int:
    """Put what was measured of the plan in `directory` into `file`, in the place of its row for the same run; the number of rows.

    Folders are written relative to that of `file`; cells of what was not measured are empty. Errors: InputError if the file
    cannot be written, or is another table.
    """
    here = file.resolve().parent
    plan, run = (os.path.relpath(Path(path).resolve(), here) for path in (directory, found.run.paths[0]))
    memory = found.run.memory
    cells = (found.step.measured, found.peak_B.measured, memory.reserved_B)
    new = [plan, *("" if cell is None else repr(cell) for cell in cells), run]
    rows = [row for row in _rows(file) if (row[0], row[-1]) != (plan, run)] + [new]
    write_file(file, csv_of(COLUMNS, rows))
    return len(rows)


def _rows(file: Path) -> Iterator[list[str]]:
    if not file.exists():
        return
    try:
        head, *rows = [row for row in csv.reader(file.read_text(encoding="utf-8").splitlines()) if row] or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {file} ({error}): give another file for the rows") from error
    if tuple(head) != COLUMNS or any(len(row) != len(COLUMNS) for row in rows):
        raise InputError(f"{file} is not a table of {', '.join(COLUMNS)}: give another file for the rows")
    yield from rows
