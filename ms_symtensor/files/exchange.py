"""Two folders change places in one step, which Linux has for most file systems (renameat2, RENAME_EXCHANGE)."""

import ctypes
import errno
import os
from pathlib import Path

_AT_FDCWD = -100  # linux/fcntl.h
_RENAME_EXCHANGE = 2  # linux/fs.h
_MISSING = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)
"""What kernels and file systems without it answer (man 2 rename)."""


def exchange(first: Path, second: Path) -> bool:
    """Let `first` and `second`, on one file system, change places: at every moment both exist. False where that is not known.

    OSError where it is known and fails.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:  # a C library without the function
        return False
    if rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _MISSING:
        return False
    raise OSError(number, os.strerror(number), str(first))
