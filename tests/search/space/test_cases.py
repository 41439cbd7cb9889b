"""Limits that are searched case by case."""

from ms_symtensor.search.asked.limits import FREE, limits_of
from ms_symtensor.search.space.cases import cases


def test_the_cases_of_sequence_parallelism():
    assert cases(FREE, 8) == (FREE,)
    yes = cases(limits_of([("sequence_parallel", "yes")]), 4)
    assert [one.rows for one in yes] == [1, 2]
    assert all(one.least["model_parallel"] == 2 for one in yes)
    no = cases(limits_of([("sequence_parallel", "no")], [("model_parallel", "4")]), 4)
    assert [one.rows for one in no] == [None, 1, 2]
    assert no[0].most == {"model_parallel": 1}
    only = cases(limits_of([("sequence_parallel", "no")], [("model_parallel", 1)]), 4)
    assert [one.rows for one in only] == [None]
    assert cases(limits_of([("sequence_parallel", "yes")], [("model_parallel", 1)]), 4) == ()


def test_the_cases_of_context_parallelism():
    found = cases(limits_of([("context_parallel", 2)]), 4)
    degrees = {(one.rows, one.least["model_parallel"]) for one in found}
    assert degrees == {(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1)} and len(found) == 6


def test_the_cases_of_degrees_by_name():
    found = cases(limits_of([("*.query.matmul", "dp,tp"), ("data_parallel", 2)]), 8)
    assert [(one.least["data_parallel"], one.most["model_parallel"]) for one in found] == [(2, 4), (2, 2), (2, 1)]
