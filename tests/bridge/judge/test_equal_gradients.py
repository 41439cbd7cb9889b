"""Gradients that are equal are worked out and summed once, as MindSpore compiles it."""

from pathlib import Path

import pytest

from ms_symtensor.cli import main

NETWORKS = Path(__file__).parents[1] / "functional_networks.py"


@pytest.mark.parametrize(
    ("name", "pins"),
    [
        ("balanced", ["micro_batch_num=1"]),
        pytest.param("chosen", ["micro_batch_num=2", "pipeline_stages=1"], marks=pytest.mark.matrix),
        ("parallels", ["optimizer_level=1", "micro_batch_num=1"]),
        pytest.param(
            "parallels", ["optimizer_level=1", "micro_batch_num=2", "pipeline_stages=1"], marks=pytest.mark.matrix
        ),
        ("parallels", ["optimizer_level=2", "micro_batch_num=2", "pipeline_stages=2"]),
    ],
)
def test_equal_gradients_are_one(name, pins, tmp_path, capsys):
    asked = [word for pin in pins for word in ("--fix", pin)]
    assert main(["plan", f"{NETWORKS}:{name}", "--device-num", "4", *asked, "--out", str(tmp_path)]) == 0
    assert main(["verify", str(tmp_path)]) == 0, capsys.readouterr().out
