"""The process that starts a proof's processes: one of its own, so that each does not run the script again which asks for a proof.

It reads jobs and a time limit from standard input, and writes what came of them to standard output, pickled by its own parent.
"""

import multiprocessing
import pickle
import queue
import sys
from collections.abc import Sequence
from typing import Any

from ms_symtensor.reshard.worker import Job, work


def run(jobs: Sequence[Job], time_limit_s: float) -> list[tuple[int, Any]]:
    """What came of every job, `Result`s, or words that say what went wrong; fewer where time ran out."""
    context = multiprocessing.get_context("fork")  # nothing but numpy is loaded, and no thread runs
    inboxes: list[Any] = [context.Queue() for _ in jobs]
    results: Any = context.Queue()
    processes = [context.Process(target=work, args=(job, inboxes, results), daemon=True) for job in jobs]
    found: list[tuple[int, Any]] = []
    try:
        for process in processes:
            process.start()
        for _ in jobs:
            found.append(results.get(timeout=time_limit_s))
            if isinstance(found[-1][1], str):
                break  # others wait for its messages
    except queue.Empty:
        pass
    finally:
        for process in processes:
            process.kill()
    return found


if __name__ == "__main__":
    pickle.dump(run(*pickle.load(sys.stdin.buffer)), sys.stdout.buffer)
    sys.stdout.flush()
