"""Arguments of the interface in Python: what they must be, or an InputError that says so in one line."""

import math
import os
from collections.abc import Mapping
from numbers import Integral

from ms_symtensor.errors import InputError

MOST_DEVICES = 1 << 18
"""No cluster is larger, and ranks are listed one by one: a million take minutes (empirical)."""


def whole_number(name: str, value: object) -> int:
    """The positive whole number `value`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InputError(f"{name} is {value!r}: give a positive whole number")
    return int(value)


def memory_B(name: str, value: object) -> int:
    """The number of bytes `value`, above 0; parts of a byte are left out."""
    if isinstance(value, bool) or not isinstance(value, Integral | float) or not 1 <= float(value) < math.inf:
        raise InputError(f"{name} is {value!r}: give a number of bytes above 0, e.g. 56 * 2**30")
    return int(value)


def place(name: str, value: object) -> str:
    """The path, or name, `value`."""
    if not isinstance(value, str | os.PathLike):
        raise InputError(f"{name} is {value!r}: give a name or a path")
    return os.fspath(value)


def named(name: str, value: object) -> Mapping[str, object]:
    """The mapping `value` of names to what is wanted of them."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f'{name} is {value!r}: give a mapping of names, e.g. {{"model_parallel": 8}}')
    return value
