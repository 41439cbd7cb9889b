"""`symtensor compare` as a user sees it: a plan of a small network beside logs and profiles."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ms_symtensor.cli import main
from ms_symtensor.report.programs import programs_of
from ms_symtensor.strategy.file import load, load_graph

STEP_TRACE = ("Step", "Computing", "Communication(Not Overlapped)", "Overlapped", "Free", "Bubble")
KERNELS = ("Name", "Type", "Accelerator Core", "Duration(us)")
SMALL = ["gpt2_xl", "--num-layers", "4", "--global-batch-size", "16", "--device-num", "4"]


@pytest.fixture(scope="module")
def one_stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("plan")
    assert main(["plan", *SMALL, "--out", str(directory)]) == 0
    return directory


@pytest.fixture(scope="module")
def two_stages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pipeline")
    pins = ["--fix", "pipeline_stages=2", "--fix", "micro_batch_num=4"]
    assert main(["plan", *SMALL, *pins, "--out", str(directory)]) == 0
    return directory


def log(file: Path, step_ms: int, samples: float = 4.0) -> Path:
    """A log of ten steps of so many samples per device, and the memory of a rank."""
    lines = []
    for number in range(1, 11):
        lines.append(
            f"INFO - {{ Epoch:[  1/  1], step:[{number:5d}/   10], loss: 10.6, per_step_time: {step_ms}ms, lr: 0.1"
        )
        lines.append(f"INFO -   {10 * number:4.1f}% |     | {samples / step_ms * 1e3:.5f} samples/s/p  0:00:29 }}")
    lines += ["Used peak memory usage (without fragments): 4000M", "Actual peak memory usage (with fragments): 5000M"]
    file.write_text("\n".join(lines) + "\n")
    return file


def table(file: Path, *rows: tuple[Any, ...]) -> None:
    with file.open("w", newline="") as text:
        csv.writer(text).writerows(rows)


def profile(directory: Path, plan: Path, slower: float = 1.0) -> Path:
    """A profile of every rank of `plan` in which all is as predicted, but for computation, which takes `slower` times as long."""
    of, graph = load(plan), load_graph(plan)
    assert graph is not None
    time = of.prediction.time_s
    programs = programs_of(of, graph)
    for rank in range(of.device_num):
        output = directory / f"rank_{rank}" / "host_ascend_ms" / "ASCEND_PROFILER_OUTPUT"
        output.mkdir(parents=True)
        work_s, bubble_s = time["compute"] * slower, time.get("bubble", 0.0)
        exposed_s = time["communication"] + time["synchronisation"] + bubble_s
        figures = (work_s + time["optimizer"], exposed_s, 0.0, 0.0, bubble_s)
        table(output / "step_trace_time.csv", STEP_TRACE, ("3", *(1e6 * figure for figure in figures)))
        kernels = [("MatMulV3", "AI_CORE", work_s), ("AdamWeightDecay", "AI_VECTOR_CORE", time["optimizer"])]
        table(output / "kernel_details.csv", KERNELS, *[("x", kind, core, 1e6 * of_s) for kind, core, of_s in kernels])
        sent = programs[rank * of.pipeline_stages // of.device_num].collectives(rank)
        times = {"Communication Time Info": {"Elapse Time(ms)": 1.0, "Wait Time(ms)": 0.25}}
        names = {f"hcom_{one.kind}__{number}_0_1@9": times for number, one in enumerate(sent)}
        (output / "communication.json").write_text(json.dumps({"step3": {"p2p": {}, "collective": names}}))
    return directory


def compared(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["compare", *map(str, arguments), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert main(["compare", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert main(["compare", *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert len(line) < 450
    return line


def test_a_log_gives_step_tokens_and_memory(
    one_stage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = load(one_stage)
    found = compared(capsys, one_stage, log(tmp_path / "worker_0.log", 50))
    step_s = plan.prediction.step_time_s
    assert found["step_time_s"] == {"predicted": step_s, "measured": 0.05, "ratio": pytest.approx(step_s / 0.05)}
    assert found["tokens_per_s"]["measured"] == pytest.approx(16 * 1024 / 0.05)
    assert found["tokens_per_s_per_device"]["measured"] == pytest.approx(4 * 1024 / 0.05)
    assert found["peak_memory_B"]["measured"] == 4000 << 20
    pool_B = plan.prediction.peak_memory_B - plan.prediction.memory_B["buffers"]
    assert found["peak_memory_B"]["predicted"] == pool_B
    assert found["reserved_memory_B"] == 5000 << 20
    assert found["steps"] == 9


def test_the_fullest_and_slowest_of_several_logs_count(
    one_stage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank, step_ms in enumerate((50, 60, 40)):
        log(tmp_path / f"worker_{rank}.log", step_ms)
    (tmp_path / "scheduler.log").write_text("nothing of a step\n")
    assert compared(capsys, one_stage, tmp_path)["step_time_s"]["measured"] == 0.06


@pytest.mark.parametrize("plan", ["one_stage", "two_stages"])
def test_a_run_as_predicted_has_all_ratios_one(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    directory = request.getfixturevalue(plan)
    found = compared(capsys, directory, profile(tmp_path, directory))
    assert found["step_time_s"]["ratio"] == pytest.approx(1)
    assert {"compute", "communication", "optimizer"} <= found["parts_s"].keys()
    assert ("bubble" in found["parts_s"]) == (plan == "two_stages")
    for pair in (*found["parts_s"].values(), found["operators_s"]["optimizer"]):
        assert pair["ratio"] == pytest.approx(1)
    assert found["collectives"]
    for one in found["collectives"].values():
        assert one["count"]["ratio"] == 1
        assert one["time_s"]["measured"] == pytest.approx(one["count"]["measured"] / 1e3)
    sent = {"Send", "Receive"} & found["collectives"].keys()
    assert bool(sent) == (plan == "two_stages")
    text = shown(capsys, directory, tmp_path)
    assert "By part: none is off by more than 2 % of the step." in text
    assert "another one" not in text


def test_the_part_that_is_wrong_is_named_with_its_share(
    one_stage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, one_stage, profile(tmp_path / "profile", one_stage, slower=2.0))
    (line,) = (line for line in text.splitlines() if line.startswith("By part:"))
    assert line.startswith("By part: compute ") and line.endswith(" too short.") and line.count("too") == 1
    rows = {words[0]: words for line in text.splitlines() if (words := line.split())}
    assert rows["compute"][5] == "0.50"


def test_operators_add_up_to_the_computation_of_one_stage(
    one_stage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared(capsys, one_stage, profile(tmp_path / "profile", one_stage))
    kinds = found["operators_s"]
    assert kinds.keys() == {"products", "attention", "normalization", "other", "optimizer"}
    work_s = sum(pair["predicted"] for kind, pair in kinds.items() if kind != "optimizer")
    assert work_s == pytest.approx(load(one_stage).prediction.time_s["compute"])


def test_another_program_is_told_by_its_collectives(
    two_stages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile(tmp_path, two_stages)
    for file in tmp_path.rglob("communication.json"):
        data = json.loads(file.read_text())
        data["step3"]["collective"]["hcom_broadcast__1_0_1@7"] = next(iter(data["step3"]["collective"].values()))
        file.write_text(json.dumps(data))
    assert "The run has 1 Broadcast where the plan has 0: its program is another one." in shown(
        capsys, two_stages, tmp_path
    )


def test_a_log_beside_a_profile_gives_the_step(
    one_stage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = log(tmp_path / "worker_0.log", 1000), profile(tmp_path / "profile", one_stage)
    assert compared(capsys, one_stage, *runs)["step_time_s"]["measured"] == 1.0
    assert "The profiled step took" in shown(capsys, one_stage, *runs)


def rows(file: Path) -> Iterator[dict[str, str]]:
    with file.open(newline="") as text:
        yield from csv.DictReader(text)


def test_rows_are_added_and_replaced(one_stage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table_file = tmp_path / "tables" / "measured.csv"
    first, second = log(tmp_path / "a.log", 50), log(tmp_path / "b.log", 60)
    for run in (first, second, first):
        assert f"Written to {table_file}" in shown(capsys, one_stage, run, "--rows", table_file)
    before = table_file.read_bytes()
    shown(capsys, one_stage, first, "--rows", table_file)
    assert table_file.read_bytes() == before
    found = list(rows(table_file))
    assert [row["step_time_s"] for row in found] == ["0.06", "0.05"]
    assert [row["peak_memory_B"] for row in found] == [str(4000 << 20)] * 2
    assert [row["reserved_memory_B"] for row in found] == [str(5000 << 20)] * 2
    assert {(table_file.parent / row["plan"]).resolve() for row in found} == {one_stage.resolve()}


def test_mistakes_are_one_line(one_stage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = log(tmp_path / "a.log", 50)
    other = log(tmp_path / "b.log", 50, samples=8.0)
    assert "is of steps of 8 samples per device" in refused(capsys, one_stage, other)
    assert "cannot read" in refused(capsys, one_stage, tmp_path / "none.log")
    assert "cannot read the plan" in refused(capsys, tmp_path, good)
    assert "--profiled-steps is 0: give a number above 0" in refused(capsys, one_stage, good, "--profiled-steps", 0)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    assert "is not a table of plan, step_time_s" in refused(capsys, one_stage, good, "--rows", tmp_path / "other.csv")
    stray = profile(tmp_path / "profile", one_stage) / "rank_0"
    stray.rename(stray.with_name("rank_4"))
    assert "is of rank 4, and the plan has 4 devices" in refused(capsys, one_stage, stray.with_name("rank_4"))


def test_rows_are_read_by_validate_and_calibrate(
    one_stage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table_file = tmp_path / "tables" / "measured.csv"
    predicted = json.loads((one_stage / "plan.json").read_bytes())["prediction"]
    step_ms = round(1500 * sum(predicted["time_s"].values()))
    shown(capsys, one_stage, log(tmp_path / "a.log", step_ms), "--rows", table_file)
    cluster = json.loads((one_stage / "plan.json").read_bytes())["cluster"]
    assert main(["validate", str(table_file), "--cluster", cluster, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["groups"][0]["mape"] == pytest.approx(1 / 3, rel=1e-2)
    assert main(["calibrate", str(table_file), "--cluster", cluster, "--out", str(tmp_path / "mine.yaml")]) == 0
    assert "calibrated on 1 steps" in capsys.readouterr().out
    moved = tmp_path / "deep" / "er" / "moved.csv"
    moved.parent.mkdir(parents=True)
    moved.write_bytes(table_file.read_bytes())
    assert main(["validate", str(moved), "--cluster", cluster]) == 2
    assert "cannot read the plan" in capsys.readouterr().err
