"""Stages take their passes in order; spans fill the step."""

from itertools import pairwise

import pytest

from ms_symtensor.cost.stage_time import StageSeconds, pipelined_step_s
from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.program.schedules import SCHEDULERS
from ms_symtensor.timeline.replay import Kind, replay


def lengths(lane, kind):
    return [span.time_s for span in lane if span.kind is kind]


@pytest.mark.parametrize(
    "stages, micro_batches, interleave", [(1, 1, 1), (1, 4, 1), (4, 4, 1), (4, 9, 1), (4, 8, 2), (3, 7, 3)]
)
def test_equal_stages_end_when_the_formula_says(stages, micro_batches, interleave):
    every = [StageSeconds(1.0, 2.0, 0.0, 0.0)] * stages
    step_s = pipelined_step_s(every, micro_batches, interleave)
    found = replay(every, PipelineSchedule(micro_batches, interleave), step_s)
    if micro_batches % stages == 0:
        assert found.replayed_s == pytest.approx(step_s)
    for lane in found.stages:
        assert len(lengths(lane, Kind.FORWARD)) == len(lengths(lane, Kind.BACKWARD)) == micro_batches * interleave
        assert sum(span.time_s for span in lane) == pytest.approx(step_s)
        for before, after in pairwise(lane):
            assert after.start_s == pytest.approx(before.end_s)


def test_two_stages_by_hand():
    """0: F0 F1 B0 B1; 1: F0 B0 F1 B1. Stage 1 is slow: 1 + (2 + 3) twice, then stage 0's last backward pass."""
    stages = [StageSeconds(1.0, 2.0, 0.5, 0.25), StageSeconds(2.0, 3.0, 0.0, 0.0)]
    found = replay(stages, PipelineSchedule(2), 14.0)
    assert found.replayed_s == 0.5 + 1 + 2 * (2 + 3) + 2 + 0.25
    assert [span.kind for span in found.stages[1]] == [
        Kind.WAIT, Kind.FORWARD, Kind.BACKWARD, Kind.FORWARD, Kind.BACKWARD, Kind.WAIT,
    ]  # fmt: skip
    assert found.stages[1][0].time_s == 1.5
    assert found.stages[0][-1].kind is Kind.WAIT and found.stages[0][-1].end_s == 14.0


def test_what_takes_longer_than_the_step_is_drawn_shorter():
    found = replay([StageSeconds(1.0, 2.0, 0.0, 1.0)], PipelineSchedule(2), 3.5)
    assert found.replayed_s == 7.0 and found.scale == 0.5
    assert lengths(found.stages[0], Kind.BACKWARD) == [1.0, 1.0]


@pytest.mark.parametrize("backward_s", [2.0, 3.0])
@pytest.mark.parametrize("stages, groups, chunks", [(2, 2, 2), (4, 2, 2), (4, 4, 3), (8, 2, 2)])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_all_schedules_have_one_bubble(name, stages, groups, chunks, backward_s):
    schedule = PipelineSchedule(groups * stages, chunks, name)
    said_s = schedule.step_s([1.0 + backward_s] * stages, 0.0)
    found_s = replay([StageSeconds(1.0, backward_s, 0.0, 0.0)] * stages, schedule, said_s).replayed_s
    if name == "seqsmartvpp":  # the first stage may wait for what it has asked for ahead
        assert said_s - 1e-9 <= found_s <= 1.07 * said_s
    else:
        assert found_s == pytest.approx(said_s)
