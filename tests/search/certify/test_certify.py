"""Certified plans against every step that there is, and what the command says of them."""

import json
import random
from dataclasses import replace

import pytest

from benchmarks import brute_force, brute_force_stages
from benchmarks.stage_space import all_steps
from ms_symtensor.cli import main
from ms_symtensor.cluster.load import load

A2 = load("atlas_800t_a2")


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.matrix) for n in range(1, 8))])
def test_no_selection_inside_blocks_is_faster_than_the_certificate_says(seed):
    draw = random.Random(f"certificate/{seed}")
    graph, device_num = brute_force.selected_case(draw, 12)
    assert brute_force.disagreement_under_limits(graph, A2, device_num, draw, True, 0.0) == []


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(n, marks=pytest.mark.matrix) for n in range(3, 12))])
def test_no_step_in_stages_is_faster_than_the_certificate_says(seed):
    draw = random.Random(f"certificate/{seed}")
    case = replace(brute_force_stages.random_case(draw, 150, True, A2), certified_gap=0.0)
    assert brute_force_stages.disagreements(case, list(all_steps(case, True)), True, draw) == []


def planned(capsys, out, *more):
    assert main(["plan", "llama2_7b", "--device-num", "8", "--json", "--out", str(out), *more]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_certificate_brings_the_bound_near_and_says_how(capsys, tmp_path):
    plain, certified = planned(capsys, tmp_path / "plain"), planned(capsys, tmp_path / "certified", "--certify")
    assert certified["optimality_gap"] < 0.02
    assert certified["optimality_gap"] < 0.7 * plain["optimality_gap"]
    assert certified["step_time_s"] <= plain["step_time_s"]
    assert "HiGHS" in (tmp_path / "certified" / "report.txt").read_text(encoding="utf-8")
    every = json.loads((tmp_path / "certified" / "plan.json").read_text(encoding="utf-8"))["search"]["considered"]
    assert all(one["bound_s"] <= one["step_time_s"] * (1 + 1e-9) for one in every if one.get("step_time_s") is not None)


def test_layouts_that_stages_do_not_share_do_not_widen_it(capsys, tmp_path):
    request = ["llama2_13b", "--device-num=16", "--global-batch-size=32", "--memory-margin=0"]
    pins = ["--fix=pipeline_stages=4", "--fix=micro_batch_num=8"]
    assert main(["plan", *request, *pins, "--certify", "--json", f"--out={tmp_path}"]) == 0
    assert json.loads(capsys.readouterr().out)["optimality_gap"] <= 0.02


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--gap", "2%"], "--gap is 2% without --certify"),
        (["--certify", "--gap", "two"], "give a share such as 2%"),
        (["--certify", "--layouts", "uniform"], "--certify is for free layouts"),
    ],
)
def test_what_cannot_be_certified_is_one_line(capsys, tmp_path, more, said):
    arguments = ["plan", "llama2_7b", "--device-num", "8", "--out", str(tmp_path / "plan")]
    assert main([*arguments, *more]) == 2
    assert said in capsys.readouterr().err
