"""The cases in which pinned operators have a layout, and the operators that have none."""

import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InputError
from ms_symtensor.search.constraints.limits import FREE, limits_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.space.left import cases, remaining, stage_devices, why_none
from ms_symtensor.tensor.graph import (
    Constant,
    Graph,
    InputRef,
    Op,
    OpOutput,
    Parameter,
    ParameterRef,
    TensorType,
)
from tests.strategy.plans import small_graph

A2 = load("atlas_800t_a2")
GRAPH = small_graph("llama2_7b", num_layers=3)


def request(*pairs, device_num=8):
    return Request(A2, device_num, 8, 128, 1 << 60, limits=limits_of(pairs))


def test_without_pins_of_operators_all_cases_remain():
    question = request(("model_parallel", 2), ("sequence_parallel", "yes"))
    assert remaining(GRAPH, question) == (cases(question.limits, 8), "")


def test_a_pattern_that_leaves_the_loss_whole_says_so():
    found, remark = remaining(GRAPH, request(("*", "dp,tp")))
    assert [(one.least["data_parallel"], one.least["model_parallel"]) for one in found] == [(1, 1)]
    assert remark.startswith("only data_parallel = 1, model_parallel = 1 leaves ") and "loss" in remark


def test_several_pairs_that_a_pattern_leaves_are_searched_at_once():
    question = request(("*/attention/*", "dp,tp"))
    assert remaining(GRAPH, question) == ((question.limits,), "")


def test_the_operator_that_a_pinned_degree_leaves_nothing_is_named():
    with pytest.raises(
        InputError, match=r"^\* = dp,tp: no layout of loss\.\S+ on 8 devices is so with data_parallel = 8"
    ):
        remaining(GRAPH, request(("*", "dp,tp"), ("data_parallel", 8)))


def test_devices_of_a_stage_count():
    eight = request(("*.query.matmul", "(8,1)(1,1)"), ("pipeline_stages", 2))
    with pytest.raises(
        InputError, match=r"on 4 devices is so: strategy .* needs 8 devices, which does not divide 4; its dims are"
    ):
        remaining(GRAPH, eight)
    assert len(remaining(GRAPH, request(("*.query.matmul", "(4,1)(1,1)"), ("pipeline_stages", 2)))[0]) == 1
    assert stage_devices(GRAPH, request()) == [8, 4] and stage_devices(GRAPH, eight) == [4]


def test_the_operator_that_has_no_such_degree_is_named():
    assert "no layout of " in why_none(GRAPH, request(("model_parallel", 3)))
    assert why_none(GRAPH, request(("model_parallel", 2))) == ""


def classes(number: int) -> Graph:
    """mean(x · wᵀ) of functions, w with a row for each of so many classes."""
    x, w, turned, y = (TensorType(shape, "float32") for shape in ((8, 64), (number, 64), (64, number), (8, number)))
    ops = (
        Op("Default/Transpose-op0", "Transpose", (ParameterRef("w"), Constant((1, 0))), (turned,)),
        Op("Default/MatMul-op0", "MatMul", (InputRef("x"), OpOutput("Default/Transpose-op0")), (y,)),
        Op("Default/ReduceMean-op0", "ReduceMean", (OpOutput("Default/MatMul-op0"),), (TensorType((), "float32"),)),
    )
    return Graph("net", (("x", x),), (Parameter("w", w),), ops, OpOutput("Default/ReduceMean-op0"))


def test_the_weight_that_is_trained_rightly_in_no_layout_is_named():
    """Three rows lie whole on four devices, and no optimizer shares them out."""
    said = why_none(classes(3), request(device_num=4))
    assert said.startswith(
        "in every layout of Transpose (Transpose) on 4 devices, parameter w: MindSpore would not sum"
    )
    assert "MatMul with transpose_b=True" in said
    assert why_none(classes(8), request(device_num=4)) == ""


def test_what_one_search_obeys_is_one_case():
    assert cases(FREE, 8) == (FREE,)
    limits = limits_of([("sequence_parallel", "yes"), ("context_parallel", 2)], [("model_parallel", 4)])
    assert cases(limits, 8) == (limits,)


def test_the_cases_of_degrees_by_name():
    found = cases(limits_of([("*.query.matmul", "dp,tp"), ("data_parallel", 2)]), 8)
    assert [(one.least["data_parallel"], one.most["model_parallel"]) for one in found] == [(2, 4), (2, 2), (2, 1)]
