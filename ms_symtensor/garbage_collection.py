"""Python's search for garbage, off for a while."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

IMMORTAL = 1000
"""As many frozen objects, at most, are Python's own: from 3.12 on it counts its immortal ones, 375 of them (empirical). Whoever
freezes, freezes all objects, which are thousands.
"""


def has_frozen() -> bool:
    """Whether somebody has frozen objects (`gc.freeze`)."""
    return gc.get_freeze_count() > IMMORTAL


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """A search and a compile make many small objects and hardly a cycle; looking for those takes up to a tenth of their time.

    MindSpore asks for a whole search before every compile: there is little to look through then, what was made before being
    frozen meanwhile. What was made inside counts as old afterwards: the next new object would have all of it looked through.
    """
    if not gc.isenabled():
        yield
        return
    ours = not has_frozen()  # else there are frozen objects of somebody else's
    gc.disable()
    if ours:
        gc.freeze()
    try:
        yield
    finally:
        if ours:
            gc.freeze()
            gc.unfreeze()
        gc.enable()
