"""Which reader reads a table: the one whose columns it has."""

from pathlib import Path

from ms_symtensor.errors import InputError
from ms_symtensor.validation.dataset import Case, Dataset, Form, Pair
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
    own_runs,
    pairs,
    reinforcement,
    serving_facts,
    slo,
    static_batches,
    ultrascale,
    vtrain,
)
from ms_symtensor.validation.table import Table, read_table

_OF_CASES = (vtrain, layouts, ultrascale, mindspeed, dryrun, nvidia, ascend, pairs, features, own_runs)
READERS: tuple[Form, ...] = tuple(table.FORM for table in _OF_CASES)
_OF_TIMINGS = (
    operators, static_batches, nightly, max_throughput, slo, cloudmatrix, serving_facts, reinforcement,
)  # fmt: skip
TIMING_FORMS: tuple[Form, ...] = (
    kernels.FORM, collectives.FORM, collectives.VIDUR_FORM, *(table.FORM for table in _OF_TIMINGS),
)  # fmt: skip
"""Tables of single kernels and collectives, which are no cases: see `timings`."""


def read(path: str | Path) -> Dataset:
    """The measurements in the CSV file at `path`, which must have one of the known forms. Errors: as of `Form.read_table`."""
    return read_rows(read_table(path))


def read_rows(table: Table) -> Dataset:
    """As `read`, of a table that is read already."""
    reader = reader_of(table)
    found, excluded = reader.read_table(table)
    cases, pairs = (
        tuple(one for one in found if isinstance(one, Case)),
        tuple(one for one in found if isinstance(one, Pair)),
    )
    return Dataset(reader.name, len(table.rows), cases, pairs, excluded)


def reader_of(table: Table) -> Form:
    """The reader whose columns `table` has. InputError naming what the most similar form has more."""
    columns = set(table.columns)
    fitting = [reader for reader in READERS if columns.issuperset(reader.columns)]
    if fitting:
        return max(fitting, key=lambda reader: len(reader.columns))
    forms = (*READERS, *TIMING_FORMS)
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
