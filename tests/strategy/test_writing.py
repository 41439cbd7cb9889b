import json

from hypothesis import given
from hypothesis import strategies as st

from ms_symtensor.strategy.writing import LINE, json_text

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
