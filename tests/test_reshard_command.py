"""`symtensor reshard` as users call it."""

import json
from pathlib import Path

import pytest

from ms_symtensor.cli import main

SMALL = ["llama2_7b", "--num-layers", "2", "--global-batch-size", "8", "--seq-length", "512"]


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("plans")
    pins = {
        "stages": ["--device-num", "4", "--fix", "pipeline_stages=2", "--fix", "model_parallel=2"],
        "tensor": ["--device-num", "2", "--fix", "model_parallel=2"],
    }
    for name, options in pins.items():
        assert main(["plan", *SMALL, *options, "--out", str(folder / name)]) == 0
    return {name: folder / name for name in pins}


def test_reshard_tells_writes_and_proves(
    plans: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "way"
    both = [str(plans["stages"]), str(plans["tensor"])]
    assert main(["reshard", *both, "--prove", "--json", "--out", str(out)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["proof"]["equal"] and said["proof"]["moved_B"] == said["proof"]["predicted_B"]
    assert 0 < said["weights"]["received_B"] < said["weights"]["gather_whole_B"]
    assert said["optimizer_states"]["tensors"] == 2 * said["weights"]["tensors"]
    assert {one.name for one in out.iterdir()} >= {"from.ckpt", "to.ckpt", "from.json", "to.json", "reshard.json"}
    layouts = json.loads((out / "to.json").read_text())["parallel_layout_item"]
    assert "layers.1.attention.query.weight" in layouts and "adam_v.layers.1.attention.query.weight" in layouts


def test_rollout_takes_weights_alone_as_often_as_there_are_devices(
    plans: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    both = [str(plans["stages"]), str(plans["tensor"])]
    assert main(["reshard", *both, "--rollout", "--rollout-dtype", "bfloat16", "--prove"]) == 0
    said = capsys.readouterr().out
    assert "2 replicas" in said and "float32 -> bfloat16" in said and "Proved:" in said and "adam_m" not in said


def test_training_goes_to_the_instances_of_serve(
    plans: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lengths = ["--input-tokens", "512", "--output-tokens", "128"]
    served = [
        "serve",
        "llama2_7b",
        *lengths,
        "--device-num",
        "4",
        "--fix",
        "tp=2",
        "--colocated",
        "--out",
        str(tmp_path),
    ]
    assert main(served) == 0
    written = json.loads((tmp_path / "serve.json").read_text())
    dims = json.loads(written["dimensions"]) | {"num_layers": 2}
    (tmp_path / "serve.json").write_text(json.dumps(written | {"dimensions": json.dumps(dims)}))  # of the small plans
    capsys.readouterr()
    assert (
        main(["reshard", str(plans["stages"]), str(tmp_path), "--prove", "--json", "--out", str(tmp_path / "way")]) == 0
    )
    said = json.loads(capsys.readouterr().out)
    assert said["proof"]["equal"] and said["optimizer_states"]["tensors"] == 0
    assert said["to"]["model_parallel"] == 2 and said["to"]["device_num"] == 2 * said["to"]["replicas"]
    layouts = json.loads((tmp_path / "way" / "to.json").read_text())["parallel_layout_item"]
    assert layouts["layers.1.attention.output.weight"]["tensor_map"] == [-1, 0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rollout-dtype", "bfloat16"], "give --rollout"),
        (["--rollout", "--replicas", "0"], "--replicas"),
        (["--rollout", "--replicas", "1000000000"], "has at most 262144: ask for fewer"),
        (["--phase", "decode"], "--phase is for a folder of serve"),
        (["--memory-limit", "0.5"], "at its fullest"),
    ],
)
def test_mistakes_are_one_line(
    options: list[str], words: str, plans: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["reshard", str(plans["stages"]), str(plans["tensor"]), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line and len(line) <= 450
