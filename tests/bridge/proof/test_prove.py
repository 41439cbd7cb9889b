"""Proofs of small networks, by the command line: real processes with real collectives."""

import json
from pathlib import Path

import pytest

from ms_symtensor.cli import main

NETWORKS = Path(__file__).parents[1] / "hand_written.py"
KEYS = [
    "equal", "ranks", "loss_rel_error", "grad_rel_error_max", "worst_parameter", "parameters_checked", "substitutions",
    "reduction", "seconds",
]  # fmt: skip


def test_a_gradient_that_is_not_summed_is_found_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    """MindSpore leaves the sum out for a weight behind Transpose: the loss is right, the gradient is not."""
    assert main(["prove", f"{NETWORKS}:transposed_weight", "--device-num", "8", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert list(data) == KEYS
    assert data["equal"] is False
    assert data["ranks"] == 8
    assert data["loss_rel_error"] < 1e-5
    assert data["worst_parameter"] == "second"
    assert data["grad_rel_error_max"] > 0.5
    assert data["parameters_checked"] == 2
    assert data["substitutions"] == [
        "AllGather: AllReduce of the slices among zeros",
        "ReduceScatter: AllReduce and slice",
    ]
    assert data["reduction"] == {}
