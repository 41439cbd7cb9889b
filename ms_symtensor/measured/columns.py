"""Columns of the CSV files that MindSpore's profiler writes."""

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from ms_symtensor.errors import InputError


def columns(path: Path, names: Sequence[str], optional: Sequence[str] = ()) -> Iterator[tuple[str, ...]]:
    """The cells of the columns `names` of every row of `path`, then those of the `optional` ones, "" where there are none.

    Errors: InputError if the file cannot be read, is no table, or has no such column.
    """
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            reader = csv.reader(file)
            head = [cell.strip() for cell in next(reader, [])]
            missing = [name for name in names if name not in head]
            if missing:
                raise InputError(
                    f"{path} has no column {', '.join(missing)}: it is not as MindSpore's profiler writes it"
                )
            places = [head.index(name) for name in names]
            maybe = [head.index(name) if name in head else len(head) for name in optional]
            for row in reader:
                if len(row) < len(head):
                    raise InputError(f"{path}: row {reader.line_num} ends early: the file is truncated; profile again")
                yield tuple(cell.strip() for cell in (*(row[p] for p in places), *((*row, "")[p] for p in maybe)))
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}): check the path") from error
    except csv.Error as error:
        raise InputError(f"{path} is not a table of MindSpore's profiler ({error}): profile again") from error


def number(path: Path, column: str, cell: str) -> float:
    """The number in a cell; InputError if there is none."""
    try:
        found = float(cell)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise InputError(f"{path}: {cell!r} in column {column} is no number: the file is damaged; profile again")
    return found
