"""launch/msrun.sh: a plan for one device is trained on a CPU; what is missing is told before anything starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ms_symtensor.cli import main

pytest.importorskip("mindspore")

ROOT = Path(__file__).parents[1]
NETWORK = """
import mindspore as ms
from mindspore import nn, ops
from mindspore.common.initializer import Zero


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Dense(8, 16), nn.Dense(16, 1)
        self.relu, self.mean = ops.ReLU(), ops.ReduceMean()

    def construct(self, x):
        return self.mean(self.second(self.relu(self.first(x))))


def make():
    return Net(), (ms.Tensor(shape=(4, 8), dtype=ms.float32, init=Zero()),)
"""


def msrun(folder, *arguments, **variables):
    """What launch/msrun.sh does when it is called in `folder`: exit code, and all that it says."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "GLOG_v": "3", **variables}
    done = subprocess.run(
        [ROOT / "launch/msrun.sh", *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("user")
    (folder / "net.py").write_text(NETWORK)
    assert main(["plan", f"{folder / 'net.py'}:make", "--device-num", "1", "--out", str(folder / "plan")]) == 0
    return folder


def test_a_plan_in_the_users_folder_is_trained_by_one_worker_alone(folder):
    code, said = msrun(folder, "plan", "--device-target", "CPU", "--steps", "2", LOCAL_WORKERS="1", MASTER_PORT="8217")
    assert code == 0, said
    logs = {log.name: log.read_text() for log in (folder / "msrun_log").iterdir()}
    assert "step 1: loss" in logs["worker_0.log"] and "step" not in logs["scheduler.log"]


@pytest.mark.parametrize(
    ("given", "said"),
    [({}, "NODE_RANK: is the number of this machine, 0 to 1"), ({"NODE_RANK": "0"}, "MASTER_ADDR: is the IP address")],
)
def test_on_several_machines_each_has_to_know_its_place(tmp_path, given, said):
    code, text = msrun(tmp_path, "plan", WORKERS="16", **given)
    assert code != 0 and said in text


def test_a_factory_that_is_not_where_the_plan_was_made_is_told(folder, tmp_path, capsys):
    text = (folder / "plan/plan.json").read_text().replace(str(folder), str(tmp_path))
    (tmp_path / "plan.json").write_text(text)
    capsys.readouterr()
    assert main(["verify", str(tmp_path), "--edited", "--trust"]) == 2
    said = capsys.readouterr().err
    assert f"there is no file {tmp_path / 'net.py'}" in said and 'change "source" in plan.json' in said
