"""Orders of passes and peaks of all schedules, against programs that MindSpore compiles."""

import pytest

from benchmarks.schedules import cases, passed, run

QUICK = ("seqsmartvpp", 2, 2, 4)


@pytest.mark.parametrize(
    "case", [pytest.param(one, marks=[] if one == QUICK else pytest.mark.matrix) for one in cases((2, 4, 8))], ids=str
)
def test_a_stage_takes_its_passes_as_compiled(case: tuple[str, int, int, int]) -> None:
    found = list(run(case, frozenset()))
    assert found and [one for one in found if not passed(one)] == []
