"""YAML that somebody else may have written: what it says is no larger than a cluster file may be, whatever it refers to again."""

from pathlib import Path
from typing import Any

import yaml

from ms_symtensor.errors import InputError

MOST_B = 64 << 10
"""Bytes of a file; the largest in this folder has 7 KiB (empirical)."""
MOST_VALUES = 10_000
"""Values in a file, each counted wherever an alias stands for it; the largest in this folder has 300 (empirical)."""
MOST_DEPTH = 20
"""Lists and mappings inside each other; in this folder there are 5 (empirical)."""


def load_yaml(path: Path, what: str = "cluster file") -> Any:
    """What the file `path`, a `what`, says. InputError if it cannot be read, is no YAML, or goes beyond a bound above."""
    where = f"{what} {path}"
    text = _text(path, where, what)
    try:
        loader = yaml.SafeLoader(text)
    except yaml.YAMLError as error:  # it has characters that no YAML has
        raise _no_yaml(where, error) from None
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        values, depth = _extent(node, {}, 0)
        if values > MOST_VALUES or depth > MOST_DEPTH:
            raise InputError(f"{where}: {_beyond(values, depth)}: write it without")
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise _no_yaml(where, error) from None
    except RecursionError:
        raise InputError(f"{where}: nested too deep") from None
    except (ValueError, ArithmeticError, LookupError, AttributeError, TypeError):
        # What SafeLoader raises for numbers of more than 4,300 digits, dates that are none, and tags that do not fit.
        raise InputError(f"{where}: a number, date or tag in it cannot be read: give numbers as 3.5e12") from None
    finally:
        loader.dispose()


def _no_yaml(where: str, error: yaml.YAMLError) -> InputError:
    said = " ".join(str(error).split()).replace('in "<unicode string>", ', "in ")
    return InputError(f"{where}: not valid YAML ({said})")


def _text(path: Path, where: str, what: str) -> str:
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{where}: cannot be read (it is no file)")
        with open(path, "rb") as file:
            content = file.read(MOST_B + 1)
        if len(content) > MOST_B:
            raise InputError(f"{where}: has more than {MOST_B >> 10} KiB, which no {what} needs: shorten it")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{where}: cannot be read ({error})") from None


def _extent(node: yaml.Node, known: dict[int, tuple[int, int]], depth: int) -> tuple[int, int]:
    """Values in `node`, aliases replaced by what they stand for, and how deep it is; a little more than the bounds where more."""
    if depth > MOST_DEPTH:  # or without end: an alias in what it stands for
        return 1, depth
    if id(node) not in known:
        inside: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            inside = node.value
        elif isinstance(node, yaml.MappingNode):
            inside = [one for pair in node.value for one in pair]
        values, deepest = 1, 0
        for one in inside:
            of_one = _extent(one, known, depth + 1)
            values, deepest = values + of_one[0], max(deepest, of_one[1])
            if values > MOST_VALUES or deepest > MOST_DEPTH:
                break
        known[id(node)] = values, deepest + 1
    return known[id(node)]


def _beyond(values: int, depth: int) -> str:
    if depth > MOST_DEPTH:
        return f"lists or mappings are inside each other more than {MOST_DEPTH} deep, or without end"
    return f"says more than {MOST_VALUES:,} values, those that aliases (*name) stand for among them"
