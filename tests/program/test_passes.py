"""In which order a stage takes micro-batches, as read off MindSpore's programs (tests/bridge/judge/test_interleaved_peaks.py)."""

from hypothesis import example, given
from hypothesis import strategies as st

from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.program.schedules.one_f_one_b import GROUPS, warm_up


def passes(stage, stages, micro_batch_num, interleave=1):
    return PipelineSchedule(micro_batch_num, interleave).passes(stage, stages)


def in_flight(stage, stages, micro_batch_num, interleave=1):
    return PipelineSchedule(micro_batch_num, interleave).in_flight(stage, stages)


def most(stage, stages, micro_batch_num, interleave):
    """The most model chunks that wait or pass at once."""
    return max(1 + sum(one.waiting) for one in passes(stage, stages, micro_batch_num, interleave))


def test_one_run_per_stage_takes_turns():
    every = passes(1, 4, 8)
    assert {(one.is_backward, one.waiting) for one in every if not one.is_late} == {(False, (2,)), (True, (2,))}
    assert all(one.waiting == (2,) for one in every if one.is_late and one.is_backward)
    assert {one.waiting for one in passes(0, 1, 8)} == {(0,)}  # gradients that accumulate on one stage: nobody waits


def test_the_first_run_of_a_stage_waits_the_longest():
    # The order of MindSpore 2.10.0 on the third of 4 stages with 2 runs: F0.0 … F0.3 F1.0 F1.1 F1.2 B1.0 F1.3 B1.1 F0.4 …
    backward = {one.waiting for one in passes(2, 4, 8, 2) if one.is_backward and one.run == 1}
    assert backward == {(4, 2), (5, 1), (6, 0)}
    forward = {one.waiting for one in passes(2, 4, 8, 2) if not one.is_backward and one.run == 0}
    assert forward == {(4, 2), (5, 1), (6, 0)}


def test_interleaved_stages_keep_more():
    assert [in_flight(i, 4, 8, 2).mean for i in range(4)] == [5.5, 4.5, 3.5, 2.5]
    assert [in_flight(i, 4, 8, 2).runs for i in range(4)] == [(7, 4), (5, 4), (4, 3), (4, 1)]
    assert [in_flight(i, 4, 8).runs for i in range(4)] == [(4,), (3,), (2,), (1,)]
    assert in_flight(0, 8, 64, 4).runs == (15, 8, 8, 8)


@given(st.integers(1, 3), st.integers(1, 4), st.integers(4, 12))
def test_of_unequal_runs_as_many_wait_as_in_their_blocks(stage, interleave, blocks):
    found = in_flight(stage, 4, 8, interleave)
    assert abs(found.with_blocks(blocks).mean * blocks - sum(found.of_blocks(blocks))) < 1e-9


STEPS = st.integers(1, 8).flatmap(
    lambda stages: st.tuples(st.integers(0, stages - 1), st.just(stages), st.integers(1, 6), st.integers(1, 4))
)


@given(STEPS)
def test_as_many_are_in_flight_as_are_taken_before_the_first_goes_back(step):
    stage, stages, groups, interleave = step
    assert most(stage, stages, groups * stages, interleave) == warm_up(stage, stages, groups * stages, interleave)


@given(STEPS)
def test_further_groups_of_micro_batches_see_what_others_see(step):
    stage, stages, groups, interleave = step
    assert passes(stage, stages, (GROUPS + groups) * stages, interleave) == passes(
        stage, stages, GROUPS * stages, interleave
    )


@given(STEPS, st.integers(0, 7))
def test_any_number_of_micro_batches_takes_turns(step, further):
    stage, stages, groups, interleave = step
    every = passes(stage, stages, groups * stages + further % stages, interleave)
    assert {one.is_backward for one in every} == {False, True} and {one.run for one in every} == set(range(interleave))
    assert all(n >= 0 for one in every for n in one.waiting)


@given(STEPS, st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_nothing_needs_more_than_the_end_of_the_warm_up_where_first_runs_keep_less(step, kept):
    stage, stages, groups, interleave = step
    if stages == 1:
        interleave = 1
    found, kept_B = in_flight(stage, stages, groups * stages, interleave), sorted(kept[:interleave])
    every = [
        tuple(n + (run == one.run) for run, n in enumerate(one.waiting))
        for one in passes(stage, stages, groups * stages, interleave)
    ]
    assert found.runs in every and found.mean * interleave == sum(found.runs)
    assert max(sum(map(int.__mul__, one, kept_B)) for one in every) == sum(map(int.__mul__, found.runs, kept_B))


@example((0, 2, 1, 3), 1.0)
@given(STEPS, st.floats(0, 1))
def test_what_first_blocks_do_not_keep_saves_as_much_as_is_missing(step, share):
    stage, stages, groups, interleave = step
    found = in_flight(stage, stages, groups * stages, interleave if stages > 1 else 1)
    missing_B = share * found.mean
    assert abs(found.saved_B(found.to_keep_less_B(missing_B, 1.0), 1.0) - missing_B) <= 1e-9 * found.mean
