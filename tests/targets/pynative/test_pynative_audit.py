"""MindFormers 2.1's own parallelization, traced: needs `make pynative`."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ms_symtensor.bridge.pynative.interpreter import interpreter
from ms_symtensor.cli import main
from ms_symtensor.errors import InputError
from ms_symtensor.targets.mindformers_pynative.planning import natural_device_num

FILES = Path(__file__).parents[3] / "ms_symtensor" / "targets" / "mindformers_pynative" / "files"
QWEN = FILES / "qwen3_32b.yaml"
DEEPSEEK = FILES / "deepseek3_671b.yaml"


def has_mindformers() -> bool:
    try:
        interpreter()
    except InputError:
        return False
    return True


needs_mindformers = pytest.mark.skipif(not has_mindformers(), reason="no MindFormers: make pynative")


def changed(file: Path, folder: Path, **sections: dict[str, Any]) -> str:
    """A copy of `file` with other values."""
    content = yaml.safe_load(file.read_text())
    for section, values in sections.items():
        content.setdefault(section, {}).update(values)
    path = folder / "changed.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)


def audited(capsys: pytest.CaptureFixture[str], file: str, devices: int) -> dict[str, Any]:
    assert main(["audit", "--target", "mindformers-pynative", file, "--device-num", str(devices), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def calls(stage: dict[str, Any]) -> dict[tuple[Any, ...], int]:
    return {(c["phase"], c["kind"], c["dtype"], c["bytes"], c["ranks"]): c["count"] for c in stage["collectives"]}


@pytest.mark.pynative
@needs_mindformers
def test_qwen3_with_four_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = audited(capsys, changed(QWEN, tmp_path, model={"num_hidden_layers": 4}), 32)
    (stage,) = found["stages"]
    sequence, hidden = 4096, 5120
    shard, whole = sequence // 4 * hidden * 2, sequence * hidden * 2
    assert calls(stage) == {
        ("forward", "all_gather", "bfloat16", shard, 4): 9,
        ("forward", "reduce_scatter", "bfloat16", whole, 4): 8,
        ("forward", "reduce_scatter", "float32", whole * 2, 4): 1,
        ("forward", "all_reduce", "float32", sequence * 4, 4): 3,
        ("backward", "reduce_scatter", "bfloat16", whole, 4): 9,
        ("backward", "all_gather", "bfloat16", shard, 4): 8,
        ("backward", "all_gather", "float32", shard * 2, 4): 1,
    }
    assert [unit["module"] for unit in stage["units"]].count("TransformerLayer") == 4
    assert all(unit["shards"] == 8 for unit in stage["units"])
    assert found["versions"]["mindformers"] == "2.1.0"


@pytest.mark.matrix
@needs_mindformers
def test_full_size_in_the_time_and_memory_that_are_promised(capsys: pytest.CaptureFixture[str]) -> None:
    for file, devices, time_s, memory_B in ((QWEN, 32, 40, 1e9), (DEEPSEEK, 1024, 120, 1.5e9)):
        found = audited(capsys, str(file), devices)
        assert found["trace_time_s"] <= time_s
        assert found["peak_rss_B"] <= memory_B


@pytest.mark.matrix
@needs_mindformers
@pytest.mark.parametrize(
    ("file", "sections", "devices", "words"),
    [
        (QWEN, {"parallelism": {"tensor_parallel": 3}, "training": {"global_batch_size": 8}}, 24, "by the TP degree (3)"),
        (QWEN, {"parallelism": {"pipeline_parallel": 2}}, 32, "unexpected keyword argument 'layer_start'"),
        (QWEN, {"parallelism": {"sequence_parallel": False}}, 32, "requires sequence_parallel=True"),
        (DEEPSEEK, {"parallelism": {"expert_parallel": 48}}, 1024, "expert"),
        (DEEPSEEK, {"parallelism": {"pipeline_parallel": 8}}, 1024, "Number of layers (61) is not divisible by total stages (8)"),
        (
            DEEPSEEK,
            {
                "parallelism": {
                    "pipeline_parallel": 2,
                    "pipeline_parallel_schedule": "interleaved_1f1b",
                    "pipeline_parallel_layers_per_stage": ["0-30", "31-60"],
                },
            },
            1024,
            "requires pipeline_parallel_interleave_num > 1",
        ),
    ],
)  # fmt: skip
def test_what_mindformers_refuses_is_told_in_its_words(
    file: Path,
    sections: dict[str, Any],
    devices: int,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = changed(file, tmp_path, **sections)
    assert main(["audit", "--target", "mindformers-pynative", path, "--device-num", str(devices)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.strip()) <= 450


def test_what_is_no_file_of_pynative_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "graph.yaml").write_text("parallel_config: {model_parallel: 2}\n")
    assert main(["audit", "--target", "mindformers-pynative", str(tmp_path / "graph.yaml")]) == 2
    assert "PyNative" in capsys.readouterr().err


def test_without_a_number_each_rank_gets_one_micro_batch() -> None:
    degrees = {"tensor_parallel": 2, "pipeline_parallel": 4}
    assert (
        natural_device_num({"parallelism": degrees, "training": {"global_batch_size": 32, "local_batch_size": 2}})
        == 128
    )


def test_an_interpreter_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMTENSOR_PYNATIVE_PYTHON", "/nowhere/python")
    with pytest.raises(InputError, match="SYMTENSOR_PYNATIVE_PYTHON names /nowhere/python"):
        interpreter()
