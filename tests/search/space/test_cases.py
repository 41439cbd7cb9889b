"""Limits that are searched case by case."""

import time
from dataclasses import replace

from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.search.constraints.limits import FREE, limits_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.space.cases import Searched, best_case, cases
from tests.strategy.plans import plan_of, small_graph


def test_what_one_search_obeys_is_one_case():
    assert cases(FREE, 8) == (FREE,)
    limits = limits_of([("sequence_parallel", "yes"), ("context_parallel", 2)], [("model_parallel", 4)])
    assert cases(limits, 8) == (limits,)


def test_the_time_of_a_search_is_that_of_all_cases():
    """Also of those in which nothing is found; what a case says of itself is not added up."""
    plan = plan_of(small_graph("llama2_7b"), {}, 8)
    found = {1: plan, 2: None, 4: replace(plan, search=replace(plan.search, search_time_s=9.0))}
    limits = [limits_of([("data_parallel", number)]) for number in found]

    def search(case, incumbent_s):
        time.sleep(0.02)
        return Searched(found[case.limits.least["data_parallel"]], 1e-3, 1, lambda: InfeasibleError("nothing"))

    request = Request(load("atlas_800t_a2"), 8, 8, 128, 1 << 30)
    for some in (limits, limits[2:]):
        assert 0.02 * len(some) <= best_case(request, some, search).search.search_time_s < 1


def test_the_cases_of_degrees_by_name():
    found = cases(limits_of([("*.query.matmul", "dp,tp"), ("data_parallel", 2)]), 8)
    assert [(one.least["data_parallel"], one.most["model_parallel"]) for one in found] == [(2, 4), (2, 2), (2, 1)]
