"""Folders as MindSpore's own profiler writes them: of a run on this CPU, and of a timeline of an NPU (profiled.py)."""

import subprocess
import sys
from pathlib import Path

import pytest

from ms_symtensor.errors import InputError
from ms_symtensor.measured.reading import read_run
from ms_symtensor.measured.run import Exchange, Profile, StepParts

pytest.importorskip("mindspore")


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("profiled")
    command = [sys.executable, str(Path(__file__).with_name("profiled.py")), str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return directory


def only(path: Path) -> Profile:
    (found,) = read_run([path]).profiles
    return found


def near(time_us: float) -> float:
    return pytest.approx(time_us / 1e6)  # type: ignore[no-any-return]


def test_a_step_of_an_npu_is_that_of_median_length(profiled: Path) -> None:
    found = only(profiled / "npu")
    assert found.rank == 0
    assert found.parts == StepParts(near(110), near(40), near(20), near(10), near(20))
    assert found.parts.step_time_s == near(180)
    assert found.operators == {"products": near(90), "optimizer": near(20)}
    assert found.exchanges == {"AllReduce": Exchange(1, near(60), near(15)), "Receive": Exchange(1, near(20), near(5))}


def test_memory_is_the_same_in_both_forms(profiled: Path) -> None:
    npu, cpu = (only(profiled / name).memory for name in ("npu", "cpu"))
    assert cpu.reserved_B == npu.reserved_B == 1 << 30
    assert cpu.allocated_B is not None
    assert npu.allocated_B == pytest.approx(cpu.allocated_B, rel=0.02)  # the table of an NPU has fewer digits


def test_a_run_on_a_cpu_tells_operators_and_memory(profiled: Path) -> None:
    found = only(profiled / "cpu")
    assert found.parts is None
    assert found.operators.keys() == {"products", "normalization", "optimizer", "other"}
    assert all(0 < time_s < 1 for time_s in found.operators.values())


def test_every_folder_above_and_below_is_the_same_profile(profiled: Path) -> None:
    (output,) = (profiled / "npu").rglob("ASCEND_PROFILER_OUTPUT")
    assert only(output) == only(output.parent) == only(profiled / "npu")
    with pytest.raises(InputError, match="are both of rank 0: give one of them"):
        read_run([profiled])


def test_steps_that_are_told_apart_need_no_number(profiled: Path) -> None:
    with pytest.raises(InputError, match="tells its 3 steps apart: leave --profiled-steps out"):
        read_run([profiled / "npu"], profiled_steps=3)
