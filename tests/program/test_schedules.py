"""The orders of passes are those of programs that MindSpore 2.10.0 compiled, and take as long as the formula says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_symtensor.errors import InputError
from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.program.schedules import SCHEDULERS

COMPILED = {  # 4 stages of 2 model chunks, 8 micro-batches: (schedule, stage)
    ("1f1b", 0): "F0.0 F1.0 F2.0 F3.0 F0.1 F1.1 F2.1 F3.1 F4.0 F5.0 F6.0 B0.1 F7.0 B1.1 F4.1 B2.1 F5.1 B3.1 F6.1 B0.0 F7.1 B1.0"
    " B2.0 B3.0 B4.1 B5.1 B6.1 B7.1 B4.0 B5.0 B6.0 B7.0",
    ("seqpipe", 2): "F0.0 F1.0 F2.0 F3.0 F0.1 F1.1 F2.1 B0.1 F3.1 B1.1 F4.0 B2.1 F5.0 B3.1 F6.0 B0.0 F7.0 B1.0 F4.1 B2.0 F5.1"
    " B3.0 F6.1 B4.1 F7.1 B5.1 B6.1 B7.1 B4.0 B5.0 B6.0 B7.0",
    ("seqsmartvpp", 0): "F0.0 F1.0 F2.0 F3.0 F0.1 F1.1 F2.1 F3.1 B0.1 F4.0 B1.1 F5.0 B2.1 F4.1 F6.0 B3.1 F5.1 F7.0 B0.0 F6.1 B1.0"
    " F7.1 B2.0 B3.0 B4.1 B5.1 B6.1 B7.1 B4.0 B5.0 B6.0 B7.0",
    ("seqsmartvpp", 3): "F0.0 F1.0 F2.0 F3.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.1 B3.1 F4.0 B0.0 F5.0 B1.0 F6.0 B2.0 F7.0 B3.0 F4.1"
    " B4.1 F5.1 B5.1 F6.1 B6.1 F7.1 B7.1 B4.0 B5.0 B6.0 B7.0",
    ("gpipe", 2): "F0.0 F1.0 F2.0 F3.0 F4.0 F5.0 F6.0 F7.0 F0.1 F1.1 F2.1 F3.1 F4.1 F5.1 F6.1 F7.1 B0.1 B1.1 B2.1 B3.1 B4.1 B5.1"
    " B6.1 B7.1 B0.0 B1.0 B2.0 B3.0 B4.0 B5.0 B6.0 B7.0",
}  # fmt: skip

PIPELINES = st.tuples(st.sampled_from(sorted(SCHEDULERS)), st.integers(2, 6), st.integers(1, 4), st.integers(1, 3))


@pytest.mark.parametrize("name, stage", COMPILED)
def test_orders_are_those_of_compiled_programs(name: str, stage: int) -> None:
    turns = PipelineSchedule(8, 2, name).turns(stage, 4)
    assert " ".join(f"{'FB'[back]}{number}.{chunk}" for number, chunk, back in turns) == COMPILED[name, stage]


@pytest.mark.parametrize("name", SCHEDULERS)
def test_with_one_model_chunk_all_are_1f1b(name: str) -> None:
    assert PipelineSchedule(9, 1, name).turns(1, 4) == PipelineSchedule(9).turns(1, 4)


def test_what_is_in_flight() -> None:
    def most(name: str) -> list[float]:
        return [sum(PipelineSchedule(8, 2, name).in_flight(stage, 4).runs) for stage in range(4)]

    assert most("1f1b") == most("seqpipe") == [11, 9, 7, 5]
    assert most("seqsmartvpp") == [10, 7, 6, 5]
    assert most("gpipe") == [16] * 4


@given(PIPELINES)
def test_every_micro_batch_passes_every_chunk_once_forward_and_then_backward(
    pipeline: tuple[str, int, int, int],
) -> None:
    name, stages, groups, chunks = pipeline
    for stage in range(stages):
        turns = PipelineSchedule(groups * stages, chunks, name).turns(stage, stages)
        place = {turn: number for number, turn in enumerate(turns)}
        assert len(place) == len(turns) == 2 * groups * stages * chunks
        assert all(place[turn._replace(is_backward=False)] < place[turn] for turn in turns if turn.is_backward)


@given(PIPELINES, st.integers(0, 9))
def test_fewer_micro_batches_stand_for_more(pipeline: tuple[str, int, int, int], further: int) -> None:
    name, stages, groups, chunks = pipeline
    schedule = PipelineSchedule((4 + groups) * stages + further % stages, chunks, name)
    for stage in range(stages):
        waiting = [0] * chunks
        most = 0
        for _, chunk, back in schedule.turns(stage, stages):
            waiting[chunk] += -1 if back else 1
            most = max(most, sum(waiting))
        assert sum(schedule.in_flight(stage, stages).runs) == most


def test_an_unknown_schedule_is_named() -> None:
    with pytest.raises(InputError, match="zb is not known: give one of 1f1b, gpipe, seqpipe, seqvpp, seqsmartvpp"):
        PipelineSchedule(8, 2, "zb")
