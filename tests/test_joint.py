"""Training and rollout plans chosen together: the best by brute force, the times of a step, what is refused."""

import itertools
import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from model_zoo.dimensions import dimensions_of
from ms_symtensor.cli import main
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.joint import Training, alone_s, best_pair, joint, moves, rollouts_of, side_of_training, step_of
from ms_symtensor.search.constraints.limits import Limits
from ms_symtensor.search.constraints.request import Request as PlanRequest
from ms_symtensor.search.constraints.request import free_B
from ms_symtensor.serving.request import Request, Tokens
from ms_symtensor.serving.strategy import Strategy
from ms_symtensor.uniform.layout import Degrees, Recomputation, Stages, UniformLayout
from ms_symtensor.uniform.prices import Prices
from ms_symtensor.uniform.rules import ANY
from ms_symtensor.uniform.search import fast_layouts
from ms_symtensor.uniform.space import Refused, layouts

CLUSTER = load("atlas_800t_a2")
CONFIG = dimensions_of("llama3_8b", num_layers=2)
TRAINED = replace(CONFIG, batch_size=8, seq_length=768)
REQUEST = Request(CONFIG, CLUSTER, 2, Tokens(512, 512, 256), free_B(CLUSTER))
ASKED = PlanRequest(
    CLUSTER, 2, 8, 768, REQUEST.limit_B, limits=Limits({"context_parallel": 1}, {"context_parallel": 1})
)
TRAININGS = (
    Training(UniformLayout(Degrees(model_parallel=2)), 1.0, 0.05),
    Training(UniformLayout(stages=Stages(2, 2)), 1.004, 0.05),
    Training(UniformLayout(Degrees(data_parallel=2)), 1.01, 0.0),
)
priced = partial(step_of, REQUEST, partial(side_of_training, TRAINED))
SIZES = ["--device-num", "2", "--global-batch-size", "4", "--input-tokens", "64", "--output-tokens", "64"]


def test_the_best_pair_is_that_of_brute_force() -> None:
    rollouts = tuple(rollouts_of(REQUEST, 8))
    found = best_pair(TRAININGS, rollouts, priced)
    steps = [priced(*pair) for pair in itertools.product(TRAININGS, rollouts)]
    assert found.step.time_s == min(step.time_s for step in steps) and found.pairs < len(steps)


def test_every_layout_of_a_faster_step_is_priced() -> None:
    """No layout with as many blocks recomputed on every stage fits and is faster, where most have to recompute some."""
    asked = replace(ASKED, limit_B=14 << 30)
    found, least_s = fast_layouts(TRAINED, asked, lambda fits: math.inf)
    best_s = min(price.step_time_s for _, price in found)
    assert math.isinf(least_s)
    prices, fits = Prices(TRAINED, asked), []
    for layout, number in itertools.product(layouts(TRAINED, asked, ANY, Refused()), range(3)):
        price = prices.of(replace(layout, recompute=Recomputation((number,))))
        fits += [(price.step_time_s, number)] if price.peak_memory_B <= asked.limit_B else []
    assert best_s <= min(fits)[0] * (1 + 1e-9) and min(fits)[1] > 0


def test_what_is_left_out_takes_no_less_than_the_bound() -> None:
    """Of training by a tight budget, and of pairs by few."""
    asked = replace(ASKED, limit_B=14 << 30)
    every, few = (fast_layouts(TRAINED, asked, lambda fits: math.inf, work=work) for work in (math.inf, 1))
    left_out = {layout: price.step_time_s for layout, price in every[0] if layout not in dict(few[0])}
    assert left_out and few[1] <= min(left_out.values())
    rollouts = tuple(rollouts_of(REQUEST, 8))
    best, found = best_pair(TRAININGS, rollouts, priced), best_pair(TRAININGS, rollouts, priced, 1)
    assert found.pairs == 1 and best.gap == 0 and found.bound_s <= best.step.time_s <= found.step.time_s


def test_what_predicts_a_second_token_stays_with_training() -> None:
    config = dimensions_of("deepseek_v3", num_layers=4)
    request, trained = replace(REQUEST, config=config, device_num=16), replace(config, batch_size=16, seq_length=768)
    side = side_of_training(trained, UniformLayout(Degrees(data_parallel=16, expert_parallel=16)))
    there, back = moves(request, side, next(rollouts_of(request, 8)))
    kept = {held.name for held in side.tensors} - {held.name for held in back.target.tensors}
    assert kept and all(name.startswith("second_token.") for name in kept)
    assert [held.name for held in there.target.tensors] == [held.name for held in back.source.tensors]


def test_what_moves_and_waits_is_part_of_a_step() -> None:
    rollout = next(one for one in rollouts_of(REQUEST, 8) if one.strategy == Strategy(tp=2, ffn_tp=2))
    same, stages = (priced(one, rollout) for one in TRAININGS[:2])
    assert same.reshard_s == (0.0, 0.0) and same.received_B == 0 and min(stages.reshard_s) > 0
    parts = (alone_s(TRAININGS[0]), rollout.generation_s, TRAININGS[0].swap_s)
    assert same.time_s == pytest.approx(math.fsum(parts))


def test_samples_that_the_cache_does_not_hold_come_in_waves() -> None:
    tight = replace(REQUEST, limit_B=6 << 30)
    few, many = (next(rollouts_of(tight, samples)) for samples in (2, 4000))
    assert few.waves == 1 < many.waves and many.generation_s > few.generation_s
    with pytest.raises(InfeasibleError, match="cache"):
        joint(replace(REQUEST, limit_B=1 << 20), 8, TRAINED, ASKED)


@pytest.mark.matrix  # uniform layouts are searched
def test_the_command_chooses_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["reshard", "--joint", "llama3_8b", "--device-num", "8", *SIZES[2:], "--fix", "rollout.tp=2"]
    assert main([*options, "--fix", "model_parallel=4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["training"]["tp"] == 4 and found["rollout"]["strategy"]["tp"] == 2
    assert found["step_time_s"] == pytest.approx(sum(found["time_s"].values()))
    assert found["step_time_s"] <= found["each_alone"]["step_time_s"] and found["optimality_gap"] == 0
    assert main([*options, "--fix", "model_parallel=4", "--out", str(tmp_path)]) == 0
    assert "generation" in capsys.readouterr().out
    assert main(["reshard", *(str(tmp_path / name) for name in ("training", "rollout")), "--prove", "--json"]) == 0
    moved, written = (
        json.loads(text) for text in (capsys.readouterr().out, (tmp_path / "to_rollout/reshard.json").read_text())
    )
    assert moved["received_B"] == written["received_B"] == found["received_B"] > 0
    # Of two folders the stored weights are in float32: those that stay where they are need a cast, too.
    assert 0 < moved["time_s"] - found["time_s"]["reshard_to_the_rollout"] < 0.1 * moved["time_s"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["llama3_8b"], "TO is missing"),
        (["--joint", "llama3_8b", "--device-num", "2"], "--global-batch-size"),
        (["--joint", "llama3_8b", *SIZES, "--prove"], "--prove is for two folders"),
        (["plan/x", "plan/y", "--global-batch-size", "4"], "--global-batch-size is for --joint"),
        (["--joint", "llama3_8b", "plan/x", *SIZES], "one MODEL"),
        (["--joint", "llama3_8b", *SIZES, "--fix", "context_parallel=2"], "context_parallel"),
        (["--joint", "bert_large", *SIZES], "does not generate"),
        (["--joint", "llama3_70b", *SIZES, "--out", f"{__file__}/out"], "is a file"),
    ],
)
def test_mistakes_of_reshard_joint_are_one_line(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reshard", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line and len(line) <= 450
