"""Values change in a YAML file's text; everything else in it stays."""

import difflib

import pytest
import yaml

from ms_symtensor.errors import InputError
from ms_symtensor.targets.yaml_text import data_of, differences, value_at, with_value

TEXT = """\
a: &one 1  # the first
b:   # a record
  c: [*one, {d: 2}]   # a list

  # about e
  e:
    - 1
    - 2

f: {g: 1, h: *one}
i:
"""


def changed(path, value, text=TEXT):
    new = with_value(text, path, value)
    lines = [line for line in difflib.ndiff(text.splitlines(), new.splitlines()) if line[0] in "+-"]
    return yaml.safe_load(new), lines


def test_an_anchor_and_a_comment_stay_beside_a_value() -> None:
    data, lines = changed(("a",), 7)
    assert lines == ["- a: &one 1  # the first", "+ a: &one 7  # the first"]
    assert data["b"]["c"][0] == data["f"]["h"] == 7


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("b", "c", 0), "+   c: [7, {d: 2}]   # a list"),
        (("b", "c", 1, "d"), "+   c: [*one, {d: 7}]   # a list"),
        (("b", "c", 1, "x"), "+   c: [*one, {d: 2, x: 7}]   # a list"),
        (("b", "x"), "+   x: 7"),
        (("b", "e"), "+   e: 7"),
        (("f", "h"), "+ f: {g: 1, h: 7}"),
        (("i",), "+ i: 7"),
        (("x",), "+ x: 7"),
    ],
)
def test_one_value_changes(path, line: str) -> None:
    data, lines = changed(path, 7)
    assert value_at(data, path) == 7 and line in lines
    assert [p[: len(path)] for p in differences(yaml.safe_load(TEXT), data)] == [path]


def test_records_and_patterns_are_written_as_mindformers_reads_them() -> None:
    value = {r"mlp\.mul": [[1, 2]], "x": True, "y": {"z": "1f1b"}}
    data, _ = changed(("b", "new", "deep"), value)
    assert data["b"]["new"]["deep"] == value
    data, lines = changed(("f", "g"), value)
    assert data["f"]["g"] == value and len(lines) == 2


@pytest.mark.parametrize("text", ["a: [1", "- 1", "", "a: *nothing"])
def test_what_is_no_file_is_named(text: str) -> None:
    with pytest.raises(InputError, match=r"train\.yaml"):
        data_of(text, "train.yaml")


def test_what_lies_behind_an_alias_is_not_changed() -> None:
    text = "a: &x {b: 1}\nc: *x\n"
    with pytest.raises(InputError, match="c is an alias"):
        with_value(text, ("c", "b"), 2)
    assert yaml.safe_load(with_value(text, ("c",), 2)) == {"a": {"b": 1}, "c": 2}
