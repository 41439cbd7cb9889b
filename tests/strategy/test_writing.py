import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_symtensor.errors import InputError
from ms_symtensor.strategy.writing import LINE, json_text, write_files

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
DATA = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(), inner, max_size=6), max_leaves=40
)


@given(DATA)
def test_the_text_is_json_of_the_data(data):
    assert json.loads(json_text(data)) == data


def test_what_fits_on_a_line_stands_on_one():
    text = json_text({"short": [1, {"a": None}], "long": ["x" * 50, "y" * 70], "empty": {}})
    assert text.splitlines() == [
        "{",
        ' "short": [1, {"a": null}],',
        ' "long": [',
        f'  "{"x" * 50}",',
        f'  "{"y" * 70}"',
        " ],",
        ' "empty": {}',
        "}",
    ]


def test_a_line_is_as_long_as_may_be():
    def lines(length: int) -> int:
        return len(json_text([["x" * length]]).splitlines())

    longest = LINE - len(' [""]')  # the margin counts
    assert (lines(longest), lines(longest + 1)) == (3, 5)


def test_a_directory_in_the_place_of_a_file_leaves_all_as_it_was(tmp_path):
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").mkdir()
    with pytest.raises(InputError, match=r"cannot write \S+/b, which is a directory: move it"):
        write_files(tmp_path, {"a": "new", "b": "new", "c": "new"}, lambda _: True)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a", "b"]
    assert (tmp_path / "a").read_text() == "old"


def test_what_is_replaced_is_removed(tmp_path):
    for name in ("a1", "a2", "other"):
        (tmp_path / name).write_text("old")
    (tmp_path / "a3").mkdir()
    write_files(tmp_path, {"a1": "new"}, lambda name: name.startswith("a"))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a1", "a3", "other"]
    assert (tmp_path / "a1").read_text() == "new"
