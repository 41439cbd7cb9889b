"""Data of a JSON file, read piece by piece: every mistake is named by file and key."""

import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from ms_symtensor.errors import InputError

MOST = (1 << 63) - 1
"""Larger numbers count nothing: neither devices nor bytes."""


@dataclass(frozen=True)
class Field:
    """A value of the file `origin` that stands there under `key`; `remedy` says what to do if it is no good."""

    value: Any
    origin: str
    key: str = ""
    remedy: str = "write it again"

    def require_format(self, name: str, version: int, what: str, older: tuple[int, ...] = ()) -> None:
        """InputError unless the data says `"format": name` and `"version": version`, or one of the `older` ones."""
        if not isinstance(self.value, dict) or self.value.get("format") != name:
            raise InputError(f'{self.origin} is not {what} (no "format": "{name}"): {self.remedy}')
        found = self.value.get("version")
        if type(found) is not int or found not in (version, *older):
            newer = type(found) is int and found > version
            remedy = "upgrade ms_symtensor" if newer else self.remedy
            raise InputError(f"{self.origin} has format version {found!r}, this ms_symtensor reads {version}: {remedy}")

    def items_of_list(self) -> list["Field"]:
        if not isinstance(self.value, list):
            raise self._wrong("a list")
        return [Field(v, self.origin, f"{self.key}[{i}]", self.remedy) for i, v in enumerate(self.value)]

    def __getitem__(self, name: str) -> "Field":
        if name not in self:
            raise InputError(f"{self.origin}: key {self._key(name)!r} is missing: {self.remedy}")
        return Field(self.value[name], self.origin, self._key(name), self.remedy)

    def __contains__(self, name: str) -> bool:
        if not isinstance(self.value, dict):
            raise self._wrong("an object")
        return name in self.value

    def items(self) -> Iterator[tuple[str, "Field"]]:
        if not isinstance(self.value, dict):
            raise self._wrong("an object")
        for name in self.value:
            yield name, self[name]

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self._wrong("a text")
        return self.value

    def one_of(self, known: Collection[str]) -> str:
        if not isinstance(self.value, str) or self.value not in known:
            raise self._wrong(f"one of {', '.join(known)}")
        return self.value

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self._wrong("true or false")
        return self.value

    def integer(self, low: int, high: int = MOST) -> int:
        if type(self.value) is not int or not low <= self.value <= high:
            is_large = type(self.value) is int and self.value > MOST
            raise self._wrong(f"a whole number from {low}" + (f" to {high}" if high < MOST or is_large else " up"))
        return self.value

    def number(self, low: float) -> float:
        if type(self.value) not in (int, float) or not low <= self.value <= sys.float_info.max:
            raise self._wrong(f"a number from {low:g} up")
        return float(self.value)

    def degrees(self) -> tuple[tuple[int, ...], ...]:
        """A strategy: a list of positive whole numbers for every tensor."""
        if not isinstance(self.value, list) or not all(isinstance(item, list) for item in self.value):
            raise self._wrong("a list of lists")
        if any(type(n) is not int or not 1 <= n <= MOST for item in self.value for n in item):
            raise self._wrong("positive whole numbers")
        return tuple(tuple(item) for item in self.value)

    def _key(self, name: str) -> str:
        return f"{self.key} > {name}" if self.key else name

    def _wrong(self, expected: str) -> InputError:
        shown = repr(self.value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return InputError(f"{self.origin}: {self.key or 'the data'} must be {expected}, not {shown}: {self.remedy}")
