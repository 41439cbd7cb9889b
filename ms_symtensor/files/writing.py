"""Files that are written whole or not at all, however their writer ends."""

import csv
import io
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ms_symtensor.errors import InputError
from ms_symtensor.files.lock import locked
from ms_symtensor.files.staging import remove_leftovers, staged

Content = str | bytes


def write_file(path: str | os.PathLike[str], content: Content) -> None:
    """Write `content` (a text: as UTF-8) to `path`, whose folder is made if need be: at every moment the old file or the new one.

    InputError if that is impossible, or something else than a file is there.
    """
    update_file(path, lambda _: content)


def update_file(path: str | os.PathLike[str], change: Callable[[bytes], Content]) -> None:
    """Write what `change` makes of the content of `path`, of nothing if there is no file; one writer at a time.

    InputError as of `write_file`.
    """
    target = Path(os.path.realpath(path))
    try:
        if os.path.lexists(target) and not target.is_file():
            raise InputError(f"cannot write {path}, which is no file: choose another place")
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.parent):
            remove_leftovers(target.parent)
            _replace(target, change(target.read_bytes() if target.exists() else b""))
    except OSError as error:
        raise InputError(f"cannot write to {path} ({error.strerror}): choose another place") from error


def write_new(path: Path, content: Content) -> None:
    """Write a file that is not there yet."""
    with open(path, "xb") as file:
        file.write(encoded(content))


def encoded(content: Content) -> bytes:
    """The bytes of `content`. Names of files that are no UTF-8, or that a locale without it told, are those bytes again."""
    return content.encode(errors="surrogateescape") if isinstance(content, str) else content


def csv_of(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """The text of a table: a line of names, and one for every row."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()


def sync(paths: Iterable[Path]) -> None:
    """Return when files and folders are on the disk."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _replace(target: Path, content: Content) -> None:
    new = staged(target)
    try:
        write_new(new, content)
        sync([new])
        os.replace(new, target)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    sync([target.parent])
