"""The bytes of `symtensor traffic` are those that MindSpore compiled: `symtensor verify` on the same plan."""

import json
from pathlib import Path

import pytest

from ms_symtensor.cli import main

pytest.importorskip("mindspore")

ONE = ["--max", "pipeline_stages=1"]
CHUNKS = ["--fix", "pipeline_stages=2", "--fix", "pp_interleave_num=2"]
SIZE = ["--global-batch-size", "16", "--seq-length", "512"]
PLANS = {
    "data": ["llama2_7b", "--num-layers", "2", "--device-num", "8", "--fix", "model_parallel=1", *ONE],
    "tensor": ["llama2_7b", "--num-layers", "2", "--device-num", "16", "--fix", "model_parallel=8", *ONE],
    "sharded": ["llama2_13b", "--num-layers", "2", "--device-num", "16", "--fix", "optimizer_level=3", *ONE],
    "stages": ["llama2_7b", "--num-layers", "4", "--device-num", "16", "--fix", "pipeline_stages=4"],
    "chunks": ["llama2_7b", "--num-layers", "4", "--device-num", "8", *CHUNKS],
    "experts": ["mixtral_8x7b", "--num-layers", "2", "--device-num", "16", "--fix", "expert_parallel=8"],
    "context": ["llama3_8b", "--num-layers", "2", "--device-num", "8", "--fix", "context_parallel=2", *ONE],
    "recomputed": ["qwen3_32b", "--num-layers", "2", "--device-num", "8", "--fix", "recompute=full", *ONE],
    "adapters": ["llama2_7b", "--lora", "8", "--num-layers", "2", "--device-num", "8", "--fix", "model_parallel=2"],
    "latent": ["deepseek_v3", "--num-layers", "4", "--device-num", "16", *ONE],
}  # fmt: skip


@pytest.mark.matrix
@pytest.mark.parametrize("name", PLANS)
def test_totals_are_those_of_the_compiled_program(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *PLANS[name], *SIZE, "--out", str(tmp_path / "plan")]) == 0
    capsys.readouterr()
    assert main(["traffic", str(tmp_path / "plan"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["verified"]
    assert main(["verify", str(tmp_path / "plan"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for said, of in zip(told, found.get("stages", [found]), strict=True):
        compiled = of["collectives"]
        assert (said["collectives"], said["size_B"]) == (compiled["compiled"], compiled["compiled_B"])
