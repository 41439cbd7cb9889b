from dataclasses import replace

import numpy as np
import pytest
from estimate import CLUSTER, cases, estimate

from ms_symtensor.cost.configuration import Configuration, Transformer
from ms_symtensor.validation.calibrate import leave_one_group_out
from ms_symtensor.validation.shapes import FARTHEST, REPEAT, SPREAD, deviations, shape_of

MODEL = Transformer(1024, 8, 16, 16, 4096, 32000)
STEP = Configuration(MODEL, 1024, data_parallel=2, model_parallel=2, micro_batch_num=4)
DEEPER = replace(STEP, model=replace(MODEL, num_layers=16), data_parallel=1, pipeline_stages=4, micro_batch_num=32)
LARGER = replace(STEP, micro_batch_size=2)


def test_shapes_do_not_depend_on_depth_and_copies() -> None:
    assert shape_of(STEP) == shape_of(DEEPER)
    assert (
        len({shape_of(c) for c in (STEP, LARGER, replace(STEP, model_parallel=4), replace(STEP, seq_length=512))}) == 4
    )


def test_a_step_tells_about_its_shapes_alone() -> None:
    found = deviations([STEP], np.array([1.0]), np.array([1.2])).factors([DEEPER, LARGER])
    assert found[0] == pytest.approx(1.2 ** (SPREAD**2 / (SPREAD**2 + REPEAT**2)))
    assert found[1] == 1.0


def test_more_steps_are_believed_more_and_a_disturbed_one_not_at_all() -> None:
    once, often = (deviations([STEP] * n, np.ones(n), np.full(n, 1.2)).factors([STEP])[0] for n in (1, 10))
    assert once < often < 1.2
    disturbed = np.array([1.2, 1.1 * np.exp(FARTHEST)])
    assert deviations([STEP] * 2, np.ones(2), disturbed).factors([STEP])[0] == once


def test_groups_learn_from_the_shapes_of_others() -> None:
    # Every second micro-batch size takes a fifth longer than any constant can say.
    measured = [
        replace(c, measured=replace(c.measured, step_time_s=c.measured.step_time_s * (1.2 if shape % 2 else 1.0)))
        for c in cases(CLUSTER)
        for shape in [c.configuration.micro_batch_size.bit_length()]
    ]
    found, _ = leave_one_group_out(measured, CLUSTER, estimate, steps=16, seed=0)
    plain = estimate([c.configuration for c in measured], CLUSTER).step_time_s
    truth = np.array([c.measured.step_time_s for c in measured])
    assert np.mean(np.abs(found.step_time_s / truth - 1)) < 0.6 * np.mean(np.abs(plain / truth - 1))
