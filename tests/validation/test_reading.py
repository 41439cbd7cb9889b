"""Every form of table: a column or cell that means nothing is one line or a row left out with its reason, never a traceback."""

import random

import pytest

from ms_symtensor.errors import InputError
from ms_symtensor.validation.reading import READERS, read_rows
from ms_symtensor.validation.table import Row, Table

CELLS = ("", "x", "-1", "nan", "inf", "0", "1.5", "1e30", "8", "none", "ok", "OOM", "true", "1;2", "N/A")
FORMS = pytest.mark.parametrize("form", READERS, ids=lambda reader: reader.name)


def table(columns, *rows):
    found = (Row("data.csv", line, dict(zip(columns, cells, strict=True))) for line, cells in enumerate(rows, start=2))
    return Table("data.csv", tuple(columns), tuple(found))


@FORMS
def test_a_missing_column_is_named(form) -> None:
    for missing in form.columns:
        with pytest.raises(InputError) as error:
            read_rows(table([column for column in form.columns if column != missing]))
        assert str(error.value).startswith("data.csv: row 1 ") and missing in str(error.value)


@FORMS
def test_columns_may_come_in_any_order_with_others_between(form) -> None:
    assert read_rows(table(["further", *reversed(form.columns), "more"])).name == form.name


def test_a_foreign_table_shares_no_column() -> None:
    with pytest.raises(InputError, match=r"data.csv: row 1 names no column of a known form, which are those of vtrain"):
        read_rows(table(["a", "b"], ["1", "2"]))


@FORMS
def test_any_cells_are_read_or_refused_in_one_line(form) -> None:
    generator = random.Random(7)
    for _ in range(200):
        cells = [generator.choice(CELLS) for _ in form.columns]
        try:
            found = read_rows(table(form.columns, cells))
        except InputError as error:
            assert str(error).startswith("data.csv: row 2, column ") and "\n" not in str(error)
        else:
            assert len(found.cases) + len(found.pairs) + len(found.excluded) == 1
