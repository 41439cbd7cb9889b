"""Four ranks (msrun, on a CPU) that compile a network, in turn alike and with something else on one of them.

    ranks_apart.py DIRECTORY

Every rank writes what became of each case into DIRECTORY/rankN.json: the error and the seconds until it came; no error where
MindSpore's compile began, which ends at once: its parallel compiler takes no CPU as its target.
"""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import communication, nn, ops

import ms_symtensor
from ms_symtensor import plan_network, version
from ms_symtensor.bridge.plugin import planning
from ms_symtensor.errors import SymTensorError


class Net(nn.Cell):
    def __init__(self, hidden):
        super().__init__()
        self.up, self.down = nn.Dense(64, hidden, has_bias=False), nn.Dense(hidden, 64, has_bias=False)
        self.relu, self.mean, self.square = ops.ReLU(), ops.ReduceMean(), ops.Square()

    def construct(self, x):
        return self.mean(self.square(self.down(self.relu(self.up(x)))))


def main(directory):
    # A worker that asks before the scheduler listens waits for seconds until it asks again.
    while os.environ["MS_ROLE"] != "MS_SCHED" and not is_listening(int(os.environ["MS_SCHED_PORT"])):
        time.sleep(0.05)
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    communication.init()
    rank = communication.get_rank()
    first, other = directory / f"first{rank}", directory / f"other{rank}"
    plan_network(Net(64 * 4), data(), device_num=4, save=first)
    plan_network(Net(64 * 4), data(), device_num=4, save=other, fix={"data_parallel": 4})
    cases = {
        "same": (None, {}, {}),
        "memory": (2, {"SYMTENSOR_MEMORY_LIMIT_GIB": "40"}, {}),
        "cluster": (1, {"SYMTENSOR_CLUSTER": "a100_80g"}, {}),
        "pinned": (3, {}, {"fix": {"data_parallel": 4}}),
        "saved": (3, {"SYMTENSOR_STRATEGY": str(other)}, {}),
        "same saved": (3, {"SYMTENSOR_STRATEGY": str(first)}, {}),
        "fails": (3, {"SYMTENSOR_CLUSTER": "nonsense"}, {}),
    }
    found = {}
    for name, (who, variables, options) in cases.items():
        found[name] = outcome(lambda v=variables, o=options, w=who: search_mode(64 * 4, v, o, w == rank))
    if rank == 0:
        ms_symtensor.__version__ = "0.0.1"
    found["version"] = outcome(lambda: search_mode(64 * 4, {}, {}, False))
    ms_symtensor.__version__ = version.VERSION
    found["network"] = outcome(lambda: search_mode(64 * (8 if rank == 1 else 4), {}, {}, False))
    found["applied"] = outcome(lambda: applied(other if rank == 2 else first))
    found["edited"] = outcome(lambda: applied(first, edited=other if rank == 2 else None))
    found["same applied"] = outcome(lambda: applied(first))
    if rank != 1:
        found["late"] = outcome(lambda: search_mode(64 * 4, {}, {}, False))
    (directory / f"rank{rank}.json").write_text(json.dumps(found))


def is_listening(port):
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in lines)


def data():
    return ms.Tensor(np.ones((16, 64), np.float32))


def search_mode(hidden, variables, options, is_other):
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context(parallel_mode="auto_parallel", search_mode="symtensor", full_batch=True)
    if is_other:
        os.environ.update(variables)
        ms_symtensor.configure(**options)
    try:
        compiled(Net(hidden))
    finally:
        for name in variables:
            os.environ.pop(name, None)
        planning._configured.clear()


def applied(path, edited=None):
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True)
    net = Net(64 * 4)
    plan = ms_symtensor.load_plan(path)
    if edited is not None:
        plan = replace(plan, stages=ms_symtensor.load_plan(edited).stages)
    plan.apply(net, data())
    compiled(net)


def compiled(net):
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), learning_rate=0.5)).set_train()
    step.compile(data())


def outcome(run):
    start = time.monotonic()
    try:
        run()
    except RuntimeError as error:
        assert "Invalid backend: CPU" in str(error)
        return {"error": "", "seconds": time.monotonic() - start}
    except SymTensorError as error:
        return {"error": str(error), "kind": type(error).__name__, "seconds": time.monotonic() - start}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
