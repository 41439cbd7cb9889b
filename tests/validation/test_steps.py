from dataclasses import replace

from estimate import CLUSTER, cases

from ms_symtensor.validation.dataset import Measurement
from ms_symtensor.validation.shapes import shape_of
from ms_symtensor.validation.steps import drawn, telling

CASES = cases(CLUSTER)
OTHERS = [i for i, case in enumerate(CASES) if case.group != "group 0"]


def shapes(indices):
    return {shape_of(CASES[i].configuration) for i in indices}


def test_the_fastest_are_asked_about_first():
    own = [case for case in CASES if case.group == "group 0"]
    assert shapes(telling(own, OTHERS, CASES, 2)) == {shape_of(case.configuration) for case in own[:2]}
    assert shapes(telling(own[::-1], OTHERS, CASES, 2)) == {shape_of(case.configuration) for case in own[-2:]}


def test_no_shape_is_asked_about_twice_before_the_rest():
    own = [CASES[0], CASES[0], CASES[4]]
    chosen = telling(own, OTHERS, CASES, 3)
    assert len(chosen) == len(set(chosen)) == 3
    assert shapes(chosen) > {shape_of(CASES[0].configuration), shape_of(CASES[4].configuration)}


def test_steps_of_other_shapes_where_there_are_none_of_them():
    stranger = replace(CASES[0], configuration=replace(CASES[0].configuration, seq_length=512))
    assert telling([stranger], OTHERS[::-1], CASES, 4) == tuple(sorted(OTHERS[-4:]))
    assert telling([stranger], [], CASES, 4) == ()


def test_groups_take_turns_and_untimed_cases_none():
    untimed = replace(CASES[0], measured=Measurement(fits=False))
    order = drawn([untimed, *CASES[1:]], seed=0)
    assert sorted(order) == list(range(1, len(CASES)))
    assert len({CASES[i].group for i in order[:4]}) == 4
    assert order == drawn([untimed, *CASES[1:]], seed=0) != drawn([untimed, *CASES[1:]], seed=1)
