"""The points of a sweep in its folder: one file each, so that a sweep that was ended goes on where it was."""

import dataclasses
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context, resource_tracker
from pathlib import Path
from typing import Any

from ms_symtensor.cluster.content import to_content
from ms_symtensor.files.writing import write_file
from ms_symtensor.interrupts import interruptible
from ms_symtensor.strategy import digest
from ms_symtensor.sweep.points import Point
from ms_symtensor.sweep.run import Row, cluster_of, row_of
from ms_symtensor.version import VERSION

FOLDER = "points"
WATCH_S = 0.5
_NOT_OF_A_POINT = ("cluster", "device_num", "vary", "weak", "jobs", "out", "json", "verbose", "command", "power")


def key_of(point: Point, options: Mapping[str, Any]) -> str:
    """The name of a point: of its request, its cluster's numbers, the network's file if there is one, and this version."""
    model = Path(str(options["model"]).rpartition(":")[0] or str(options["model"]))
    asked = {name: str(value) for name, value in options.items() if name not in _NOT_OF_A_POINT}
    return digest.of_data(
        {
            "version": VERSION, "point": dataclasses.asdict(point), "options": asked,
            "cluster": to_content(cluster_of(point)), "numbers": repr(cluster_of(point)),
            "file": digest.of_content(model.read_bytes()) if model.is_file() else "",
        }
    )[:24]  # fmt: skip


def rows(
    points: Sequence[Point],
    options: Mapping[str, Any],
    folder: Path,
    jobs: int,
    progress: Callable[[int, int], None] = lambda done, known: None,
) -> tuple[list[Row], int]:
    """What is told of every point, in their order, and how many of them were known already.

    Each is written as soon as it is there. `progress`: how many are done, and how many of these were known.
    """
    files = [folder / FOLDER / f"{key_of(point, options)}.json" for point in points]
    found = {file: row for file in files if (row := _known(file)) is not None}
    known = sum(file in found for file in files)
    missing = {file: point for file, point in zip(files, points, strict=True) if file not in found}
    done = known
    progress(done, known)
    if len(missing) == 1 or jobs == 1:
        for file, point in missing.items():
            found[file] = _kept(file, row_of(point, options))
            done += 1
            progress(done, known)
    elif missing:
        own, context = (os.getpid(),), get_context("spawn")
        with ProcessPoolExecutor(min(jobs, len(missing)), context, initializer=_end_with, initargs=own) as pool:
            try:
                with _begun_without_interrupts():
                    begun = {pool.submit(row_of, point, dict(options)): file for file, point in missing.items()}
                for future in as_completed(begun):
                    found[begun[future]] = _kept(begun[future], future.result())
                    done += 1
                    progress(done, known)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in active_children():
                    process.terminate()
                raise
    return [found[file] for file in files], known


@contextmanager
def _begun_without_interrupts() -> Iterator[None]:
    """Processes that are begun here take no Ctrl-C, of which each would print where it was; their parent, which hears of it
    afterwards, ends them.
    """
    resource_tracker.ensure_running()  # it would be begun with the first process, and let signals in again
    with interruptible(at_once=False):
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with(parent: int) -> None:
    """End this process soon after its `parent` has ended, in whatever way."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _known(file: Path) -> Row | None:
    """The row in a file; None where there is none, or it was cut or changed."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    return dict(json.loads(content)["row"]) if digest.is_sealed(content) else None


def _kept(file: Path, row: Row) -> Row:
    write_file(file, digest.sealed({"row": row}))
    return dict(json.loads(json.dumps(row)))
