"""Changes in the text of a YAML file: of values by their paths. Comments, order, anchors and blanks stay as they are."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from ms_symtensor.errors import InputError
from ms_symtensor.targets.plain_yaml import key_text, lines, value_text

Path = tuple[str | int, ...]
"""Keys of records and positions in lists on the way to a value."""

_ANCHOR = re.compile(r"&\S+[ \t]*")


@dataclass
class _Node:
    """A value in the text: from `start`, its anchor included, to `end`."""

    start: int
    end: int
    is_flow: bool = True
    is_alias: bool = False
    entries: "dict[str, _Entry] | None" = None
    items: "list[_Node] | None" = None


@dataclass
class _Entry:
    """A key from `start` to `end`, at so many columns from the left, and its value."""

    start: int
    end: int
    column: int
    value: _Node


def data_of(text: str, name: str) -> dict[str, Any]:
    """The data of a YAML file. InputError if `text` is none, or no record of keys; `name` is that of the file."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1}: {getattr(error, 'problem', '')})" if mark is not None else ""
        raise InputError(f"{name} is not YAML{where}: mend it") from error
    if not isinstance(found, dict):
        raise InputError(f"{name} holds no record of keys: give a training file")
    return found


def with_value(text: str, path: Path, value: Any) -> str:
    """`text` with `value` at `path`, in the place of what is there, or as a last entry of the record that it belongs to."""
    node, depth = _root(text), 0
    while depth < len(path):
        found = _child(node, path[depth])
        if found is None:
            return _inserted(text, node, path[depth:], value)
        key_end, node = found
        depth += 1
        if node.is_alias and depth < len(path):
            raise InputError(f"{_told(path[:depth])} is an alias, behind which nothing can be changed: write it out")
    new = value_text(value)
    anchor = _ANCHOR.match(text, node.start, node.end) if not node.is_alias else None
    if anchor is not None:
        return text[: anchor.end()] + ("" if anchor[0][-1].isspace() else " ") + new + text[node.end :]
    if key_end is None:
        return text[: node.start] + new + text[node.end :]
    if "\n" in text[key_end : node.start] or node.start == node.end:  # a block below its key, or nothing
        return f"{text[:key_end]} {new}{text[node.end :]}"
    return text[: node.start] + new + text[node.end :]


def value_at(data: Any, path: Path, default: Any = None) -> Any:
    """What `data` holds at `path`; `default` if there is nothing."""
    for key in path:
        if isinstance(data, list):
            if not isinstance(key, int) or key >= len(data):
                return default
        elif not isinstance(data, dict) or key not in data:
            return default
        data = data[key]
    return data


def differences(one: Any, other: Any, path: Path = ()) -> Iterator[Path]:
    """The paths to the values in which data differ."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in [*one, *(key for key in other if key not in one)]:
            if key in one and key in other:
                yield from differences(one[key], other[key], (*path, key))
            else:
                yield (*path, key)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, (*path, number))
    elif one != other or isinstance(one, bool) != isinstance(other, bool):
        yield path


def _child(node: _Node, key: str | int) -> tuple[int | None, _Node] | None:
    """Behind the colon of a key and its value, or an item of a list."""
    if node.entries is not None and key in node.entries:
        entry = node.entries[str(key)]
        return entry.end, entry.value
    if node.items is not None and isinstance(key, int) and key < len(node.items):
        return None, node.items[key]
    return None


def _inserted(text: str, node: _Node, path: Path, value: Any) -> str:
    """`text` with a further last entry in the record `node`."""
    for key in reversed(path[1:]):
        value = {str(key): value}
    if node.entries is None:
        raise InputError(f"no record has room for {_told(path)}: write the file in records of keys")
    entry = {str(path[0]): value}
    if node.is_flow:
        before = text[: node.end - 1].rstrip()
        comma = "" if before.endswith(("{", ",")) else ", "
        return f"{before}{comma}{key_text(str(path[0]))}: {value_text(value)}" + text[node.end - 1 :]
    column = min((one.column for one in node.entries.values()), default=0)
    end = text.find("\n", node.end)
    end = len(text) if end < 0 else end
    added = "".join(f"\n{line}" for line in lines(entry, " " * column))
    return text[:end] + added + text[end:]


def _told(path: Path) -> str:
    return ".".join(map(str, path))


def _root(text: str) -> _Node:
    events = yaml.parse(text, Loader=yaml.SafeLoader)
    for event in events:
        if isinstance(event, yaml.MappingStartEvent):
            return _node(event, events, text)
    raise InputError("the file holds no record of keys: give a training file")


def _node(event: Any, events: Iterator[Any], text: str) -> _Node:
    """The value that begins with `event`."""
    node = _Node(event.start_mark.index, event.end_mark.index)
    if isinstance(event, yaml.AliasEvent):
        node.is_alias = True
    elif isinstance(event, yaml.CollectionStartEvent):
        node.is_flow = bool(event.flow_style)
        end, ends = _filled(node, isinstance(event, yaml.MappingStartEvent), events, text)
        node.end = end if node.is_flow else max(ends, default=node.end)
    return node


def _filled(node: _Node, is_record: bool, events: Iterator[Any], text: str) -> tuple[int, list[int]]:
    """Give `node` its entries or items: where it ends for YAML, which is at the next word, and where these end."""
    node.entries, node.items = ({}, None) if is_record else (None, [])
    ends: list[int] = []
    part: Any
    for part in events:
        if type(part) in (yaml.MappingEndEvent, yaml.SequenceEndEvent):
            return part.end_mark.index, ends
        if node.items is not None:
            node.items.append(_node(part, events, text))
            ends.append(node.items[-1].end)
        elif node.entries is not None:
            value = _node(next(events), events, text)
            colon = text.index(":", part.end_mark.index) + 1
            value.start, value.end = max(value.start, colon), max(value.end, colon)
            node.entries[getattr(part, "value", "")] = _Entry(
                part.start_mark.index, colon, part.start_mark.column, value
            )
            ends.append(value.end)
    raise InputError("the file ends within a record or a list: mend it")
