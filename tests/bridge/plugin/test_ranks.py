"""Ranks compare their plans before the compile: four processes of msrun, and processes that have no others."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import mindspore as ms
import pytest

from ms_symtensor.bridge.compiler.host import ascend_compiler
from ms_symtensor.bridge.plugin import ranks
from ms_symtensor.bridge.proof.launch import _free_port

RANKS = 4
ALIKE = ("same", "same saved", "same applied")
SAID = {
    "memory": "rank 2 has memory limit 40 GiB, ranks 0, 1, 3 have 55.1 GiB",
    "cluster": "rank 1 has cluster a100_80g (*), ranks 0, 2, 3 have atlas_800t_a2 (*); also differ: memory limit",
    "pinned": "rank 3 has fix data_parallel=4, ranks 0 to 2 have nothing",
    "saved": "rank 3 (saved plan *) has fix data_parallel=4, ranks 0 to 2 (searched) have nothing",
    "version": "rank 0 has version of ms_symtensor 0.0.1, ranks 1 to 3 have *",
    "network": "rank 1 has network *, ranks 0, 2, 3 have *",
    "edited": "rank 2 has strategies *, ranks 0, 1, 3 have *",
    "applied": "rank 2 has fix data_parallel=4, ranks 0, 1, 3 have nothing",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What became of every case, rank by rank."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("MS_", "RANK_", "SYMTENSOR_"))},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "GLOG_v": "3",
        "OMP_NUM_THREADS": "1",
        "MS_CPU_COMM_OP_TIMEOUT": "10",
    }
    msrun = ["msrun", f"--worker_num={RANKS}", f"--local_worker_num={RANKS}", f"--master_port={_free_port()}",
             f"--log_dir={folder / 'log'}", "--join=True", Path(__file__).with_name("ranks_apart.py"), folder]  # fmt: skip
    done = subprocess.run(msrun, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("name", ALIKE)
def test_ranks_that_are_alike_go_on(outcomes, name):
    assert [one[name]["error"] for one in outcomes] == [""] * RANKS


@pytest.mark.parametrize("name", SAID)
def test_ranks_that_differ_all_stop_and_are_named(outcomes, name):
    said = {one[name]["error"] for one in outcomes}
    pattern = ".*".join(map(re.escape, SAID[name].split("*")))
    assert len(said) == 1 and re.search(f"the ranks do not have the same plan: {pattern}: give all", *said)
    assert max(one[name]["seconds"] for one in outcomes) < 30


def test_what_one_rank_stops_for_is_told_on_all(outcomes):
    errors = [one["fails"]["error"] for one in outcomes]
    assert errors[3].startswith("unknown cluster 'nonsense'")
    assert errors[:3] == [f"rank 3 stopped: {errors[3][:240]}"] * 3


def test_a_rank_that_never_comes_is_not_waited_for_without_end(outcomes):
    assert "late" not in outcomes[1]
    for rank in (0, 2, 3):
        assert "the ranks could not compare their plans: of 4 not all came in time" in outcomes[rank]["late"]["error"]
        assert outcomes[rank]["late"]["seconds"] < 30


def test_without_other_ranks_nothing_is_compared_and_that_is_said_once(capsys, monkeypatch):
    monkeypatch.setattr(ranks, "_said", [])

    def said(times=1):
        for _ in range(times):
            with ranks.comparing() as comparison:
                comparison.require_equal({"cluster": "a"})
        return capsys.readouterr().err

    assert not ms.communication.GlobalComm.INITED
    assert (
        said(2)
        == "symtensor: the plans of ranks are not compared: mindspore.communication.init() has not been called\n"
    )
    with ascend_compiler(8):
        assert said(2) == "symtensor: the plans of ranks are not compared: the cluster is described, not there\n"
    monkeypatch.setenv("MS_SIMULATION_LEVEL", "0")
    assert said(2) == "symtensor: the plans of ranks are not compared: MindSpore simulates the cluster\n"
