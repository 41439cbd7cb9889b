"""Why a plan is not laid out otherwise: the best plan of that kind beside it, or what it lacks."""

from dataclasses import replace

import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InputError
from ms_symtensor.report.why_not import why_not
from ms_symtensor.search.constraints.limits import FREE, limits_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.plan import planned
from tests.strategy.plans import small_graph

A2 = load("atlas_800t_a2")
GRAPH = small_graph("llama2_7b", num_layers=2)
GIB = 1 << 30


def replan(limits, limit_B):
    return planned(GRAPH, Request(A2, 8, 8, 128, limit_B, limits=limits))


@pytest.fixture(scope="module")
def plan():
    return replan(FREE, 58 * GIB)


def lines_of(text):
    return {line.split("  ")[1].strip(): line.split() for line in text.splitlines()[2:]}


def test_a_slower_one(plan):
    number = 8 if plan.model_parallel != 8 else 4
    text = why_not(plan, f"tp={number}", replan)
    assert f"tp={number}: takes" in text and "more than the plan" in text
    rows = lines_of(text)
    assert rows["model_parallel"] == ["model_parallel", str(plan.model_parallel), str(number)]
    assert rows["step"][-2].startswith("+")


def test_the_plan_itself(plan):
    assert why_not(plan, f"dp={plan.data_parallel},tp={plan.model_parallel}", replan).endswith("the plan is so")


def test_one_that_a_pin_forbids():
    swapped = replan(limits_of([("swap_optimizer", "yes")]), 58 * GIB)
    swapped = replace(swapped, fixed={"swap_optimizer": "yes"})
    text = why_not(swapped, "swap_optimizer=no", replan)
    assert "less than the plan" in text and "a pin forbids it" in text
    assert lines_of(text)["swap_optimizer"] == ["swap_optimizer", "yes", "no"]
    assert why_not(swapped, "swap_optimizer=yes", replan).endswith("the plan is so")


def test_one_that_does_not_fit(plan):
    limit_B = plan.prediction.peak_memory_B
    tight = replace(plan, prediction=replace(plan.prediction, limit_B=limit_B))
    text = why_not(tight, "optimizer_level=0,dp=8", replan)
    assert "does not fit. The smallest such plan that was found needs" in text
    assert lines_of(text)["optimizer_level"][-1] == "0"


def test_one_that_cannot_be(plan):
    assert why_not(plan, "tp=3", replan).startswith("tp=3: model_parallel = 3: there is no degree of 3 on 8 devices")


def test_other_pins_hold(plan):
    pinned = replace(plan, fixed={"recompute": "full"})
    assert lines_of(why_not(pinned, "tp=2", replan))["recompute"][-1] == "2"


@pytest.mark.parametrize(
    ("wanted", "pins"),
    (
        ("dp=8,tp=8", {"data_parallel": "8", "model_parallel": "8"}),
        ("dp=8, tp=8", {"data_parallel": "8", "model_parallel": "8"}),
        ("*.query.matmul=(1,1)(8,1)", {"*.query.matmul": "(1,1)(8,1)"}),
        ("*.query.matmul=(1,8)(1,8)->(8,1),pp=1", {"*.query.matmul": "(1,8)(1,8)->(8,1)", "pipeline_stages": "1"}),
        ("*.query.matmul=m/4,n/2", {"*.query.matmul": "m/4,n/2"}),
        ("dp=4,*.query.matmul=m/4,*,tp=2", {"data_parallel": "4", "*.query.matmul": "m/4,*", "model_parallel": "2"}),
        ("*/attention/*=dp,tp,dp=4", {"*/attention/*": "dp,tp", "data_parallel": "4"}),
        ("*.query.matmul=whole,*.key.matmul=dp*tp,1", {"*.query.matmul": "whole", "*.key.matmul": "dp*tp,1"}),
    ),
)
def test_commas_inside_values(plan, wanted, pins):
    asked = []

    def search(limits, limit_B):
        asked.append(limits)
        return plan

    why_not(plan, wanted, search)
    assert asked[0].fixed == pins


def test_a_pattern_with_a_comma(plan):
    wanted = "*.query.matmul=(8,1)(1,1)"
    assert why_not(plan, wanted, replan).startswith(f"{wanted}: takes")


@pytest.mark.parametrize("wanted", ("dp=8,dp=4", "dp=8,data_parallel=4"))
def test_two_ways_at_once(plan, wanted):
    with pytest.raises(InputError, match="data_parallel is there twice, 8 and 4: ask for one after the other"):
        why_not(plan, wanted, replan)


@pytest.mark.parametrize("wanted", ("dp", "dp=", ""))
def test_what_is_no_layout(plan, wanted):
    with pytest.raises(InputError, match="is no way to lay out a step"):
        why_not(plan, wanted, replan)


@pytest.mark.parametrize("wanted, said", (("dp=x", "give a number"), ("zz=2", "zz cannot be pinned")))
def test_what_cannot_be_pinned(plan, wanted, said):
    with pytest.raises(InputError, match=said):
        why_not(plan, wanted, replan)
