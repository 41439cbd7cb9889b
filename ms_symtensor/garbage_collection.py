"""Python's search for garbage, off for a while."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """A search and a compile make many small objects and hardly a cycle; looking for those takes up to a tenth of their time.

    What was made counts as old afterwards: the next new object would have all of it looked through.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():  # else there are frozen objects of somebody else's
                gc.freeze()
                gc.unfreeze()
            gc.enable()
