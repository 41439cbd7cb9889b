"""A CSV table whose cells are read with their meaning; a cell that cannot be read is one clear line naming row and column."""

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ms_symtensor.errors import InputError

LARGEST_COUNT = 1e12


@dataclass(frozen=True)
class Row:
    """One row: `line` is its number in the file, counted as editors and error messages count (the header is 1).

    `folder` is that of the file.
    """

    table: str
    line: int
    cells: Mapping[str, str]
    folder: Path = Path()

    def text(self, column: str) -> str:
        """The cell without surrounding blanks; "" if empty. InputError if the table has no such column."""
        if column not in self.cells:
            raise InputError(f"{self.table}: row {self.line}: column {column} is missing")
        return self.cells[column]

    def count(self, column: str) -> int:
        """A whole number of at least 1, also written 8.0."""
        found = self.optional_count(column)
        if found is None:
            raise self.malformed(column, "is empty; give a whole number")
        return found

    def optional_count(self, column: str) -> int | None:
        """As `count`; None if the cell is empty."""
        number = self.optional_number(column)
        if number is None:
            return None
        if number < 1 or number != int(number):
            raise self.malformed(column, "is not a whole number of at least 1")
        if number > LARGEST_COUNT:
            raise self.malformed(column, f"is above {LARGEST_COUNT:.0e}, which nothing here counts to")
        return int(number)

    def number(self, column: str) -> float:
        """A finite number of at least 0."""
        found = self.optional_number(column)
        if found is None:
            raise self.malformed(column, "is empty; give a number")
        return found

    def positive(self, column: str) -> float:
        """A finite number above 0."""
        found = self.number(column)
        if found == 0:
            raise self.malformed(column, "is not above 0")
        return found

    def optional_number(self, column: str) -> float | None:
        """As `number`; None if the cell is empty."""
        if not self.text(column):
            return None
        try:
            number = float(self.text(column))
        except ValueError:
            raise self.malformed(column, "is not a number") from None
        if not math.isfinite(number) or number < 0:
            raise self.malformed(column, "is not a number of at least 0")
        return number

    def date(self, column: str) -> str:
        """Year, year-month or year-month-day, which compare as texts; "" if the cell is empty."""
        if not re.fullmatch(r"(\d{4}(-\d\d){0,2})?", self.text(column)):
            raise self.malformed(column, "is not a date such as 2025-07-31")
        return self.text(column)

    def flag(self, column: str) -> bool:
        """1, Y, yes or true against 0, N, no or false; no if the cell is empty."""
        word = self.text(column).lower()
        if word in ("1", "1.0", "y", "yes", "true"):
            return True
        if word in ("", "0", "0.0", "n", "no", "false"):
            return False
        raise self.malformed(column, "is neither yes nor no")

    def malformed(self, column: str, fault: str) -> InputError:
        """The error that says what is wrong with a cell."""
        return InputError(f"{self.table}: row {self.line}, column {column}: {self.text(column)!r} {fault}")


@dataclass(frozen=True)
class Table:
    """A table with its file name, its columns and its rows; rows without any text are left out."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def read_table(path: str | Path) -> Table:
    """The CSV file at `path` (UTF-8, comma, header in the first row). InputError if it is none."""
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _parsed(path, csv.reader(file, strict=True))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8, so it is no CSV table") from None


def _parsed(path: Path, reader: "csv._reader") -> Table:  # type: ignore[name-defined]
    name = path.name
    try:
        header = tuple(cell.strip() for cell in next(reader, []))
        if not header:
            raise InputError(f"{name} is empty; its first row must name the columns")
        twice = next((c for c in header if header.count(c) > 1), None)
        if twice is not None:
            raise InputError(f"{name}: row 1: two columns are called {twice!r}")
        return Table(name, header, tuple(_rows(path, header, reader)))
    except csv.Error as error:
        raise InputError(f"{name}: row {reader.line_num}: {error}") from None


def _rows(path: Path, header: tuple[str, ...], reader: "csv._reader") -> Iterator[Row]:  # type: ignore[name-defined]
    name = path.name
    for cells in reader:
        line = reader.line_num
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) < len(header):
            raise InputError(f"{name}: row {line}, column {header[len(cells)]}: the row ends before it")
        if len(cells) > len(header):
            raise InputError(f"{name}: row {line} has {len(cells)} cells, but the header has {len(header)}")
        yield Row(name, line, {c: cell.strip() for c, cell in zip(header, cells, strict=True)}, path.parent)
