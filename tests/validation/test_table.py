from pathlib import Path

import pytest

from ms_symtensor.errors import InputError
from ms_symtensor.validation.table import Row, read_table


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "data.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_rows_know_their_lines_and_blank_ones_are_left_out(tmp_path) -> None:
    table = read_table(write(tmp_path, 'a,b\n1, x y \n\n,\n"2\n3",z\n4,w\n'))
    assert table.columns == ("a", "b")
    assert [row.text("b") for row in table.rows] == ["x y", "z", "w"]
    assert [row.line for row in table.rows] == [2, 6, 7]


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "data.csv is empty; its first row must name the columns"),
        ("a,b,a\n", "data.csv: row 1: two columns are called 'a'"),
        ("a,b\n1,2\n3\n", "data.csv: row 3, column b: the row ends before it"),
        ("a,b\n1,2,3\n", "data.csv: row 2 has 3 cells, but the header has 2"),
        ('a,b\n1,"2\n', "data.csv: row 2: unexpected end of data"),
    ],
)
def test_a_malformed_table_is_one_line(tmp_path, text, message) -> None:
    with pytest.raises(InputError) as error:
        read_table(write(tmp_path, text))
    assert str(error.value) == message


def test_what_is_no_table_at_all(tmp_path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*nothing.csv: No such file"):
        read_table(tmp_path / "nothing.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(InputError, match="is not text in UTF-8"):
        read_table(tmp_path / "binary.csv")


def row(cell: str) -> Row:
    return Row("data.csv", 17, {"dp": cell})


def test_numbers() -> None:
    assert row("8").count("dp") == 8
    assert row("8.0").count("dp") == 8
    assert row("").optional_count("dp") is None
    assert row("1.5e3").number("dp") == 1500
    assert row("0").number("dp") == 0
    assert row("").optional_number("dp") is None
    assert row("Y").flag("dp") and row("1").flag("dp") and not row("N").flag("dp") and not row("").flag("dp")


@pytest.mark.parametrize(
    "cell, read, fault",
    [
        ("eight", Row.count, "'eight' is not a number"),
        ("1.5", Row.count, "'1.5' is not a whole number of at least 1"),
        ("0.5", Row.count, "'0.5' is not a whole number of at least 1"),
        ("0", Row.count, "'0' is not a whole number of at least 1"),
        ("0", Row.positive, "'0' is not above 0"),
        ("1e30", Row.count, "'1e30' is above 1e+12, which nothing here counts to"),
        ("", Row.count, "'' is empty; give a whole number"),
        ("nan", Row.number, "'nan' is not a number of at least 0"),
        ("inf", Row.number, "'inf' is not a number of at least 0"),
        ("-1", Row.number, "'-1' is not a number of at least 0"),
        ("", Row.number, "'' is empty; give a number"),
        ("maybe", Row.flag, "'maybe' is neither yes nor no"),
    ],
)
def test_a_bad_cell_names_row_and_column(cell, read, fault) -> None:
    with pytest.raises(InputError) as error:
        read(row(cell), "dp")
    assert str(error.value) == f"data.csv: row 17, column dp: {fault}"


def test_dates() -> None:
    assert [row(cell).date("dp") for cell in ("2025-07-31", "2025-07", "2025", "")] == [
        "2025-07-31",
        "2025-07",
        "2025",
        "",
    ]
    with pytest.raises(InputError, match="row 17, column dp: '31.7.25' is not a date such as 2025-07-31"):
        row("31.7.25").date("dp")


def test_a_missing_column_is_named() -> None:
    with pytest.raises(InputError, match=r"data.csv: row 17: column tp is missing"):
        row("1").text("tp")
