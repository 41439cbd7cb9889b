"""How samples lie on a mesh."""

import math

import pytest

from ms_symtensor.search.space.step_layouts import (
    MAX_TOKENS,
    Round,
    StepLayout,
    max_samples,
    step_layouts,
    step_layouts_of_batch,
)


@pytest.mark.parametrize(
    "mesh, batch, kind",
    (
        ((8, 4), 32, Round.WHOLE),
        ((8, 4), 8, Round.ONE),
        ((8, 4), 16, Round.SPLIT),
        ((4, 6), 12, Round.SPLIT),
        ((8, 4), 24, Round.PART),
        ((8, 4), 12, Round.PART),
        ((8, 4), 4, Round.PART),
        ((8, 4), 1, Round.FEW),
        ((8, 4, 2), 8, Round.ONE),
        ((8,), 12, Round.PART),
        ((8,), 16, Round.WHOLE),
    ),
)
def test_how_far_samples_go_round(mesh: tuple[int, ...], batch: int, kind: Round) -> None:
    assert StepLayout(1, 1, mesh, batch).round is kind


def test_micro_batches_of_short_sequences_have_more_samples():
    assert (max_samples(8192), max_samples(4096), max_samples(512), max_samples(1)) == (8, 8, 64, MAX_TOKENS)
    few, more = step_layouts(8, 1024, 24), step_layouts(8, 1024, 24, max_samples(512))
    assert [max(s.samples for s in every if s.accumulates) for every in (few, more)] == [8, 64]


def test_samples_that_are_fewer_than_devices_have_two_axes_of_their_own():
    found = [s for s in step_layouts(256, 64, 8) if len(s.mesh) == 3 or s.batch == 1 < len(s.mesh)]
    assert StepLayout(4, 32, (2, 4, 8), 2) in found and StepLayout(4, 32, (2, 8, 4), 2) in found
    assert StepLayout(4, 64, (8, 8), 1) in found
    assert all(s.stages * math.prod(s.mesh) == 256 and s.batch * s.micro_batch_num == 64 for s in found)
    assert all(math.prod(s.mesh) > 8 for s in found)  # on few devices the mesh is the finest
    assert {len(s.mesh) for s in step_layouts(64, 64, 8)} == {1, 2}


@pytest.mark.parametrize(
    "devices, meshes", ((8, {1: (2, 2, 2), 2: (2, 2), 4: (2,), 8: (1,)}), (64, {4: (8, 2), 8: (2, 2, 2)}))
)
def test_given_micro_batches_are_laid_out_on_the_meshes_of_one_stage(devices, meshes):
    found = step_layouts_of_batch(devices, 16, 32, 8)
    assert {s.micro_batch_num for s in found} == {16} and {s.batch for s in found} == {32}
    assert max(s.stages for s in found) == 8  # as many as there are blocks
    for stages, mesh in meshes.items():
        assert StepLayout(stages, 16, mesh, 32) in found
    assert {s.stages for s in step_layouts_of_batch(devices, 2, 32, 8)} == {1, 2}
