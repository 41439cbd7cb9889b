"""Profiles that lack something, or are damaged."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ms_symtensor.errors import InputError
from ms_symtensor.measured.reading import read_run
from ms_symtensor.measured.run import Exchange

STEP_TRACE = (
    "Step", "Computing", "Communication(Not Overlapped)", "Overlapped", "Communication", "Free", "Stage", "Bubble",
    "Communication(Not Overlapped and Exclude Receive)", "Preparing",
)  # fmt: skip
KERNELS = ("Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)", "Wait Time(us)")


def table(file: Path, head: tuple[str, ...], *rows: tuple[Any, ...]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as text:
        csv.writer(text).writerows([head, *rows])


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """All steps of a profile in one row: four of 250 us, 150 of them computation."""
    folder = tmp_path / "rank_3" / "host_ascend_ms" / "ASCEND_PROFILER_OUTPUT"
    table(folder / "step_trace_time.csv", STEP_TRACE, ("0", 600.0, 360.0, 0.0, 360.0, 40.0, 0, 0, 360.0, 0.0))
    return folder


def test_steps_in_one_row_are_divided_by_their_number(tmp_path: Path, output: Path) -> None:
    table(output / "kernel_details.csv", KERNELS, *[("Default/x", "MatMulV2", "AI_CORE", "1\t", 100.0, 0)] * 4)
    times = {"Elapse Time(ms)": 0.36, "Wait Time(ms)": 0.04}
    reduced = {"hcom_allReduce__1_0_1@9": {"Communication Time Info": times}}
    (output / "communication.json").write_text(json.dumps({"step0": {"p2p": {}, "collective": reduced}}))
    (found,) = read_run([tmp_path], profiled_steps=4).profiles
    assert found.rank == 3
    assert found.parts is not None
    assert found.parts.compute_s == pytest.approx(150e-6)
    assert found.parts.step_time_s == pytest.approx(250e-6)
    assert found.operators == {"products": pytest.approx(100e-6)}
    assert found.exchanges == {"AllReduce": Exchange(0.25, pytest.approx(90e-6), pytest.approx(10e-6))}


def test_what_is_sent_beside_computation_is_no_bubble(output: Path) -> None:
    table(output / "step_trace_time.csv", STEP_TRACE, ("5", 100.0, 30.0, 40.0, 70.0, 0.0, 0, 50, -20.0, 0.0))
    (found,) = read_run([output]).profiles
    assert found.parts is not None
    assert (found.parts.communication_s, found.parts.bubble_s) == (0.0, pytest.approx(30e-6))


def damaged(output: Path) -> str:
    with pytest.raises(InputError) as error:
        read_run([output])
    assert len(str(error.value)) - len(str(output)) < 300
    return str(error.value)


def test_steps_that_are_not_told_apart_need_a_number(output: Path) -> None:
    assert "as it was profiled without profiler.step(): give --profiled-steps" in damaged(output)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("step_trace_time.csv", "", "has no column Step, Computing"),
        ("step_trace_time.csv", ",".join(STEP_TRACE) + "\n", "has no step"),
        ("step_trace_time.csv", ",".join(STEP_TRACE) + "\n2,1.0,2", "row 2 ends early: the file is truncated"),
        ("step_trace_time.csv", ",".join(STEP_TRACE) + "\n2,x,0,0,0,0,0,0,0,0", "'x' in column Computing is no number"),
        ("step_trace_time.csv", ",".join(STEP_TRACE) + "\n2,0,0,0,0,0,0,0,0,0", "step 2 takes no time"),
        ("communication.json", '{"step1": ', "is truncated or not JSON"),
        ("communication.json", "[]", "has no steps"),
        ("communication.json", '{"step1": {"collective": {"a": {}}}}', "is not as MindSpore's profiler writes it"),
        ("kernel_details.csv", "Name,Type\n", "has no column Accelerator Core, Duration(us)"),
        ("memory_record.csv", "Component,Total Allocated(MB)\n", "has no column Total Reserved(MB)"),
    ],
)
def test_damage_is_named(output: Path, name: str, text: str, message: str) -> None:
    table(output / "step_trace_time.csv", STEP_TRACE, ("7", 600.0, 360.0, 0.0, 360.0, 40.0, 0, 0, 360.0, 0.0))
    (output / name).write_text(text)
    assert re.search(re.escape(message), damaged(output))


def test_a_folder_that_is_no_run_is_told(tmp_path: Path) -> None:
    assert "holds nothing of a run: give a training log" in damaged(tmp_path)
    (tmp_path / "ASCEND_PROFILER_OUTPUT").mkdir()
    assert "let the profiler parse it" in damaged(tmp_path)
    assert "check the path" in damaged(tmp_path / "none.log")
