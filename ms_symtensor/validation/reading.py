"""Which reader reads a table: the one whose columns it has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ms_symtensor.errors import InputError
from ms_symtensor.validation.configuration import ImpossibleError
from ms_symtensor.validation.dataset import Case, Dataset, Exclusion, Pair, UnusableRowError
from ms_symtensor.validation.readers import (
    ascend,
    cloudmatrix,
    collectives,
    dryrun,
    features,
    kernels,
    layouts,
    max_throughput,
    mindspeed,
    nightly,
    nvidia,
    operators,
    pairs,
    reinforcement,
    serving_facts,
    slo,
    static_batches,
    ultrascale,
    vtrain,
)
from ms_symtensor.validation.table import Row, Table, read_table
from ms_symtensor.validation.timings import Form


@dataclass(frozen=True)
class Reader:
    """`read` makes a case or a pair of a row of a table that has `columns`, or raises UnusableRowError or InputError; `doubts`:
    rows of a table, by line, that only the table as a whole shows to be unusable, with the reason.
    """

    name: str
    columns: tuple[str, ...]
    read: Callable[[Row], Case | Pair]
    doubts: Callable[[Table], Mapping[int, str]] = lambda _: {}


_OF_CASES = (vtrain, layouts, ultrascale, mindspeed, dryrun, nvidia)
READERS = (
    *(Reader(form.NAME, form.COLUMNS, form.case) for form in _OF_CASES),
    Reader(ascend.NAME, ascend.COLUMNS, ascend.case, ascend.doubts),
    Reader(pairs.NAME, pairs.COLUMNS, pairs.pair),
    Reader(features.NAME, features.COLUMNS, features.pair),
)


TIMING_FORMS: tuple[Form, ...] = (
    kernels.FORM,
    collectives.FORM,
    collectives.VIDUR_FORM,
    operators.FORM,
    static_batches.FORM,
    nightly.FORM,
    max_throughput.FORM,
    slo.FORM,
    cloudmatrix.FORM,
    serving_facts.FORM,
    reinforcement.FORM,
)
"""Tables of single kernels and collectives, which are no cases: see `timings`."""


def read(path: str | Path) -> Dataset:
    """The measurements in the CSV file at `path`, which must have one of the known forms.

    A row that its reader cannot use, or whose configuration is impossible, is excluded with the reason. InputError, naming
    row and column, for a cell that does not hold what its column is for.
    """
    return read_rows(read_table(path))


def read_rows(table: Table) -> Dataset:
    """As `read`, of a table that is read already."""
    reader = reader_of(table)
    cases: list[Case] = []
    pairs: list[Pair] = []
    excluded: list[Exclusion] = []
    doubts = reader.doubts(table)
    for row in table.rows:
        try:
            if row.line in doubts:
                raise UnusableRowError(doubts[row.line])
            found = reader.read(row)
        except (UnusableRowError, ImpossibleError) as reason:
            excluded.append(Exclusion(row.line, str(reason)))
            continue
        if isinstance(found, Case):
            cases.append(found)
        else:
            pairs.append(found)
    return Dataset(reader.name, len(table.rows), tuple(cases), tuple(pairs), tuple(excluded))


def reader_of(table: Table) -> Reader:
    """The reader whose columns `table` has. InputError naming what the most similar form has more."""
    columns = set(table.columns)
    fitting = [reader for reader in READERS if columns.issuperset(reader.columns)]
    if fitting:
        return max(fitting, key=lambda reader: len(reader.columns))
    forms: tuple[Reader | Form, ...] = (*READERS, *TIMING_FORMS)
    nearest = max(forms, key=lambda form: len(columns.intersection(form.columns)) / len(form.columns))
    missing = [column for column in nearest.columns if column not in columns]
    if not missing:
        raise InputError(
            f"{table.name} has times of kernels or collectives, and no steps: give it to symtensor validate"
        )
    if len(missing) == len(nearest.columns):
        known = ", ".join(form.name for form in forms)
        raise InputError(f"{table.name}: row 1 names no column of a known form, which are those of {known}")
    raise InputError(
        f"{table.name}: row 1 is not the header of a known form; the nearest is {nearest.name}, and column"
        f"{'s' if len(missing) > 1 else ''} {', '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing"
    )
