"""`symtensor schedule`: a plan's own stages, the files, and what it refuses."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from ms_symtensor.cli import main
from ms_symtensor.errors import InputError
from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.scheduling.of_plan import network_of
from ms_symtensor.scheduling.placements import problem
from ms_symtensor.scheduling.published import ONE, PUBLISHED
from ms_symtensor.scheduling.simulator import simulate
from ms_symtensor.scheduling.stored import stored
from ms_symtensor.strategy.file import load, load_graph
from ms_symtensor.strategy.folder import read
from ms_symtensor.timeline.step import step_of

SIZE = ["llama2_7b", "--num-layers", "5", "--device-num", "2", "--global-batch-size", "8", "--seq-length", "512"]
PINS = ["--fix", "pipeline_stages=2", "--fix", "pp_interleave_num=1", "--fix", "micro_batch_num=4"]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two unlike stages: of two and of three blocks, or with the head."""
    out = tmp_path_factory.mktemp("plans") / "stages"
    assert main(["plan", *SIZE, *PINS, "--out", str(out)]) == 0
    return out


def test_1f1b_of_the_stages_takes_the_plans_step(plan: Path) -> None:
    """And B and W together the backward pass, with a share of W that products of gradients have."""
    graph = load_graph(str(plan))
    assert graph is not None
    step = step_of(load(str(plan)), graph)
    network = network_of(step)
    of = problem(network, ONE)
    found = simulate(of, PUBLISHED["1F1B"][1](of))
    assert found.step_s == pytest.approx(step.timeline.replayed_s, rel=1e-9)
    for piece, seconds in zip(network.pieces, step.seconds, strict=True):
        backward_s = piece.backward_s + piece.weights_s + piece.border_s[1]
        assert backward_s == pytest.approx(seconds.backward_s, rel=1e-9)
        assert 0.3 < piece.weights_s / backward_s < 0.7


def test_a_schedule_is_written_and_replayed(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["schedule", str(plan), "--json", "--out", str(tmp_path)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["step_time_s"] == data["replayed"]["step_time_s"] and data["replayed"]["fits"]
    by_name = {one["schedule"]: one for one in data["published"]}
    assert by_name["1F1B"]["fits"]
    assert data["step_time_s"] < by_name["1F1B"]["step_time_s"] <= data["plan_step_time_s"] * (1 + 1e-9)
    assert data["step_bound_s"] <= data["step_time_s"] and data["period"]["is_optimal"]
    with open(tmp_path / "schedule.csv", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert max(float(line["end_s"]) for line in lines) <= data["step_time_s"]
    whole = json.loads((tmp_path / "schedule.json").read_text(encoding="utf-8"))
    assert [str(row[4]) for row in whole["actions"]] == [line["kind"] for line in lines]
    before = (tmp_path / "schedule.json").read_bytes()
    assert main(["schedule", str(plan), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "schedule.json").read_bytes() == before
    assert "1F1B" in capsys.readouterr().out


def test_equal_passes_wait_as_published(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F = B = W on all stages, within the memory of 1F1B: all published ones but DualPipe fit, and ZBV waits least."""
    capsys.readouterr()
    assert main(["schedule", str(plan), "--equal-passes", "--json", "--out", str(tmp_path)]) == 0
    data = json.loads(capsys.readouterr().out)
    pass_s = data["parts"][0]["forward_s"] * (2 if data["placement"] == "V" else 1)
    waits = {one["schedule"]: one["bubble_s"] / pass_s for one in data["published"] if one["fits"]}
    assert waits == pytest.approx({"1F1B": 3.0, "ZB-H1": 1.0, "ZBV": 0.5})
    assert data["bubble_s"] <= 0.5 * pass_s * (1 + 1e-9)


def test_what_is_asked_wrongly_is_told(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = tmp_path / "one"
    assert main(["plan", "llama2_7b", "--num-layers", "1", "--device-num", "1", "--out", str(one)]) == 0
    for options, named in (
        ([str(one)], "pipeline_stages=2"),
        ([str(plan), "--activation-memory", "much"], "--activation-memory"),
        ([str(plan), "--activation-memory", "0"], "--activation-memory"),
        ([str(plan), "--activation-memory", "0.01x"], "MiB for activations"),
        ([str(tmp_path / "none")], "check the path"),
    ):
        capsys.readouterr()
        assert main(["schedule", *options]) == 2
        error = capsys.readouterr().err
        assert named in error and len(error) <= 450


def test_prove_finds_the_schedule_of_the_plan(plan: Path, tmp_path: Path) -> None:
    """Whole backward passes as turns of MindSpore, split ones by the replay alone; that of another plan not at all."""
    folder = shutil.copytree(plan, tmp_path / "plan")
    assert stored(read(folder)) is None
    pipeline = load(str(folder)).pipeline
    assert main(["schedule", str(folder), "--whole-backward", "--json"]) == 0
    whole = stored(read(folder))
    assert whole is not None and pipeline is not None
    for stage, turns in enumerate(whole.turns(pipeline)):
        assert sorted(turns) == sorted(PipelineSchedule.of(pipeline).turns(stage, 2))
    assert main(["schedule", str(folder)]) == 0
    split = stored(read(folder))
    assert split is not None and split.step_s < whole.step_s
    with pytest.raises(InputError, match="splits backward passes"):
        split.turns(pipeline)
    table = folder / "schedule.csv"
    lines = table.read_text(encoding="utf-8").splitlines(keepends=True)
    table.write_text("".join(lines[:-1]), encoding="utf-8")
    with pytest.raises(InputError, match="not exactly once"):
        stored(read(folder))
    other = folder / "schedule.json"
    other.write_text(other.read_text(encoding="utf-8").replace('"plan":"', '"plan":"0', 1), encoding="utf-8")
    assert stored(read(folder)) is None
