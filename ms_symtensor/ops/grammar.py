"""The grammar of rules: one line per operator, read like einsum. docs/reference/rule_grammar.md lists all marks.

    "@[m k]ta, @[k n]tb -> + m n | ta = transpose_a 0, tb = transpose_b 1"

A line has inputs, an arrow, outputs, and behind a bar the words whose meaning an operator's attributes or shapes decide.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from ms_symtensor.errors import InputError

DOTS = "..."
PREFIX = "d"
"""Dims of `...` are called d0, d1, …; those of `i...` i0, i1, …"""
NONE = "1"
"""Stands where the name of a dim would, for none."""

_TENSOR_MARK = re.compile(r"\s*([@~*?=+]|(?:mean|max|min|prod)(?=\s|$))")
_ITEM = re.compile(r"\s*(?:(\w*)\.\.\.([!?%*]*)|(\w+)([!?%*.]*)|\(([\w%\s]+)\)|(\[)|\](\w+))")
_COMBINE = ("+", "mean", "max", "min", "prod")
_KINDS = ("from", "last", "unlike", "ones", "count", "places", "size")


@dataclass(frozen=True)
class Item:
    """Dims of one tensor: one name, a compound of several, or the dims of any number under one `prefix`.

    `factors`: the others of a compound. `order`: the word that says in which order the dims of a bracket stand; `bracket` numbers
    the brackets of one tensor.
    """

    name: str
    marks: str = ""
    is_dots: bool = False
    factors: tuple[str, ...] = ()
    order: str = ""
    bracket: int = 0


@dataclass(frozen=True)
class Tensor:
    """One tensor of a line: its dims, its marks, and how its partial results are combined ('' if that is not said)."""

    items: tuple[Item, ...]
    marks: str
    combine: str


@dataclass(frozen=True)
class Source:
    """Where a word gets its meaning from: an attribute (compile-time argument `number`), or `kind` (see the reference)."""

    kind: str
    attribute: str
    number: int | None
    default: tuple[int, ...]


@dataclass(frozen=True)
class Line:
    """A line, read. `member_of`: the prefix of the dims among which a word stands; `new`: words of outputs alone."""

    text: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    words: dict[str, tuple[Source, ...]]
    member_of: dict[str, str]
    new: frozenset[str]

    @cached_property
    def has_no_gradient(self) -> bool:
        """Whether the line says of an input that it has no gradient."""
        return any("~" in tensor.marks for tensor in self.inputs)


def read(text: str) -> Line:
    """The line `text`, read.

    Errors: InputError that quotes the line and says what cannot be read.
    """
    dims, _, clauses = text.partition("|")
    if dims.count("->") != 1:
        raise InputError(f"signature {text!r}: exactly one '->' must separate inputs from outputs")
    left, right = (tuple(_tensor(part, text) for part in side.split(",")) for side in dims.split("->"))
    words = dict(_word(clause, text) for clause in clauses.split(",") if clause.strip())
    member_of, new = _members(left, right, words)
    found = Line(text, left, right, words, member_of, new)
    if why := _meaningless(found):
        raise InputError(f"signature {text!r}: {why}")
    return found


def _meaningless(line: Line) -> str:
    """What of a line has no meaning; '' if all has one."""
    orders = {item.order for tensor in (*line.inputs, *line.outputs) for item in tensor.items if item.order}
    if strange := orders - line.words.keys():
        return f"the word {min(strange)!r} of a bracket is not explained: add '| {min(strange)} = attribute number'"
    for word, sources in line.words.items():
        if not (word.endswith(DOTS) or word in orders or word in line.member_of or sources[0].kind == "size"):
            return f"the word {word!r} must stand between two '...', once at least"
    for tensor in (*line.inputs, *line.outputs):
        dots = [item.name for item in tensor.items if item.is_dots]
        for name in dots:
            if dots.count(name) > 2 or (name == NONE and dots.count(name) > 1):
                return f"'{'' if name == PREFIX else name}...' stands too often in one tensor"
            if dots.count(name) == 2 and name not in line.member_of.values():
                return "two '...' in one tensor need a word between them, which says what stands there"
    return ""


def _tensor(part: str, text: str) -> Tensor:
    marks, combine, position = "", "", 0
    while found := _TENSOR_MARK.match(part, position):
        if found[1] in _COMBINE:
            combine = found[1]
        else:
            marks += found[1]
        position = found.end()
    return Tensor(tuple(_items(part[position:].rstrip(), text)), marks, combine)


def _items(part: str, text: str) -> Iterator[Item]:
    position, bracket, held = 0, 0, list[Item]()
    is_open = False
    while position < len(part):
        found = _ITEM.match(part, position)
        if found is None:
            raise InputError(f"signature {text!r}: {part[position:].strip()!r} is no dim and no mark")
        position = found.end()
        prefix, dots_marks, name, marks, compound, opens, closes = found.groups()
        if opens:
            is_open, bracket = True, bracket + 1
            continue
        if closes:
            yield from (replace(item, order=closes, bracket=bracket) for item in held)
            held, is_open = [], False
            continue
        if compound is not None:
            first, *others = compound.split()
            item = Item(first.rstrip("%"), "%" if "%" in first else "", factors=tuple(others))
        elif name is not None:
            item = Item(name, marks)
        else:
            item = Item(prefix or PREFIX, dots_marks, is_dots=True)
        if is_open:
            held.append(item)
        else:
            yield item
    if is_open:
        raise InputError(f"signature {text!r}: a bracket is closed by ']' and the word that says its order")


def _word(clause: str, text: str) -> tuple[str, tuple[Source, ...]]:
    name, sign, rest = (part.strip() for part in clause.partition("="))
    if not (name and sign and rest):
        raise InputError(f"signature {text!r}: write 'word = attribute number default', not {clause.strip()!r}")
    return name, tuple(_source(part.split(), text) for part in rest.split(" and "))


def _source(parts: list[str], text: str) -> Source:
    kind = parts.pop(0) if parts[0] in _KINDS else ""
    attribute = parts.pop(0) if parts and not _is_number(parts[0]) else ""
    if not all(_is_number(part) for part in parts):
        raise InputError(f"signature {text!r}: {' '.join(parts)!r} must be numbers")
    numbers = [int(part) for part in parts]
    return Source(kind, attribute, numbers.pop(0) if attribute and numbers else None, tuple(numbers))


def _is_number(part: str) -> bool:
    return part.lstrip("-").isdigit()


def _members(
    left: tuple[Tensor, ...], right: tuple[Tensor, ...], words: dict[str, tuple[Source, ...]]
) -> tuple[dict[str, str], frozenset[str]]:
    """Which words stand among the dims of which prefix, and which of them in outputs alone."""
    member_of: dict[str, str] = {}
    new: set[str] = set()
    for tensor, is_output in (*((t, False) for t in left), *((t, True) for t in right)):
        for before, item, behind in zip(tensor.items, tensor.items[1:], tensor.items[2:], strict=False):
            is_among = before.is_dots and behind.is_dots and before.name == behind.name
            if item.name in words and is_among and item.name not in member_of:
                member_of[item.name] = before.name
                if is_output:
                    new.add(item.name)
    return member_of, frozenset(new)
