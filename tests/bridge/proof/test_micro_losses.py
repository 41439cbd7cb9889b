"""Losses that count tokens train in micro-batches what they train in one batch, though other numbers count in each, or none."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.proof_cases import CASES, plan_of
from ms_symtensor.bridge.proof.launch import Processes, started
from ms_symtensor.bridge.proof.prove import Proof, Request, prove_plan
from ms_symtensor.cli import main
from ms_symtensor.strategy.file import load
from ms_symtensor.strategy.plan import MicroBatchLoss

NETWORKS = Path(__file__).with_name("masked_networks.py")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Two processes that serve all proofs of this file."""
    with started(tmp_path_factory.mktemp("two"), 2) as processes:
        yield processes


def asked(name: str, out: Path, *pins: str, micro_batch_num: int = 2) -> list[str]:
    every = [f"--fix={pin}" for pin in (*pins, f"micro_batch_num={micro_batch_num}")]
    return ["plan", f"{NETWORKS}:{name}", "--device-num", "2", "--out", str(out), *every]


def proved(name: str, out: Path, processes: Processes, *pins: str, micro_batch_num: int = 2) -> Proof:
    assert main(asked(name, out, *pins, micro_batch_num=micro_batch_num)) == 0
    plan = load(out)
    assert plan.loss is MicroBatchLoss.COUNTED
    return prove_plan(plan, request=Request(processes=processes))


@pytest.mark.parametrize(
    ("name", "pins", "micro_batch_num"),
    [
        pytest.param("sum_over_sum", ("pipeline_stages=1",), 2, marks=pytest.mark.matrix),
        pytest.param("shifted", ("pipeline_stages=2", "pp_interleave_num=1"), 4, marks=pytest.mark.matrix),
        ("sum_over_sum", ("pipeline_stages=2", "pp_interleave_num=2"), 4),
    ],
)
def test_counts_are_of_the_whole_batch(
    name: str, pins: tuple[str, ...], micro_batch_num: int, two: Processes, tmp_path: Path
) -> None:
    proof = proved(name, tmp_path / "plan", two, *pins, micro_batch_num=micro_batch_num)
    assert proof.equal, proof.wrong
    assert 0.0 < proof.worst.error < 1e-5
    assert proof.loss == "counted over the whole batch"


@pytest.mark.matrix
def test_a_second_token_has_a_count_of_its_own() -> None:
    """DeepSeek's loss adds two masked means, each made in a cell of its own, in two stages."""
    case = next(case for case in CASES if case.name == "PP2 TP2 SP")
    proof = prove_plan(plan_of(case, "deepseek_v3", "flash"))
    assert proof.equal, proof.wrong
    assert proof.loss == "counted over the whole batch"


def test_another_form_is_planned_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "plan"
    assert main([*asked("two_counts", out, "pipeline_stages=1"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loss"] == "mean of micro-batch means"
    assert "loss: mean of micro-batch means (" in (out / "report.txt").read_text(encoding="utf-8")
    assert "# the loss is the mean of micro-batch means" in (out / "shard.py").read_text(encoding="utf-8")
    assert load(out).loss is MicroBatchLoss.MEAN_OF_MEANS


def test_it_is_refused_where_the_loss_is_to_be_exact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*asked("two_counts", tmp_path / "plan", "pipeline_stages=1"), "--exact-loss"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "symtensor: error: masked_networks.py:two_counts in 2 micro-batches: mean of micro-batch means"
    )
    assert len(line) <= 450 and not (tmp_path / "plan").exists()


def test_samples_that_weigh_the_same_are_left_alone(tmp_path: Path) -> None:
    assert main([*asked("static", tmp_path / "plan", "pipeline_stages=1"), "--exact-loss"]) == 0
    assert load(tmp_path / "plan").loss is MicroBatchLoss.EACH
    assert "loss:" not in (tmp_path / "plan" / "report.txt").read_text(encoding="utf-8")
