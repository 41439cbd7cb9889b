"""MindFormers' PyNative parallelization executed on local processes."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.pynative import MODELS
from ms_symtensor.bridge.pynative.prove import _wait
from ms_symtensor.cli import main
from ms_symtensor.errors import ExecutionError, InputError
from ms_symtensor.targets.mindformers_pynative.checks import refusal
from ms_symtensor.targets.mindformers_pynative.degrees import degrees_of
from ms_symtensor.targets.mindformers_pynative.reduced import reduced
from ms_symtensor.targets.mindformers_pynative.shape import shape_of
from tests.targets.pynative.test_pynative_audit import DEEPSEEK, QWEN, changed, needs_mindformers
from tests.targets.pynative.test_pynative_plan import planned


def small(file: Path, devices: int, **degrees: Any) -> tuple[dict[str, Any], int]:
    config = yaml.safe_load(file.read_text())
    config["parallelism"] |= degrees
    return reduced(config, devices)


@pytest.mark.parametrize("answers", [True, False])
def test_a_process_that_crashes_has_answered_or_ends_the_proof(answers: bool, tmp_path: Path, capsys) -> None:
    (tmp_path / "worker_0.log").write_text("Fatal Python error: Segmentation fault\n", encoding="utf-8")
    if answers:
        (tmp_path / "answer.0").write_text("{}", encoding="utf-8")
    worker = subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"])
    said = "process 0 of the proof ended with code -11"
    if answers:
        _wait([worker], tmp_path, 60.0)
        assert said in capsys.readouterr().err
    else:
        with pytest.raises(ExecutionError, match=f"{said}: Fatal Python error"):
            _wait([worker], tmp_path, 60.0)


def test_degrees_that_fit_stay_and_others_keep_their_kinds() -> None:
    config, ranks = small(QWEN, 4, tensor_parallel=2)
    assert (ranks, config["parallelism"]["tensor_parallel"], config["parallelism"]["data_parallel_shard"]) == (4, 2, 2)
    config, ranks = small(DEEPSEEK, 1024, tensor_parallel=4, expert_parallel=64, dense_fsdp_shard_size=32)
    assert ranks <= 8
    assert config["parallelism"]["tensor_parallel"] == 2
    assert config["parallelism"]["expert_parallel"] > 1
    assert config["parallelism"]["dense_fsdp_shard_size"]
    config, ranks = small(QWEN, 64, tensor_parallel=1, data_parallel_shard=8)
    assert degrees_of(config, ranks).replicas == 2


@pytest.mark.parametrize(("file", "devices"), [(QWEN, 64), (QWEN, 4), (DEEPSEEK, 1024), (DEEPSEEK, 4096)])
def test_a_reduced_file_is_one_that_mindformers_takes(file: Path, devices: int) -> None:
    config, ranks = small(file, devices)
    assert not refusal(shape_of(config["model"]), degrees_of(config, ranks)), asdict(degrees_of(config, ranks))


def test_nothing_to_prove_is_told() -> None:
    with pytest.raises(InputError, match="nothing to prove"):
        small(QWEN, 1, tensor_parallel=1)


LONGER = [
    (QWEN, {"tensor_parallel": 1, "sequence_parallel": False, "data_parallel_shard": 2}),
    (QWEN, {"tensor_parallel": 1, "sequence_parallel": False, "dense_fsdp_shard_size": 2}),
    (DEEPSEEK, {"tensor_parallel": 2, "expert_parallel": 4}),
    (DEEPSEEK, {"tensor_parallel": 1, "sequence_parallel": False, "expert_parallel": 2}),
    (MODELS["deepseek_v4"], {"expert_parallel": 4, "dense_fsdp_shard_size": 2}),
]


@needs_mindformers
@pytest.mark.parametrize(
    ("file", "degrees"),
    [
        pytest.param(QWEN, {"tensor_parallel": 2, "sequence_parallel": True}, marks=pytest.mark.pynative),
        *(pytest.param(*case, marks=pytest.mark.matrix) for case in LONGER),
    ],
)
def test_four_processes_have_the_gradients_of_one(
    file: Path, degrees: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(file, tmp_path, parallelism=degrees)
    assert main(["prove", path, "--target", "mindformers-pynative", "--device-num", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["equal"]
    assert found["ranks"] == 4
    assert found["grad_rel_error_max"] <= 1e-5
    assert found["parameters_checked"] >= 19


@pytest.mark.matrix
@needs_mindformers
@pytest.mark.parametrize("model", ["qwen3_32b", "deepseek_v3"])
def test_a_plan_is_proved(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned(model, tmp_path, capsys)
    assert main(["prove", str(tmp_path), "--target", "mindformers-pynative", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["equal"]


@pytest.mark.matrix
@needs_mindformers
@pytest.mark.parametrize(
    ("degrees", "left_out"),
    [
        ({"tensor_parallel": 2, "sequence_parallel": True}, "shards"),
        ({"tensor_parallel": 2, "sequence_parallel": True}, "tensor parallelism"),
        ({"tensor_parallel": 1, "sequence_parallel": False, "data_parallel_shard": 2}, "replicas"),
    ],
)
def test_a_sum_that_is_left_out_is_missed_and_named(degrees: dict[str, Any], left_out: str) -> None:
    from ms_symtensor.bridge.pynative.prove import prove

    config = yaml.safe_load(QWEN.read_text())
    config["parallelism"] |= degrees
    found = prove(config, 4, left_out=left_out)
    assert not found.equal
    assert {one.lacks for one in found.wrong} == {left_out}
