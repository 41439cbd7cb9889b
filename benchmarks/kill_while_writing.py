"""Kill a process while it writes a plan over another one: is the folder the old plan or the new one, and is anything left?

    python benchmarks/kill_while_writing.py [200] [--seed 5]

Two plans of one network are found once. For every kill the folder of the first, with notes and a subfolder of a user, is written
over with the second in a process of its own (as `symtensor plan` writes it), which is killed (SIGKILL) after a random part of the
time that writing takes. The folder must be one of the plans as a whole, with what is the user's, and load; the next writer must
leave nothing beside it. Exit code 1 if one is not.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median

from ms_symtensor.cluster.load import load as load_cluster
from ms_symtensor.models import planned, resolve
from ms_symtensor.report.emit import write_plan
from ms_symtensor.report.plan_report import plan_texts
from ms_symtensor.report.programs import programs_of
from ms_symtensor.search.constraints.limits import limits_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.strategy.file import load

TIMING = "timing.json"  # differs from run to run
USERS = {"notes.txt": "mine", "runs/first/loss.csv": "step,loss\n0,10.8\n"}
SLACK = 1.3  # some of the processes end before they are killed
MEASURED = 5  # writers that are not killed, for the time that one takes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kills", type=int, nargs="?", default=200)
    parser.add_argument("--seed", type=int, default=5)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="symtensor_kill_") as scratch:
        return killed(Path(scratch), chosen.kills, random.Random(chosen.seed))


def killed(scratch: Path, kills: int, random_: random.Random) -> int:
    """Kill so many writers. The exit code."""
    write_old, write_new = writer_of({}), writer_of({"model_parallel": 8, "pipeline_stages": 1})
    write_old(scratch / "old")
    write_new(scratch / "new")
    old, new = files_of(scratch / "old"), files_of(scratch / "new")
    folder = scratch / "work" / "plan"
    takes_s = median(writing_s(write_new, folder, scratch / "old") for _ in range(MEASURED))
    found: Counter[str] = Counter()
    left = 0
    for _ in range(kills):
        renew(folder, scratch / "old")
        process = in_a_process(write_new, folder)
        time.sleep(random_.random() * SLACK * takes_s)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        left += len(list(folder.parent.iterdir())) > 1
        found[what_is_there(folder, old, new)] += 1
    write_new(folder)
    after = sorted(one.name for one in folder.parent.iterdir())
    print(
        f"{kills} kills within {SLACK * takes_s * 1e3:.0f} ms: {dict(found)}; beside the folder something was left {left} times"
    )
    print(f"after the next writer: {', '.join(after)}")
    return 0 if set(found) <= {"old", "new"} and after == [folder.name] else 1


def writer_of(pins: dict[str, object]) -> Callable[[Path], object]:
    """Writes the plan of two layers of Llama-2 7B on 8 devices with `pins` into a folder."""
    model = resolve("llama2_7b", 16, None, {"num_layers": 2})
    cluster = load_cluster("atlas_800t_a2")
    limit_B = int(cluster.device.hbm_usable_B)
    request = Request(cluster, 8, 16, model.seq_length, limit_B, model.name, model.source, limits_of(pins.items(), ()))
    plan, graph = planned(model, request)
    programs = programs_of(plan, graph)
    text = plan_texts(plan, graph, programs).whole
    return lambda folder: write_plan(plan, graph, programs, text, folder)


def in_a_process(write: Callable[[Path], object], folder: Path) -> int:
    """Begin to write in a process of its own. Its id."""
    process = os.fork()
    if process == 0:
        try:
            write(folder)
        finally:
            os._exit(0)
    return process


def writing_s(write: Callable[[Path], object], folder: Path, old: Path) -> float:
    """Seconds that a process that is not killed takes to write over the `old` plan."""
    renew(folder, old)
    start = time.perf_counter()
    os.waitpid(in_a_process(write, folder), 0)
    return time.perf_counter() - start


def renew(folder: Path, old: Path) -> None:
    """Put the `old` plan and the user's files into `folder`; what killed writers left beside it stays."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(old, folder)
    for name, text in USERS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def files_of(folder: Path) -> dict[str, bytes]:
    """The files of a plan, without the time that the search took."""
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.name != TIMING}


def what_is_there(folder: Path, old: dict[str, bytes], new: dict[str, bytes]) -> str:
    """`old` or `new`, or what is wrong."""
    for name, text in USERS.items():
        if not (folder / name).is_file() or (folder / name).read_text() != text:
            return f"lost {name}"
    tops = {Path(name).parts[0] for name in USERS}
    there = {one.name: one.read_bytes() for one in folder.iterdir() if one.name not in {*tops, TIMING}}
    load(folder)
    return "old" if there == old else "new" if there == new else "MIXED"


if __name__ == "__main__":
    sys.exit(main())
