"""Stages of a pipeline, against every way to divide a short chain."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.search.folded.chain import Chain, Part
from ms_symtensor.search.stages.stage_layers import divide, laid_out, step_s

SECONDS = st.integers(1, 9).map(float)
BYTES = st.integers(0, 6).map(float)


@st.composite
def chains(draw, most_kinds=1):
    """An embedding, blocks of one or two kinds, and a head."""

    def part(is_block):
        kept = draw(BYTES)
        recomputation = draw(SECONDS) / 3 if is_block else 0.0
        return Part(
            draw(SECONDS),
            recomputation,
            kept,
            draw(st.integers(0, int(kept))) if is_block else kept,
            draw(BYTES),
            is_block,
        )

    kinds = [part(True) for _ in range(draw(st.integers(1, most_kinds)))]
    blocks = [block for block in kinds for _ in range(draw(st.integers(1, 4)))]
    return [part(False), *blocks, part(False)]


def pace_of(parts, flight, limit_B):
    """Seconds of one stage with as few blocks recomputed, first ones first, as fit; None if it does not fit."""
    blocks = [i for i, p in enumerate(parts) if p.is_block]
    for count in range(len(blocks) + 1):
        recomputation = set(blocks[:count])
        peak = sum(
            p.at_rest_B + flight * (p.kept_recomputed_B if i in recomputation else p.kept_B)
            for i, p in enumerate(parts)
        )
        if recomputation and count == len(
            blocks
        ):  # while one is computed again, it is there as a whole, what is behind no longer
            behind_B = 0.0 if parts[-1].is_block else parts[-1].kept_B
            peak += max(0.0, max(parts[i].kept_B - parts[i].kept_recomputed_B for i in blocks) - behind_B)
        if peak <= limit_B:
            return sum(p.each_s + (p.recompute_s if i in recomputation else 0.0) for i, p in enumerate(parts))
    return None


def best_pace(chain, stages, micro_batch_num, limit_B):
    found = []
    for ends in combinations(range(1, len(chain)), stages - 1):
        bounds = (0, *ends, len(chain))
        runs = [chain[a:b] for a, b in pairwise(bounds)]
        if all(any(p.is_block for p in run) for run in runs):
            paces = [
                pace_of(run, PipelineSchedule(micro_batch_num).in_flight(i, stages).mean, limit_B)
                for i, run in enumerate(runs)
            ]
            if None not in paces:
                found.append(max(paces))
    return min(found, default=None)


@settings(max_examples=300)
@given(chains(), st.integers(1, 3), st.integers(3, 6), st.integers(5, 80))
def test_no_other_division_has_a_smaller_pace(chain, stages, micro_batch_num, limit_B):
    best = best_pace(chain, stages, micro_batch_num, limit_B)
    found = divide(Chain(chain), stages, PipelineSchedule(micro_batch_num), limit_B)
    if best is None:
        assert found is None
        return
    assert found is not None
    assert max(s.each_s for s in found) == pytest.approx(best, rel=1e-5)
    assert sum(s.blocks for s in found) == sum(p.is_block for p in chain)
    assert max(s.peak_B for s in found) <= limit_B


@settings(max_examples=200)
@given(chains(2), st.integers(1, 3), st.integers(3, 6), st.integers(5, 80))
def test_of_two_kinds_of_blocks_what_is_found_fits_and_is_no_faster_than_can_be(
    chain, stages, micro_batch_num, limit_B
):
    """A stage of one block that is recomputed may be too large where it fits with a small one behind it: not all are tried."""
    found = divide(Chain(chain), stages, PipelineSchedule(micro_batch_num), limit_B)
    if found is not None:
        best = best_pace(chain, stages, micro_batch_num, limit_B)
        assert best is not None and max(s.each_s for s in found) >= best * (1 - 1e-9)
        assert max(s.peak_B for s in found) <= limit_B
        assert sum(s.blocks for s in found) == sum(p.is_block for p in chain)


@settings(max_examples=200)
@given(chains(), st.integers(1, 3), st.integers(3, 6), st.integers(5, 80), st.sampled_from((1, 2)))
def test_only_what_is_faster_than_a_cutoff_is_looked_for(chain, stages, micro_batch_num, limit_B, interleave):
    turns = PipelineSchedule(micro_batch_num, interleave if stages > 1 else 1)
    found = divide(Chain(chain), stages, turns, limit_B)
    if found is None:
        return
    step = step_s(found, turns)
    near = divide(Chain(chain), stages, turns, limit_B, cutoff_s=1.01 * step)
    assert near is not None and step_s(near, turns) == pytest.approx(step, rel=1e-5)
    assert divide(Chain(chain), stages, turns, limit_B, cutoff_s=0.5 * step) is None


def test_a_heavy_head_leaves_fewer_blocks_on_its_stage():
    block, head = Part(1.0, 0.3, 0.0, 0.0, 0.0), Part(3.0, 0.0, 0.0, 0.0, 0.0, is_block=False)
    embedding = Part(0.1, 0.0, 0.0, 0.0, 0.0, is_block=False)
    found = divide(Chain([embedding, *[block] * 13, head]), 4, PipelineSchedule(8), 1.0)
    assert [s.blocks for s in found] == [4, 4, 4, 1]


def test_early_stages_keep_more_micro_batches():
    assert [PipelineSchedule(8).in_flight(i, 4).mean for i in range(4)] == [4, 3, 2, 1]
    assert [PipelineSchedule(2).in_flight(i, 4).mean for i in range(4)] == [2, 2, 2, 1]


def test_a_slower_pace_pays_where_the_step_ends_sooner():
    """Of two stages the first sums the gradients of a large embedding: it takes fewer blocks than its pace asks for."""
    before, block, after = (
        Part(0.0, 0.0, 0, 0, 0, False, 50.0),
        Part(1.0, 0.0, 0, 0, 0, True, 10.0),
        Part(0.5, 0.0, 0, 0, 0, False),
    )
    parts = [before, *[block] * 5, after]
    assert [stage.blocks for stage in divide(Chain(parts), 2, PipelineSchedule(2), 1e9)] == [1, 4]
    assert [stage.blocks for stage in divide(Chain(parts), 2, PipelineSchedule(100), 1e9)] == [3, 2]


@settings(max_examples=200)
@given(chains(2), st.integers(1, 3), st.integers(2, 3), st.integers(5, 200))
def test_virtual_stages_are_priced_by_the_blocks_that_they_hold(few, times, interleave, limit_B):
    """Of two kinds that take turns, a stage of several model chunks may hold another number of each than a run of the chain."""
    before, *period, after = few
    chain, turns = Chain([before, *period * times, after]), PipelineSchedule(4, interleave)
    found = divide(chain, 2, turns, limit_B)
    if found is not None:
        layers, recomputed = [s.blocks for s in found], [s.recomputed for s in found]
        for one, same in zip(found, laid_out(chain, layers, recomputed, turns), strict=True):
            assert (one.each_s, one.peak_B) == pytest.approx((same.each_s, same.peak_B))
        assert max(s.peak_B for s in found) <= limit_B and sum(layers) == len(period) * times
        assert all(count >= interleave for count in layers)


def test_virtual_stages_hold_as_much_work_each():
    """Every fourth block takes three times as long; of equally many blocks one of two stages would hold all of these."""
    block, long = Part(1.0, 0.0, 0, 0, 0), Part(3.0, 0.0, 0, 0, 0)
    outside, turns = Part(0.0, 0.0, 0, 0, 0, is_block=False), PipelineSchedule(32, 4)
    chain = Chain([outside, *[block, block, block, long] * 4, outside])
    assert [stage.each_s for stage in laid_out(chain, [8, 8], [0, 0], turns)] == [8, 16]
    assert [stage.each_s for stage in divide(chain, 2, turns, 1e9)] == [12, 12]
