"""The cases in which pinned operators have a layout, and the operators that have none."""

import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InputError
from ms_symtensor.search.asked.limits import limits_of
from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.space.cases import cases
from ms_symtensor.search.space.left import remaining, stage_devices, why_none
from tests.strategy.plans import small_graph

A2 = load("atlas_800t_a2")
GRAPH = small_graph("llama2_7b", num_layers=3)


def request(*pairs, device_num=8):
    return Request(A2, device_num, 8, 128, 1 << 60, limits=limits_of(pairs))


def test_without_pins_of_operators_all_cases_remain():
    asked = request(("model_parallel", 2), ("sequence_parallel", "yes"))
    assert remaining(GRAPH, asked) == (cases(asked.limits, 8), "")


def test_a_pattern_that_leaves_the_loss_whole_says_so():
    found, remark = remaining(GRAPH, request(("*", "dp,tp")))
    assert [(one.least["data_parallel"], one.least["model_parallel"]) for one in found] == [(1, 1)]
    assert remark.startswith("only data_parallel = 1, model_parallel = 1 leaves ") and "loss" in remark


def test_several_pairs_that_a_pattern_leaves_are_searched_at_once():
    asked = request(("*/attention/*", "dp,tp"))
    assert remaining(GRAPH, asked) == ((asked.limits,), "")


def test_the_operator_that_a_pinned_degree_leaves_nothing_is_named():
    with pytest.raises(
        InputError, match=r"^\* = dp,tp: no layout of loss\.\S+ on 8 devices is so with data_parallel = 8"
    ):
        remaining(GRAPH, request(("*", "dp,tp"), ("data_parallel", 8)))


def test_devices_of_a_stage_count():
    eight = request(("*.query.matmul", "(8,1)(1,1)"), ("pipeline_stages", 2))
    with pytest.raises(InputError, match=r"no layout of attention\.query\.matmul on 4 devices is so; its dims are"):
        remaining(GRAPH, eight)
    assert len(remaining(GRAPH, request(("*.query.matmul", "(4,1)(1,1)"), ("pipeline_stages", 2)))[0]) == 1
    assert stage_devices(GRAPH, request()) == [8, 4] and stage_devices(GRAPH, eight) == [4]


def test_the_operator_that_has_no_such_degree_is_named():
    assert "no layout of " in why_none(GRAPH, request(("model_parallel", 3)))
    assert why_none(GRAPH, request(("model_parallel", 2))) == ""
