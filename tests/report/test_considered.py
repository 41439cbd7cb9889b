"""Which ways to lay out a step are shown, why one of them was not taken, and that a plan's file keeps them."""

from dataclasses import replace

import pytest

from ms_symtensor.errors import InputError
from ms_symtensor.report.considered import considered_text, why_not
from ms_symtensor.strategy.considered import Considered
from ms_symtensor.strategy.file import from_json, to_json
from tests.strategy.plans import hand_written

PARTS = {"work": 0.5, "recompute": 0.0, "bubble": 0.25, "once": 0.25}
CONSIDERED = (
    Considered(2, 4, (4,), 0.9, True, 1.0, 3 << 30, PARTS),
    Considered(1, 1, (2, 4), 1.5),
    Considered(4, 4, (2,), 1.2, fits=False),
)


@pytest.fixture(scope="module")
def plan():
    _, found = hand_written("llama2_7b", 2, 2)
    return replace(found, search=replace(found.search, considered=CONSIDERED))


def test_the_table(plan):
    title, head, *lines = considered_text(plan, 3).splitlines()
    assert title == "Ways to lay out the step, surveyed"
    assert head.split() == [
        "stages",
        "micro-batches",
        "mesh",
        "step",
        "ratio",
        "work",
        "recompute",
        "bubble",
        "once",
        "kept",
    ]
    assert "1.00 s" in lines[0] and "3.00 GiB" in lines[0]
    assert lines[1].endswith("takes 1.50 s or more")
    assert lines[2].endswith("does not fit")


@pytest.mark.parametrize(
    "wanted, answer",
    (
        ("pp=2", "pipeline_stages 2, micro_batch_num 4, mesh 4: takes 1.00 s at best"),
        ("dp=2, tp=4", "no plan of this kind takes less than 1.50 s"),
        ("pipeline_stages=4,mb=4", "its stages do not fit"),
        ("dp=3", "not among the 3 ways that were looked at"),
    ),
)
def test_why_not(plan, wanted, answer):
    assert answer in why_not(plan, wanted)


@pytest.mark.parametrize("wanted", ("ep=2", "dp", "dp=x", ""))
def test_what_is_no_layout(plan, wanted):
    with pytest.raises(InputError, match="is no way to lay out a step"):
        why_not(plan, wanted)


def test_the_file_keeps_them(plan):
    assert from_json(to_json(plan)).search.considered == CONSIDERED
