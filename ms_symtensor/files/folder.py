"""Folders that are written as a whole: old or new at every moment, with what the user keeps in them."""

import errno
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from ms_symtensor.errors import InputError
from ms_symtensor.files.exchange import exchange
from ms_symtensor.files.lock import locked
from ms_symtensor.files.staging import Belongs, discard, is_folder, is_passing, put_away, remove_leftovers, staged
from ms_symtensor.files.writing import Content, sync, write_new

Owned = Callable[[Path], frozenset[str]]
"""The names of the files in a folder that go when it is written anew."""
MOST_LINKED = 1000
"""Files of the user that a new folder takes over; a folder of more is not one of the package's alone (empirical)."""
_NOT_AS_A_WHOLE = (
    *(errno.EACCES, errno.EPERM, errno.EROFS),  # the folder above cannot be written
    *(errno.EBUSY, errno.EXDEV),  # a mount point; a folder of a lower layer of an overlay
)


class _NotAsAWhole(Exception):
    """The folder cannot be replaced by another one."""


def write_folder(
    directory: str | os.PathLike[str], contents: Mapping[str, Content], owned: Owned, belongs: Belongs
) -> None:
    """Make `contents`, by name, the files of `directory` in place of those that are `owned` there; all other files stay.

    The new folder is written beside the old one, with links to what stays, is on the disk, and then takes its place by one
    rename. Where that cannot be, because the folder above may not be written, or the folder is a mount point, the one in which
    this process works, or holds more than `MOST_LINKED` other files, the files change one by one, each as a whole, in the order
    of `contents`. `belongs` tells names that may be owned from those of the user.

    InputError, before anything changes, if the directory cannot be written or has a directory in the place of a file.
    """
    target = Path(os.path.realpath(directory))
    try:
        for name in contents:
            if (target / name).is_dir():
                place = Path(directory) / name
                raise InputError(f"cannot write {place}, which is a directory: move it, or choose another place")
        if target.exists() and not target.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write_as_a_whole(target, contents, owned, belongs)
        except _NotAsAWhole:
            _write_one_by_one(target, contents, owned)
    except OSError as error:
        raise InputError(f"cannot write to {directory} ({error.strerror}): choose another directory") from error


def write_named(directory: str | os.PathLike[str], contents: Mapping[str, Content], names: Collection[str]) -> None:
    """`write_folder` where what may be owned is called by one of `names`. Errors: as of `write_folder`."""

    def owned(folder: Path) -> frozenset[str]:
        return frozenset(name for name in names if (folder / name).is_file())

    write_folder(directory, contents, owned, lambda name: name in names)


def _write_as_a_whole(target: Path, contents: Mapping[str, Content], owned: Owned, belongs: Belongs) -> None:
    if not target.name or _works_in(target):
        raise _NotAsAWhole
    new = staged(target)
    try:
        with locked(target.parent):
            remove_leftovers(target.parent, belongs)
            try:
                new.mkdir()
                for name, content in contents.items():
                    write_new(new / name, content)
                if target.exists():
                    shutil.copymode(target, new)
                    _link(target, new, owned(target) | contents.keys())
                sync([*(new / name for name in contents), new])
                _put_in_place(new, target)
            finally:
                if new.exists():  # the old folder by now, or what could not be finished
                    discard(new, target, belongs)
            sync([target.parent])
    except OSError as error:
        if error.errno in _NOT_AS_A_WHOLE:
            raise _NotAsAWhole from error
        raise


def _put_in_place(new: Path, target: Path) -> None:
    if not target.exists():
        os.rename(new, target)
    elif not exchange(new, target):
        old = put_away(target)
        os.rename(target, old)
        os.rename(new, target)
        os.rename(old, new)


def _link(source: Path, target: Path, without: frozenset[str] | set[str]) -> None:
    """Give the folder `target` the files and folders of `source`, as links; _NotAsAWhole where that cannot be."""
    rest = MOST_LINKED
    for path in _inside(source, without):
        rest -= 1
        new = target / path.relative_to(source)
        if rest < 0:
            raise _NotAsAWhole
        if is_folder(path):
            new.mkdir()
            shutil.copymode(path, new)
            continue
        try:
            os.link(path, new, follow_symlinks=False)
        except OSError as error:
            raise _NotAsAWhole from error


def _inside(folder: Path, without: frozenset[str] | set[str]) -> Iterator[Path]:
    """What is in `folder`, and in folders in it, each after the one that it is in."""
    for path in folder.iterdir():
        if path.name not in without and not is_passing(path.name):
            yield path
            if is_folder(path):
                yield from _inside(path, frozenset())


def _write_one_by_one(target: Path, contents: Mapping[str, Content], owned: Owned) -> None:
    target.mkdir(exist_ok=True)
    with ExitStack() as locks:
        with suppress(OSError):  # the folder above may be read only
            locks.enter_context(locked(target.parent))
        locks.enter_context(locked(target))
        remove_leftovers(target)
        old = owned(target)
        new = {target / name: staged(target / name) for name in contents}
        try:
            for path, content in zip(new.values(), contents.values(), strict=True):
                write_new(path, content)
            sync(new.values())
            for path, written in new.items():
                os.replace(written, path)
            for name in old - contents.keys():
                (target / name).unlink(missing_ok=True)
        finally:
            for written in new.values():
                written.unlink(missing_ok=True)
        sync([target])


def _works_in(target: Path) -> bool:
    """Whether this process works in `target`, so that the user's shell may."""
    try:
        return Path.cwd().is_relative_to(target)
    except OSError:
        return False
