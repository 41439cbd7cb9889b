"""Which ways to lay out a step are shown, why the others were filtered out, and that a plan's file keeps them."""

from dataclasses import replace
from math import inf

import pytest

from ms_symtensor.report.considered import considered_json, considered_text, families_text
from ms_symtensor.strategy.considered import Considered
from ms_symtensor.strategy.file import from_json, to_json
from tests.strategy.plans import hand_written

PARTS = {"work": 0.5, "recompute": 0.0, "bubble": 0.25, "once": 0.25}
CONSIDERED = (
    Considered(2, 4, (4,), 0.9, True, 1.0, 3 << 30, PARTS),
    Considered(1, 1, (2, 4), 1.5),
    Considered(4, 4, (2,), 1.2, fits=False),
    Considered(4, 8, (2,), inf),
)


@pytest.fixture(scope="module")
def plan():
    _, found = hand_written("llama2_7b", 2, 2)
    return replace(found, search=replace(found.search, considered=CONSIDERED))


def test_the_table(plan):
    title, head, *lines = considered_text(plan, 3).splitlines()
    assert title == "Step layouts, screened"
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


def test_what_a_survey_takes_for_faster_than_the_plan_is_no_step(plan):
    """The plan, of 0.35 s, is the best of what was worked out."""
    own = Considered(2, 4, (4,), 0.2, True, 0.35, 3 << 30, PARTS)
    ways = (replace(own, step_time_s=0.3, mesh=(2, 2)), own, replace(own, micro_batch_num=8, step_time_s=0.4))
    found = replace(plan, search=replace(plan.search, considered=ways))
    _, _, *lines = considered_text(found, 3).splitlines()
    assert [line.split()[3:6] for line in lines[:2]] == [["350", "ms", "1.00"], ["400", "ms", "1.14"]]
    assert "2 x 2" in lines[2] and lines[2].endswith("takes 300 ms or more")
    assert [(one.get("step_time_s"), one.get("reason")) for one in considered_json(found)] == [
        (0.35, None), (0.4, None), (None, "takes 300 ms or more")
    ]  # fmt: skip
    _, head, row = families_text(found).splitlines()
    assert head.endswith("screened as faster, not reached")
    assert row.split() == ["2", "3", "350", "ms", "1", "(from", "300", "ms)"]


def test_ways_of_several_runs_per_stage_are_told_apart(plan):
    found = replace(
        plan, search=replace(plan.search, considered=(CONSIDERED[0], replace(CONSIDERED[0], pp_interleave_num=2)))
    )
    assert [one["pp_interleave_num"] for one in considered_json(found)] == [1, 2]


def test_meshes_that_only_divide_an_axis_are_shown_once(plan):
    of = Considered(2, 4, (4, 8), 0.9, True, 1.0, 3 << 30, PARTS)
    ways = (
        replace(of, mesh=(4, 2, 4), step_time_s=1.0 - 1e-5), of, replace(of, mesh=(4, 4, 2), step_time_s=0.9),
        replace(of, mesh=(2, 2, 8)), replace(of, mesh=(4, 2, 4), pp_interleave_num=2),
    )  # fmt: skip
    found = replace(plan, search=replace(plan.search, considered=ways))
    text = considered_text(found, 9)
    assert len(text.splitlines()) == 2 + 4
    assert (
        text.count("4 x 8") == 1 and text.count("4 x 2 x 4") == 1
    )  # with two model chunks per stage it is another step


def test_why_the_others_were_filtered_out(plan):
    title, _, one, two, four = families_text(plan).splitlines()
    assert title == "Step layouts, screened (the plan: as its programs cost)"
    assert one.split() == ["1", "1", "1", "(from", "1.50", "s)"]
    assert two.split() == ["2", "1", "1.00", "s"]
    assert four.split() == ["4", "2", "1", "1"]
    assert [one.get("reason") for one in considered_json(plan)] == [
        None, "takes 1.50 s or more", "does not fit", "operators cannot be laid out so"
    ]  # fmt: skip


def test_the_file_keeps_them(plan):
    assert from_json(to_json(plan)).search.considered == CONSIDERED
