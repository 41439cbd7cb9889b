"""Proofs by real processes with real collectives: of plans, and of what MindSpore itself gets wrong."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.proof_cases import CASES, plan_of
from ms_symtensor.bridge.apply.load_network import load_factory
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.bridge.capture.scopes import fresh_scopes
from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig
from ms_symtensor.bridge.proof.launch import Processes, started
from ms_symtensor.bridge.proof.prove import Request, prove_by_hand, prove_network, prove_plan
from ms_symtensor.cli import main
from ms_symtensor.cluster.load import load
from ms_symtensor.search.plan import plan
from ms_symtensor.strategy.file import load as load_file

NETWORKS = Path(__file__).with_name("networks.py")
FUNCTIONAL = Path(__file__).parents[1] / "functional_networks.py"
KEYS = [
    "equal", "ranks", "loss_rel_error", "grad_rel_error_max", "worst_parameter", "parameters_checked", "substitutions",
    "reduction", "seconds",
]  # fmt: skip


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Four processes that serve all proofs of this file."""
    with started(tmp_path_factory.mktemp("four"), 4) as processes:
        yield processes


@pytest.mark.parametrize(
    ("model", "name"),
    [
        pytest.param("llama2_7b", "plan for 4", marks=pytest.mark.matrix),
        pytest.param("deepseek_v3", "DP2 TP2", marks=pytest.mark.matrix),
        pytest.param("gpt2_xl", "DP2 TP2 SP", marks=pytest.mark.matrix),
        pytest.param("llama3_8b", "DP4 ZeRO3", marks=pytest.mark.matrix),
        ("mixtral_8x7b", "DP1 TP4"),
    ],
)
def test_networks_of_the_zoo(model: str, name: str, four: Processes) -> None:
    case = next(case for case in CASES if case.name == name)
    proof = prove_plan(plan_of(case, model, "flash", layers=1), request=Request(processes=four))
    assert proof.equal, proof.wrong
    assert 0.0 < proof.worst.error < 1e-5
    assert proof.reduction["hidden_size"][0] > proof.reduction["hidden_size"][1]
    assert any(said.startswith("FlashAttentionScoreGrad:") for said in proof.substitutions)


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["vision", "decoder"])
def test_networks_of_functions(name: str, four: Processes, tmp_path: Path) -> None:
    """A convolution, functions of `ops` and `mint`, operators that MindSpore always cuts in one way."""
    assert main(["plan", f"{FUNCTIONAL}:{name}", "--device-num", "4", "--out", str(tmp_path / name)]) == 0
    proof = prove_plan(load_file(tmp_path / name), request=Request(processes=four))
    assert proof.equal, proof.wrong
    assert 0.0 < proof.worst.error < 1e-5


def test_batch_norm_is_compared_by_the_parts_that_devices_have(four: Processes, tmp_path: Path) -> None:
    asked = [
        "plan",
        f"{NETWORKS}:normed",
        "--device-num",
        "4",
        "--fix",
        "data_parallel=4",
        "--fix",
        "micro_batch_num=1",
    ]
    assert main([*asked, "--out", str(tmp_path / "plan")]) == 0
    proof = prove_plan(load_file(tmp_path / "plan"), request=Request(processes=four))
    assert proof.equal, proof.wrong
    assert any(said.startswith("BatchNorm: in one process too") for said in proof.substitutions)


@pytest.mark.matrix
def test_stages_of_a_network_of_functions(four: Processes, tmp_path: Path) -> None:
    """An encoder on one stage, a decoder that reads it on both: micro-batches give the gradients of the whole batch."""
    pins = ["--fix", "pipeline_stages=2", "--fix", "micro_batch_num=2"]
    asked = ["plan", f"{FUNCTIONAL}:translator", "--device-num", "4", *pins]
    assert main([*asked, "--out", str(tmp_path / "plan")]) == 0
    proof = prove_plan(load_file(tmp_path / "plan"), request=Request(processes=four))
    assert proof.equal, proof.wrong
    assert 0.0 < proof.worst.error < 1e-5


def test_pipeline_stages(four: Processes) -> None:
    """Send and Receive are joined by sums; three micro-batches give the loss and the gradients of the whole batch."""
    case = next(case for case in CASES if case.name == "PP2 TP2 SP")
    proof = prove_plan(plan_of(case, "llama2_7b", "flash"), request=Request(processes=four))
    assert proof.equal, proof.wrong
    assert 0.0 < proof.worst.error < 1e-5
    assert len(proof.parameters) == 21
    assert {"Send", "Receive"} <= {said.partition(":")[0] for said in proof.substitutions}


@pytest.mark.matrix
def test_steps_of_pipeline_stages(four: Processes, tmp_path: Path) -> None:
    """An optimizer that takes the sums of micro-batches makes the steps of the whole batch."""
    pins = ["--fix", "pipeline_stages=2", "--fix", "micro_batch_num=2"]
    asked = ["plan", f"{FUNCTIONAL}:parallels", "--device-num", "4", *pins]
    assert main([*asked, "--out", str(tmp_path / "plan")]) == 0
    proof = prove_plan(load_file(tmp_path / "plan"), request=Request(steps=2, processes=four))
    assert proof.equal, proof.wrong
    assert len(proof.losses) == 3  # one with the gradients, two of the steps
    assert {"Send", "Receive"} <= {said.partition(":")[0] for said in proof.substitutions}


@pytest.mark.matrix
def test_interleaved_pipeline_stages(four: Processes) -> None:
    """Blocks, which MindSpore keeps as functions there, are written out; what they send meets in the right order."""
    case = next(case for case in CASES if case.name == "PP2x2 TP2 SP")
    proof = prove_plan(plan_of(case, "llama2_7b", "flash"), request=Request(processes=four))
    assert proof.equal, proof.wrong
    assert 0.0 < proof.worst.error < 1e-5
    assert len(proof.parameters) == 39


def test_a_gradient_that_is_not_summed_is_found_and_named(four: Processes) -> None:
    """MindSpore leaves the sum out for a weight behind Transpose: the loss is right, the gradient is not."""
    cell, inputs = load_factory(f"{NETWORKS}:by_hand_transposed")
    proof = prove_by_hand(cell, inputs, 4, Request(processes=four))
    assert proof.loss_rel_error < 1e-5
    assert not proof.equal
    assert [d.name for d in proof.wrong] == ["second"]
    assert proof.worst.error > 0.5
    assert proof.worst.ranks == (0, 1, 2, 3)


def test_the_planner_works_round_it(four: Processes) -> None:
    source = {"factory": f"{NETWORKS}:unsharded_transposed"}
    cell, inputs = load_factory(source["factory"])
    with fresh_scopes(cell):
        graph = capture(cell, *inputs)
    found = plan(graph, load("atlas_800t_a2"), device_num=4, global_batch_size=8, seq_length=32, source=source)
    proof = prove_plan(found, graph, Request(steps=3, processes=four))
    assert proof.equal, proof.wrong
    assert len(proof.losses) == 4  # one with the gradients, three of the steps
    assert proof.reduction == {}


@pytest.mark.parametrize("name", ["squared_largest", "squared_total"])
def test_what_is_squared_is_no_partial_result(name: str, four: Processes) -> None:
    """To reduce slices would be the least work, but MindSpore takes the gradient of the square for that of a weight decay."""
    source = {"factory": f"{NETWORKS}:{name}"}
    cell, inputs = load_factory(source["factory"])
    with fresh_scopes(cell):
        graph = capture(cell, *inputs)
    found = plan(graph, load("atlas_800t_a2"), device_num=4, global_batch_size=64, seq_length=64, source=source)
    proof = prove_plan(found, graph, Request(processes=four))
    assert proof.equal, proof.wrong


def test_a_wrong_sum_is_found_and_named(four: Processes) -> None:
    """The mean over the copies instead of the sum: only what has copies is wrong."""
    cell, inputs = load_factory(f"{NETWORKS}:by_hand")
    with fresh_scopes(cell):
        graph = capture(cell, *inputs)
    proof = prove_network(cell, inputs, graph, 4, ParallelConfig(gradients_mean=True), Request(processes=four))
    assert [d.name for d in proof.wrong] == ["second"]
    assert proof.worst.error == pytest.approx(0.75, abs=1e-3)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", f"{NETWORKS}:by_hand", "--device-num", "4", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert list(data) == KEYS
    assert data["equal"] is True
    assert (data["ranks"], data["parameters_checked"], data["reduction"]) == (4, 2, {})
    assert data["loss_rel_error"] < 1e-5 > data["grad_rel_error_max"]
    assert data["substitutions"] == ["ReduceScatter: AllReduce and slice"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([f"{NETWORKS}:by_hand"], "give --device-num"),
        ([f"{NETWORKS}:by_hand", "--device-num", "0"], "--device-num is 0"),
        ([f"{NETWORKS}:by_hand", "--device-num", "4", "--steps", "-1"], "--steps is -1"),
        ([f"{NETWORKS}:by_hand", "--device-num", "4", "--time-limit", "0"], "--time-limit is 0"),
        ([f"{NETWORKS}:missing", "--device-num", "4"], "no function 'missing'"),
        ([f"{NETWORKS}:no_loss", "--device-num", "2"], "does not return its loss alone"),
        ([f"{NETWORKS}:drops", "--device-num", "2"], "(Dropout) drops elements at random"),
        ([f"{NETWORKS}:not_on_cpu", "--device-num", "2"], "has no kernel of Nansum, and prove no definition of it"),
        ([f"{NETWORKS}:by_hand", "--device-num", "4", "--ranks", "2"], "--ranks shrinks plans"),
        ([f"{NETWORKS}:by_hand", "--device-num", "64"], "64 processes are too many"),
        ([f"{NETWORKS}:too_large", "--device-num", "2"], "GiB are free: give a smaller network"),
        (["/nowhere"], "cannot read the plan"),
    ],
)
def test_what_cannot_be_run_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("symtensor: error: ")
    assert said in line
