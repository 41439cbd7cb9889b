"""`symtensor sweep`: points, resumed after an end, elasticities, refusals."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from ms_symtensor.cli import main
from ms_symtensor.cluster.load import load as load_cluster
from ms_symtensor.sweep.curves import rises, with_gains
from ms_symtensor.sweep.points import Point, factors, numbers, points

ROOT = Path(__file__).parents[2]
SMALL = ["llama2_7b", "--num-layers", "2", "--seq-length", "512", "--jobs", "1"]


def swept(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict:
    capsys.readouterr()
    assert main(["sweep", *SMALL, *map(str, arguments), "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Strong scaling on two clusters, and a point that has no plan: 3 devices."""
    directory = tmp_path_factory.mktemp("sweep")
    arguments = ["--device-num", "2..4,3", "--cluster", "atlas_800t_a2,h100_80g", "--global-batch-size", "8"]
    assert main(["sweep", *SMALL, *arguments, "--power", "--cost-per-hour", "2", "--out", str(directory)]) == 0
    return directory


def test_points_tell_what_plan_tells(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads((out / "sweep.json").read_text())
    point = next(one for one in data["points"] if one["device_num"] == 4 and one["cluster"] == "atlas_800t_a2")
    capsys.readouterr()
    plan = ["plan", *SMALL[:5], "--device-num", "4", "--global-batch-size", "8", "--out", str(tmp_path / "p"), "--json"]
    assert main(plan) == 0
    alone = json.loads(capsys.readouterr().out)
    for name in ("step_time_s", "mfu", "tokens_per_s_device", "peak_memory_B", "data_parallel", "model_parallel"):
        assert point[name] == alone[name], name
    assert sum(point["time_s"].values()) == pytest.approx(point["step_time_s"])
    power_W = load_cluster("atlas_800t_a2").device.power_W
    assert power_W and point["tokens_per_J"] == pytest.approx(point["tokens_per_s_device"] / power_W)
    assert point["cost_per_1e12_tokens"] == pytest.approx(2 / 3600 / point["tokens_per_s_device"] * 1e12)
    fewer = next(one for one in data["points"] if one["device_num"] == 2 and one["cluster"] == "atlas_800t_a2")
    assert point["marginal_gain"] == pytest.approx(fewer["step_time_s"] / point["step_time_s"] - 1)
    assert [one for one in data["points"] if "why" in one] and all(
        "3" in one["why"] for one in data["points"] if "why" in one
    )
    rows = list(csv.DictReader((out / "sweep.csv").open()))
    assert [float(row["step_time_s"]) for row in rows if row["step_time_s"]] == [
        one["step_time_s"] for one in data["points"] if "why" not in one
    ]
    page = (out / "sweep.html").read_text()
    assert "<svg" in page and "https://" not in page and len(page) < 1_000_000


def test_elasticities_of_times_less_those_of_rates_are_one(out: Path) -> None:
    for point in json.loads((out / "sweep.json").read_text())["points"]:
        if "why" not in point:
            assert abs(point["elasticities_euler"] - 1) < 1e-6
            assert point["elasticities"]["device.cube_peak_FLOPs"] < 0 < point["elasticities"]["device.op_overhead_s"]


def test_an_elasticity_is_what_a_changed_number_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same plan, pinned, on links that are 1 % slower."""
    pins = [
        "--fix",
        "model_parallel=4",
        "--fix",
        "micro_batch_num=1",
        "--fix",
        "recompute=none",
        "--global-batch-size",
        8,
    ]
    path = "levels.node.bandwidth_Bps"
    found = swept(capsys, "--device-num", "4", *pins, "--vary", f"{path}=1,0.99", "--out", tmp_path)
    whole, slower = found["points"]
    share = (slower["step_time_s"] / whole["step_time_s"] - 1) / 0.01
    assert share == pytest.approx(-whole["elasticities"][path], rel=0.05) and share > 0


@pytest.mark.matrix
def test_weak_scaling_grows_the_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = swept(capsys, "--device-num", "2..4", "--weak", "--global-batch-size", "4", "--out", tmp_path)
    assert [one["global_batch_size"] for one in found["points"]] == [4, 8]
    assert found["points"][1]["marginal_gain"] > 0.5


@pytest.mark.matrix
def test_a_sweep_that_was_ended_goes_on(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed after its first point, it plans the rest; what was written half is planned anew."""
    arguments = ["--device-num", "2,4,1", "--global-batch-size", "8", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "ms_symtensor", "sweep", *SMALL[:-1], "2", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 60
        while not list((tmp_path / "points").glob("*.json")) and time.monotonic() < until:
            time.sleep(0.02)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signal.SIGKILL)
    until = time.monotonic() + 30
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < until:
        time.sleep(0.1)
    assert children and not any(Path(f"/proc/{child}").exists() for child in children)
    kept = sorted((tmp_path / "points").glob("*.json"))
    found = swept(capsys, *arguments)
    assert found["resumed"] == len(kept) >= 1
    again = swept(capsys, *arguments)
    assert again["resumed"] == 3 and again["points"] == found["points"]


def test_an_interrupted_sweep_ends_at_once_and_quietly(tmp_path: Path) -> None:
    """Ctrl-C goes to every process of a terminal, also to those that are still being begun."""
    command = [
        sys.executable,
        "-m",
        "ms_symtensor",
        "sweep",
        *SMALL[:-1],
        "2",
        "--device-num",
        "2,4",
        "--out",
        str(tmp_path),
    ]
    # Where tests run in the background of a shell, SIGINT is ignored: not here.
    heeding = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=heeding
    ) as process:
        assert process.stderr is not None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        until = time.monotonic() + 60
        while not children.read_text() and time.monotonic() < until:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == ""


def test_what_is_known_is_not_planned_again(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Points of the same request; what was cut is planned anew."""
    before = json.loads((out / "sweep.json").read_text())["points"]
    arguments = ["--device-num", "2,4", "--global-batch-size", "8", "--cost-per-hour", "2", "--out", str(out)]
    found = swept(capsys, *arguments)
    assert found["resumed"] == 2 and found["points"][1]["step_time_s"] == next(
        one["step_time_s"] for one in before if one["device_num"] == 4 and one["cluster"] == "atlas_800t_a2"
    )
    for file in (out / "points").glob("*.json"):
        file.write_bytes(file.read_bytes()[:-30])
    again = swept(capsys, "--device-num", "2", *arguments[2:])
    assert again["resumed"] == 0 and again["points"][0]["step_time_s"] == found["points"][0]["step_time_s"]


def test_numbers_and_factors() -> None:
    assert numbers("--device-num", "8..64,24") == (8, 16, 32, 64, 24)
    assert factors(["levels.roce.latency_s=0.5,2", "device.l2_B=1"]) == (
        ("levels.roce.latency_s", (0.5, 2.0)),
        ("device.l2_B", (1.0,)),
    )
    every = points(["a", "b"], (8, 16), (4,), (None,), factors(["device.l2_B=1,2"]), True)
    assert len(every) == 8 and {one.global_batch_size for one in every} == {4, 8}


def test_what_rises_says_why() -> None:
    def row(devices: int, compute: float, recompute: float) -> dict:
        step = compute + recompute
        degrees = {name: 1 for name in ("data_parallel", "model_parallel", "context_parallel", "expert_parallel")}
        degrees |= {"pipeline_stages": 1, "micro_batch_num": 1, "pp_interleave_num": 1, "optimizer_level": 1}
        return {
            "device_num": devices, "global_batch_size": 8, "seq_length": 10, "step_time_s": step,
            "time_s": {"compute": compute, "recompute": recompute},
            "tokens_per_s": 80 / step, "tokens_per_s_device": 80 / step / devices, "recompute": f"{recompute:g}", **degrees,
        }  # fmt: skip

    of = [Point("a", 8, 8, 10), Point("a", 16, 8, 10)]
    rows = [row(8, 1.0, 1.0), row(16, 0.5, 0.1)]
    (said,) = rises(of, with_gains(of, rows))
    assert "tokens/s a device grow by 66.7 %" in said and "in recompute" in said and "recompute 1 to 0.1" in said
    assert with_gains(of, rows)[1]["marginal_gain"] == pytest.approx(2 / 0.6 - 1)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--device-num", "8..x"], "doublings"),
        (["--device-num", "16..8"], "the smaller first"),
        (["--device-num", "8", "--vary", "levels.ib.bandwidth_Bps=2"], "no number of"),
        (["--device-num", "8", "--vary", "levels.node.bandwidth_Bps=zero"], "FACTOR"),
        (["--device-num", "8", "--vary", "device.hbm_capacity_B=2"], "vary device.hbm_usable_B"),
        (["--device-num", "8", "--vary", "device.cube_efficiency=2,1"], "is no fraction: give less"),
        (["--device-num", "8", "--weak"], "give --global-batch-size"),
        (["--device-num", "8", "--cluster", "nowhere"], "unknown cluster"),
        (["--device-num", "8", "--cluster", "b200", "--power"], "device.power_W"),
        (["--device-num", "3", "--global-batch-size", "8"], "no point of the sweep has a plan"),
    ],
)
def test_mistakes_of_a_sweep_are_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["sweep", *SMALL, *arguments, "--out", str(tmp_path)]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "warning" not in line]
    assert len(lines) == 1 and said in lines[0] and len(lines[0]) <= 450
