"""One process of a proof: executes its rank's programs, job after job, and writes the results.

    worker.py DIRECTORY NAME

Run by msrun for every rank and for the scheduler (NAME is `ranks`), and by itself as the reference, the one process with
the whole network. Each job is a folder `job0`, `job1`, … (see `workspace`). This imports nothing of the package, so that a
process needs as little time and memory as possible.
"""

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.pop(0)  # the folder of this file: its modules must not hide others

_PR_SET_PDEATHSIG = 1
_LISTENING = "0A"  # the state of such a socket in /proc/net/tcp
_POLL_S = 0.05


def main(directory: Path, name: str) -> None:
    _end_with_parent()
    role = os.environ.get("MS_ROLE")
    if role:
        name = "scheduler" if role == "MS_SCHED" else f"rank{os.environ['RANK_ID']}"
    _write(directory / f"{name}.pid", lambda part: part.write_text(str(os.getpid())))
    try:
        import mindspore

        mindspore.set_context(mode=mindspore.GRAPH_MODE)
        mindspore.set_device("CPU")
        if role:
            _join_cluster(role)
        if role != "MS_SCHED":
            for job in _jobs(directory):
                _run(job, name, bool(role))
    except Exception as error:  # whatever it is, the parent reports it
        text = f"{type(error).__name__}: {error}"
        _write(directory / f"{name}.failure", lambda part: part.write_text(text, encoding="utf-8"))
        raise


def _end_with_parent() -> None:
    """When msrun ends, however it does, this process does."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(os.environ["SYMTENSOR_PARENT"]):
        sys.exit(1)


def _join_cluster(role: str) -> None:
    from mindspore import communication

    # A worker that asks before the scheduler listens waits for seconds until it asks again.
    while role != "MS_SCHED" and not _is_listening(int(os.environ["MS_SCHED_PORT"])):
        time.sleep(_POLL_S)
    communication.init("mccl")


def _is_listening(port: int) -> bool:
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == _LISTENING for line in lines)


def _jobs(directory: Path) -> Iterator[Path]:
    """The folders of the jobs, each as soon as it is ready. The parent ends this process when there are no more."""
    number = 0
    while True:
        job = directory / f"job{number}"
        while not (job / "job.json").exists():
            time.sleep(_POLL_S)
        yield job
        number += 1


def _run(job: Path, name: str, in_cluster: bool) -> None:
    description = json.loads((job / "job.json").read_text())
    if in_cluster:
        _create_groups(description["groups"])
    for program, calls in description["programs"]:
        results = _results(job / f"{name}.{program}", calls)
        _write(job / f"{name}.{program}.results", partial(_save, arrays=results))
    (job / f"{name}.done").touch()


def _create_groups(groups: list[tuple[str, list[int]]]) -> None:
    from mindspore import communication

    rank = communication.get_rank()
    for name, ranks in groups:  # in one order on all ranks
        if rank in ranks and name not in _groups:
            communication.create_group(name, ranks)
            _groups.add(name)


_groups: set[str] = set()


def _results(path: Path, calls: int) -> dict[str, Any]:
    """The loss of every call of the program at `path`, then its gradients (and what they have added up in), or, where it
    gives none, the parameters as they are at the end.
    """
    import mindspore
    import numpy
    from mindspore import Parameter, Tensor, nn

    with numpy.load(f"{path}.values") as values:
        parameters = {key[2:]: Parameter(Tensor(values[key]), name=key[2:]) for key in values if key.startswith("p:")}
        inputs = [Tensor(values[key]) for key in sorted(key for key in values if key.startswith("i:"))]
    cell = nn.GraphCell(mindspore.load(f"{path}.mindir"), params_init=parameters)
    found = {}
    for call in range(calls):
        out = cell(*inputs)
        loss, *rest = out if isinstance(out, tuple) else (out,)
        found[f"loss:{call:06d}"] = loss.asnumpy()
    for name, tensors in zip(("gradient", "accumulated"), rest, strict=False):
        found |= {f"{name}:{i:06d}": tensor.asnumpy() for i, tensor in enumerate(tensors)}
    if not rest:  # an optimizer has taken the gradients
        found |= {f"parameter:{key}": value.asnumpy() for key, value in cell.parameters_dict().items()}
    return found


def _save(part: Path, arrays: dict[str, Any]) -> None:
    import numpy

    with open(part, "wb") as file:
        numpy.savez(file, **arrays)


def _write(path: Path, write: Callable[[Path], object]) -> None:
    """What `write` does is seen under `path` only when it is whole."""
    part = path.with_name(f"{path.name}.part")
    write(part)
    os.replace(part, path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
