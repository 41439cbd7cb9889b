"""Training and rollout plans chosen together: the best by brute force, the times of a step, what is refused."""

import itertools
import json
import math
from dataclasses import replace

import pytest

from model_zoo.dimensions import dimensions_of
from ms_symtensor.cli import main
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.joint import Training, alone_s, joint, rollouts_of, step_of
from ms_symtensor.search.constraints.request import free_B
from ms_symtensor.serving.request import Request, Tokens
from ms_symtensor.serving.strategy import Strategy

CLUSTER = load("atlas_800t_a2")
CONFIG = dimensions_of("llama3_8b", num_layers=2)
REQUEST = Request(CONFIG, CLUSTER, 2, Tokens(512, 512, 256), free_B(CLUSTER))
TRAININGS = (
    Training(Strategy(tp=2, ffn_tp=2), 1.0, 1 << 30),
    Training(Strategy(pp=2), 1.004, 1 << 30),
    Training(Strategy(dp=2), 1.01, 0),
)
SIZES = ["--device-num", "2", "--global-batch-size", "4", "--input-tokens", "64", "--output-tokens", "64"]


def test_the_best_pair_is_that_of_brute_force() -> None:
    found = joint(REQUEST, 8, TRAININGS, 0.9)
    steps = [step_of(REQUEST, *pair) for pair in itertools.product(TRAININGS, rollouts_of(REQUEST, 8))]
    assert found.step.time_s == min(step.time_s for step in steps)
    bound = 0.9 * 5 / 3 + min(one.generation_s for one in rollouts_of(REQUEST, 8))
    assert found.gap == pytest.approx(found.step.time_s / bound - 1) and found.pairs < len(steps)


def test_what_moves_and_waits_is_part_of_a_step() -> None:
    rollout = next(one for one in rollouts_of(REQUEST, 8) if one.strategy == Strategy(tp=2, ffn_tp=2))
    same, stages = (step_of(REQUEST, one, rollout) for one in TRAININGS[:2])
    assert same.reshard_s == (0.0, 0.0) and same.received_B == 0 and min(stages.reshard_s) > 0
    assert same.swap_s > 0 and step_of(REQUEST, TRAININGS[2], rollout).swap_s < same.swap_s
    parts = (alone_s(TRAININGS[0]), rollout.generation_s, same.swap_s)
    assert same.time_s == pytest.approx(math.fsum(parts))


def test_samples_that_the_cache_does_not_hold_come_in_waves() -> None:
    tight = replace(REQUEST, limit_B=6 << 30)
    few, many = (next(rollouts_of(tight, samples)) for samples in (2, 4000))
    assert few.waves == 1 < many.waves and many.generation_s > few.generation_s
    with pytest.raises(InfeasibleError, match="cache"):
        joint(replace(REQUEST, limit_B=1 << 20), 8, TRAININGS, 0.9)


@pytest.mark.matrix  # uniform layouts are searched
def test_the_command_chooses_both(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["reshard", "--joint", "llama3_8b", "--device-num", "8", *SIZES[2:], "--fix", "rollout.tp=2"]
    assert main([*options, "--fix", "model_parallel=4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["training"]["tp"] == 4 and found["rollout"]["strategy"]["tp"] == 2
    assert found["step_time_s"] == pytest.approx(sum(found["time_s"].values()))
    assert found["step_time_s"] <= found["each_alone"]["step_time_s"] and found["optimality_gap"] >= 0
    assert main([*options, "--fix", "model_parallel=4"]) == 0
    assert "generation" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["llama3_8b"], "TO is missing"),
        (["--joint", "llama3_8b", "--device-num", "2"], "--global-batch-size"),
        (["--joint", "llama3_8b", *SIZES, "--out", "x"], "--out is for two folders"),
        (["plan/x", "plan/y", "--global-batch-size", "4"], "--global-batch-size is for --joint"),
        (["--joint", "llama3_8b", "plan/x", *SIZES], "one MODEL"),
        (["--joint", "llama3_8b", *SIZES, "--fix", "context_parallel=2"], "context_parallel"),
        (["--joint", "bert_large", *SIZES], "does not generate"),
    ],
)
def test_mistakes_of_reshard_joint_are_one_line(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reshard", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line and len(line) <= 450
