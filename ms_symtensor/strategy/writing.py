"""JSON that people can read."""

import json
from json.encoder import encode_basestring
from typing import Any

LINE = 120
ITEMS = LINE // 3
"""More do not fit on a line: each has a letter at least, and a comma and a space."""
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def json_text(data: Any) -> str:
    """`data` as JSON: whatever fits on a line stands on one line. Equal data gives equal text."""
    return _lines(data, 0, {}) + "\n"


def _lines(data: Any, depth: int, known: dict[tuple[int, int], str]) -> str:
    """The text of `data` at a `depth`; `known`: that of what may stand in several places, by its identity."""
    if isinstance(data, str):
        return encode_basestring(data)
    if not isinstance(data, dict | list | tuple) or not data:
        return _encode(data)
    key = id(data), depth
    if key not in known:
        known[key] = _written(data, depth, known)
    return known[key]


def _written(data: Any, depth: int, known: dict[tuple[int, int], str]) -> str:
    if depth > 0 and len(data) <= ITEMS and len(line := _encode(data)) + depth <= LINE:
        return line
    if isinstance(data, dict):
        items = [f"{encode_basestring(key)}: {_lines(value, depth + 1, known)}" for key, value in data.items()]
        brackets = "{}"
    else:
        items, brackets = [_lines(value, depth + 1, known) for value in data], "[]"
    margin = " " * (depth + 1)
    return brackets[0] + "\n" + ",\n".join(margin + item for item in items) + "\n" + " " * depth + brackets[1]
