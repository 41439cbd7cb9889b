"""Writers that are killed at every step: `python killing.py SCRATCH` prints what was found as JSON.

A child process writes; an audit hook kills it (SIGKILL) at the n-th step of the file system that it is about to take, for n = 1,
2, … until it gets through.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from ms_symtensor.files import folder as folders
from ms_symtensor.files.folder import write_folder
from ms_symtensor.files.writing import write_file

OLD = {"a": "old a", "b": "old b", "only_old": "old"}
NEW = {"a": "new a", "b": "new b", "only_new": "new"}
USERS = {"notes": "mine", "runs/one/log": "10.8"}
STEPS = ("open", "os.", "shutil.", "ctypes.")


def is_killed(write: Callable[[], None], step: int) -> bool:
    """Whether a process that writes is killed at `step`; it has fewer steps otherwise."""
    process = os.fork()
    if process == 0:
        count = 0

        def hook(event: str, _: object) -> None:
            nonlocal count
            if event.startswith(STEPS) and event != "os.fork":
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        write()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(process, 0)[1])


def owned(directory: Path) -> frozenset[str]:
    return frozenset({*OLD, *NEW} & {one.name for one in directory.iterdir()})


def write(directory: Path, contents: dict[str, str]) -> None:
    write_folder(directory, contents, owned, lambda name: name in {*OLD, *NEW})


def files_of(directory: Path) -> dict[str, str]:
    return {str(one.relative_to(directory)): one.read_text() for one in directory.rglob("*") if one.is_file()}


def put(directory: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


def told(directory: Path) -> str:
    """What is in a folder that was old and is written anew."""
    if not directory.exists():
        return "missing"
    there = files_of(directory)
    return "old" if there == {**OLD, **USERS} else "new" if there == {**NEW, **USERS} else "mixed"


def killed_folders(scratch: Path) -> dict[str, list[str]]:
    """What is there after each kill, and after the next writer."""
    found: dict[str, list[str]] = {"killed": [], "after": []}
    step, place = 0, scratch / "plans" / "mine"
    while True:
        step += 1
        shutil.rmtree(place.parent, ignore_errors=True)
        put(place, {**OLD, **USERS})
        if not is_killed(lambda: write(place, NEW), step):
            return found
        found["killed"].append(told(place))
        write(place, NEW)
        beside = sorted(one.name for one in place.parent.iterdir())
        found["after"].append(told(place) if beside == ["mine"] else f"left: {beside}")


def killed_files(scratch: Path) -> dict[str, list[str]]:
    """The same for one file."""
    found: dict[str, list[str]] = {"killed": [], "after": []}
    step, place = 0, scratch / "files" / "one.yaml"
    while True:
        step += 1
        put(place.parent, {place.name: "old"})
        if not is_killed(lambda: write_file(place, "new"), step):
            return found
        found["killed"].append(place.read_text())
        write_file(place, "new")
        beside = sorted(one.name for one in place.parent.iterdir())
        found["after"].append(place.read_text() if beside == [place.name] else f"left: {beside}")


if __name__ == "__main__":
    root = Path(sys.argv[1])
    said = {"folders": killed_folders(root), "files": killed_files(root)}
    folders.exchange = lambda *_: False  # as where kernel or file system cannot exchange two folders
    print(json.dumps(said | {"in two steps": killed_folders(root)}))
