"""Limits that are searched case by case."""

from ms_symtensor.search.asked.limits import FREE, limits_of
from ms_symtensor.search.space.cases import cases


def test_what_one_search_obeys_is_one_case():
    assert cases(FREE, 8) == (FREE,)
    limits = limits_of([("sequence_parallel", "yes"), ("context_parallel", 2)], [("model_parallel", 4)])
    assert cases(limits, 8) == (limits,)


def test_the_cases_of_degrees_by_name():
    found = cases(limits_of([("*.query.matmul", "dp,tp"), ("data_parallel", 2)]), 8)
    assert [(one.least["data_parallel"], one.most["model_parallel"]) for one in found] == [(2, 4), (2, 2), (2, 1)]
