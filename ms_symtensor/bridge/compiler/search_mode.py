"""Whether `search_mode="symtensor"` is asked for: kept here, because MindSpore's own context knows only its own
modes.
"""

from collections.abc import Iterator
from contextlib import contextmanager

NAME = "symtensor"


class _Request:
    def __init__(self) -> None:
        self.active = False
        self.capturing = False
        self.said = False  # that the parallel mode is none in which it counts
        self.planned = False  # a network of this process carries a plan, however it got there


request = _Request()


@contextmanager
def kept() -> Iterator[None]:
    """What is asked for when this opens is asked for again when it closes, and nothing in between."""
    before, request.active = request.active, False
    try:
        yield
    finally:
        request.active = before


@contextmanager
def capturing() -> Iterator[None]:
    """What compiles while this is open is a capture: nothing in it is planned, not even what an `AutoParallel` cell asks for."""
    before, request.capturing = request.capturing, True
    try:
        yield
    finally:
        request.capturing = before
