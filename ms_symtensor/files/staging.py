"""What is not in its place yet: hidden names beside the place, which the next writer removes if their own was killed."""

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from ms_symtensor.files.lock import LOCK_FILE

_STAGED = re.compile(r"\.(.+)\.symtensor-(?:[0-9a-f]{8}|was)")
Belongs = Callable[[str], bool]
"""Whether a file of this name in a folder that is written as a whole is one that the package writes, and so not the user's."""


def staged(target: Path) -> Path:
    """A new name beside `target` for what is to take its place."""
    return target.with_name(f".{target.name}.symtensor-{secrets.token_hex(4)}")


def put_away(target: Path) -> Path:
    """The name beside `target` for what it was, while it is replaced in two steps."""
    return target.with_name(f".{target.name}.symtensor-was")


def is_passing(name: str) -> bool:
    """Whether a file is there only while something is written."""
    return name == LOCK_FILE or _STAGED.fullmatch(name) is not None


def has_leftovers(folder: Path) -> bool:
    """Whether `folder` holds anything that is not in its place, and is being written, or was by a writer that was killed."""
    try:
        return next(_leftovers(folder), None) is not None
    except OSError:
        return False


def remove_leftovers(folder: Path, belongs: Belongs | None = None) -> None:
    """Remove what killed writers left in `folder`, whose lock the caller holds; of folders those that `belongs` is for.

    A folder that was put away and has nothing in its place is put back. Files of the user (not `belongs`) that are in a
    leftover alone are moved to where they were.
    """
    for leftover, target in list(_leftovers(folder)):
        if not is_folder(leftover):
            leftover.unlink(missing_ok=True)
        elif leftover == put_away(target) and not os.path.lexists(target):
            os.rename(leftover, target)
        elif belongs is not None:
            discard(leftover, target, belongs)


def discard(leftover: Path, target: Path, belongs: Belongs) -> None:
    """Remove the folder `leftover`; what is the user's in it and not in the folder `target` is moved there."""
    if target.is_dir():
        for entry in list(leftover.iterdir()):
            if not (belongs(entry.name) or is_passing(entry.name)):
                _move_missing(entry, target / entry.name)
    shutil.rmtree(leftover)


def _move_missing(source: Path, target: Path) -> None:
    """Move `source` to `target` where that is missing, and of a folder what is missing in it."""
    if not os.path.lexists(target):
        os.rename(source, target)
    elif is_folder(source) and is_folder(target):
        for entry in list(source.iterdir()):
            _move_missing(entry, target / entry.name)


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder, and no link to one."""
    return path.is_dir() and not path.is_symlink()


def _leftovers(folder: Path) -> Iterator[tuple[Path, Path]]:
    """What is not in its place, and the place."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if (found := _STAGED.fullmatch(entry.name)) is not None:
                yield Path(entry.path), folder / found[1]
