"""YAML text of settings and values: an entry on every line; lists and text as JSON, which YAML contains."""

import json
from collections.abc import Iterator, Mapping
from typing import Any


def value_text(value: Any) -> str:
    """A value as it stands behind its key; truth as MindFormers' files write it."""
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key_text(key)}: {value_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(value_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def key_text(key: str) -> str:
    """A key; in single quotes, in which YAML reads a backslash as one, where it is no word."""
    return key if key.isidentifier() else f"'{key}'"


def lines(data: Mapping[str, Any], margin: str = "") -> Iterator[str]:
    """The entries of `data`, records within records further to the right."""
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            yield f"{margin}{key_text(key)}:"
            yield from lines(value, margin + "  ")
        else:
            yield f"{margin}{key_text(key)}: {value_text(value)}"
