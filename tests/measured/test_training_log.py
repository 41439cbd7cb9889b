"""Training logs as MindFormers 1.9.0 prints them."""

from pathlib import Path

import pytest

from ms_symtensor.errors import InputError
from ms_symtensor.measured.log import read_log
from ms_symtensor.measured.run import Memory

PREFIX = "2025-04-07 15:34:27,308 - mindformers/output/log[mindformers/core/callback/callback.py:747] - INFO - "
STEP = (
    "{{ Epoch:[  1/  2], step:[{0:5d}/   19], loss: 10.633123, per_step_time: {1}ms, lr: 1e-05, overflow cond: False,"
    " loss_scale: 1.0, global_norm: [10.58], train_throughput_per_npu: 170.738T"
)
BAR = "   5.3% |██                                                | {0:.5f} samples/s/p  0:00:29 }}"
MEMORY = """Device HBM memory size: 62432M
MindSpore Used memory size: 59392M
MindSpore memory base address: 0
Used peak memory usage (without fragments): 48874M
Actual peak memory usage (with fragments): 51200M
"""


def log(directory: Path, steps_ms: list[int], samples: float = 2.0, memory: str = MEMORY) -> Path:
    """A log of these steps, of so many samples per device each."""
    lines = []
    for number, step_ms in enumerate(steps_ms, 1):
        lines += [PREFIX + STEP.format(number, step_ms), PREFIX + BAR.format(samples / step_ms * 1e3)]
    file = directory / "worker_0.log"
    file.write_text("\n".join(lines) + "\n" + memory, encoding="utf-8")
    return file


def test_the_step_is_the_median_of_all_but_the_first(tmp_path: Path) -> None:
    found = read_log(log(tmp_path, [103328, 1752, 1754, 9000, 1758, 1756]))
    assert found is not None
    assert (found.steps, found.step_time_s, found.slowest_s) == (5, 1.756, 9.0)
    assert found.samples_per_device == pytest.approx(2.0, rel=1e-4)
    assert found.memory == Memory(48874 << 20, 51200 << 20)


def test_other_versions_lines_are_read(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text(
        "{ step:[    1/   10], loss:  11.813965, per_step_time:  13570ms, lr: 1.000000e-05, throughput:   1.36T }\n"
        "{ step:[    2/   10], loss:  11.755612, per_step_time:    710ms, lr: 1.000000e-05, throughput:  25.92T }\n"
        "{'total_reserved_memory': 1073741824, 'max_reserved_memory': 1073741824, 'max_allocated_memory': 1536}\n"
    )
    found = read_log(file)
    assert found is not None
    assert (found.step_time_s, found.samples_per_device) == (0.71, None)
    assert found.memory == Memory(1536, 1 << 30)


def test_a_rank_that_prints_no_steps_tells_its_memory(tmp_path: Path) -> None:
    found = read_log(log(tmp_path, []))
    assert found is not None
    assert (found.steps, found.step_time_s) == (0, None)
    assert found.memory.allocated_B == 48874 << 20


def test_a_log_of_something_else_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("loss 1.0\n")
    assert read_log(tmp_path / "a.log") is None


def test_a_log_of_one_step_is_too_short(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has one step .* which compiles: give a log of some more"):
        read_log(log(tmp_path, [103328]))


def test_of_runs_that_were_appended_the_last_counts(tmp_path: Path) -> None:
    first, last = (log(tmp_path, steps_ms).read_text() for steps_ms in ([60000, 100, 100, 100, 100], [50000, 300, 302]))
    (tmp_path / "both.log").write_text(first + last)
    found = read_log(tmp_path / "both.log")
    assert found is not None
    assert (found.steps, found.slowest_s) == (2, 0.302)


def test_a_second_epoch_is_no_second_run(tmp_path: Path) -> None:
    text = log(tmp_path, [60000, 100, 100]).read_text()
    (tmp_path / "both.log").write_text(text + text.replace("Epoch:[  1/", "Epoch:[  2/").replace("60000", "100"))
    found = read_log(tmp_path / "both.log")
    assert found is not None
    assert found.steps == 5


def test_a_step_may_be_a_fraction_or_no_number(tmp_path: Path) -> None:
    file = log(tmp_path, [60000, 200, 200])
    file.write_text(file.read_text().replace("200ms", "200.5 ms"))
    found = read_log(file)
    assert found is not None and found.step_time_s == pytest.approx(0.2005)
    file.write_text(file.read_text().replace("200.5 ms", "9" * 5000 + "ms"))
    with pytest.raises(InputError, match="one step"):
        read_log(file)
