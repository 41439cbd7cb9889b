"""One writer at a time in a folder: a lock file, which the last writer removes."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ms_symtensor.errors import InputError

LOCK_FILE = ".symtensor.lock"
WAIT_S = 60.0
"""Writing takes a second or two; empirical."""
_POLL_S = 0.02


@contextmanager
def locked(folder: Path, wait_s: float = WAIT_S) -> Iterator[None]:
    """Be the only writer in `folder`, which exists, among those that ask so.

    The kernel drops the lock of a process that ends, however it ends; its lock file then goes with the next writer's.
    Errors: OSError if there can be no lock file; InputError if another writer keeps the lock for longer than `wait_s` seconds.
    """
    path = folder / LOCK_FILE
    handle = _acquired(path, time.monotonic() + wait_s)
    try:
        yield
    finally:
        path.unlink(
            missing_ok=True
        )  # before the lock is dropped: whoever waits for it sees that the file is another one
        os.close(handle)


def _acquired(path: Path, until_s: float) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            while not _is_taken(handle):
                if time.monotonic() > until_s:
                    raise InputError(
                        f"another process is writing in {path.parent} (it holds {path.name}): try again later"
                    )
                time.sleep(_POLL_S)
            if _is_at(path, handle):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_taken(handle: int) -> bool:
    """Take the lock, unless another process has it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(handle))
    except FileNotFoundError:
        return False
