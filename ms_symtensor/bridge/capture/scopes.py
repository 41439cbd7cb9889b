"""The names that MindSpore gives to the cells of a network (scopes). It gives them once, at the first compile, and
for good: a network that was captured alone would keep its short names when it is later compiled inside a training
cell.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def fresh_scopes(cell: Any) -> Iterator[None]:
    """While open, `cell` and its children are named as if compiled for the first time, and without marks of
    recompute.
    """
    before = [(owner, owner.__dict__.get("_scope")) for _, owner in cell.cells_and_names()]
    for owner, _ in before:
        owner.__dict__["_scope"] = None
    try:
        yield
    finally:
        for owner, scope in before:
            owner.__dict__["_scope"] = scope
