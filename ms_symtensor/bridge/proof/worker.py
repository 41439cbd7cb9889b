"""Run by msrun, once per rank (and once as the scheduler): executes this rank's program and writes its results.

    worker.py DIRECTORY

Reads what `workspace` wrote there. The reference, one process with the whole network, is run without msrun (no MS_ROLE).
It imports nothing of the package, so that a process needs as little time and memory as possible.
"""

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.pop(0)  # the folder of this file: its modules must not hide others

_PR_SET_PDEATHSIG = 1
_LISTEN = "0A"  # the state of a listening socket in /proc/net/tcp
_WORLD_GROUP = "mccl_world_group"


def main(directory: Path) -> None:
    _end_with_parent()
    role = os.environ.get("MS_ROLE")
    rank = os.environ["RANK_ID"] if role else "reference"
    name = "scheduler" if role == "MS_SCHED" else f"rank{rank}"
    (directory / f"{name}.pid").write_text(str(os.getpid()))
    try:
        import mindspore

        mindspore.set_context(mode=mindspore.GRAPH_MODE)
        mindspore.set_device("CPU")
        job = json.loads((directory / "job.json").read_text())
        if role:
            _join_cluster(job, role)
        if role != "MS_SCHED":
            _run(directory, name, job)
            _write(directory / f"{name}.done", b"")
    except Exception as error:  # whatever it is, the parent reports it
        _write(directory / f"{name}.failure", f"{type(error).__name__}: {error}".encode())
        raise


def _end_with_parent() -> None:
    """When msrun ends, however it does, this process does."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(os.environ["SYMTENSOR_PARENT"]):
        sys.exit(1)


def _join_cluster(job: dict, role: str) -> None:
    from mindspore import communication

    # A worker that asks before the scheduler listens waits for seconds until it asks again.
    while role != "MS_SCHED" and not _is_listening(int(os.environ["MS_SCHED_PORT"])):
        time.sleep(0.05)
    communication.init("mccl")
    if role != "MS_SCHED":
        rank = communication.get_rank()
        for name, ranks in job["groups"]:  # in one order on all ranks
            if rank in ranks and name != _WORLD_GROUP:
                communication.create_group(name, ranks)


def _is_listening(port: int) -> bool:
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == _LISTEN for line in lines)


def _run(directory: Path, name: str, job: dict) -> None:
    import mindspore
    import numpy
    from mindspore import Parameter, Tensor, nn

    for program, calls in job["programs"]:
        values = numpy.load(directory / f"{name}.{program}.values.npz")
        parameters = {key[2:]: Parameter(Tensor(values[key]), name=key[2:]) for key in values if key.startswith("p:")}
        inputs = [Tensor(values[key]) for key in sorted(k for k in values if k.startswith("i:"))]
        cell = nn.GraphCell(mindspore.load(str(directory / f"{name}.{program}.mindir")), params_init=parameters)
        results = {}
        for call in range(calls):
            out = cell(*inputs)
            loss, gradients = out if isinstance(out, tuple) else (out, ())
            results[f"loss:{call}"] = loss.asnumpy()
        results |= {f"gradient:{i:06d}": gradient.asnumpy() for i, gradient in enumerate(gradients)}
        if calls > 1 or not gradients:
            results |= {f"parameter:{key}": value.asnumpy() for key, value in cell.parameters_dict().items()}
        path = directory / f"{name}.{program}.results.npz"
        with open(f"{path}.part", "wb") as file:
            numpy.savez(file, **results)
        os.replace(f"{path}.part", path)


def _write(path: Path, data: bytes) -> None:
    Path(f"{path}.part").write_bytes(data)
    os.replace(f"{path}.part", path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
