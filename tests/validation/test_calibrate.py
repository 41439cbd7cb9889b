from dataclasses import replace

import numpy as np
import pytest
from estimate import CLUSTER, RANGES, cases, configurations, estimate, times

from ms_symtensor.cluster.topology import Cluster, Source
from ms_symtensor.errors import InputError
from ms_symtensor.validation.calibrate import fit, leave_one_group_out
from ms_symtensor.validation.configuration import Configuration
from ms_symtensor.validation.constants import constants_of, with_constants
from ms_symtensor.validation.dataset import Measurement
from ms_symtensor.validation.pricing import Predicted

OTHER = {"device.cube_efficiency": 0.78, "device.op_overhead_s": 6e-6, "levels[0].efficiency": 0.72}


def test_constants_are_those_with_a_range() -> None:
    found = {c.place: c for c in constants_of(CLUSTER)}
    assert set(found) == set(RANGES)
    assert all(c.low <= c.value <= c.high and c.deviation > 0 for c in found.values())
    assert "device.cube_peak_FLOPs" not in found and "device.hbm_usable_B" not in found


def test_changing_constants() -> None:
    changed = with_constants(CLUSTER, OTHER)
    assert changed.device.cube_efficiency == 0.78
    assert changed.levels[0].efficiency == 0.72
    assert changed.levels[1] == CLUSTER.levels[1]
    assert with_constants(changed, {p: c.value for c in constants_of(CLUSTER) for p in [c.place]}) == CLUSTER


def test_a_fit_finds_what_made_the_measurements() -> None:
    found = fit(cases(with_constants(CLUSTER, OTHER)), CLUSTER, estimate)
    assert found.mape_before > 0.1
    assert found.mape_after < 0.02  # what is known of the constants pulls a little
    values = {c.place: v for c, v in zip(found.constants, found.values)}
    assert values["device.cube_efficiency"] == pytest.approx(0.78, rel=0.03)
    assert values["device.op_overhead_s"] == pytest.approx(6e-6, rel=0.1)


def test_what_the_measurements_do_not_show_stays_as_it_was() -> None:
    found = fit(cases(with_constants(CLUSTER, OTHER)), CLUSTER, estimate)
    values = {c.place: (c.value, v) for c, v in zip(found.constants, found.values)}
    for place in ("levels[1].efficiency", "device.pipeline_depth"):  # the estimate does not read them
        before, after = values[place]
        assert after == pytest.approx(before, rel=1e-6)


def test_one_row_that_is_far_off_moves_little() -> None:
    right = cases(CLUSTER)
    wrong = replace(right[5], measured=Measurement(step_time_s=20 * (right[5].measured.step_time_s or 0)))
    found = fit([*right[:5], wrong, *right[6:]], CLUSTER, estimate)
    found_s = times(configurations(), found.cluster)
    truth = np.array([case.measured.step_time_s for case in right])
    assert np.abs(found_s / truth - 1).max() < 0.1


def test_constants_stay_within_their_ranges() -> None:
    found = fit(cases(CLUSTER, factor=10.0), CLUSTER, estimate)
    for constant, value in zip(found.constants, found.values):
        assert constant.low * 0.999 <= value <= constant.high * 1.001


def test_a_fit_that_gains_nothing_for_other_steps_is_left() -> None:
    noisy = [
        replace(case, measured=Measurement(step_time_s=(case.measured.step_time_s or 0) * (0.97, 1.03)[index % 2]))
        for index, case in enumerate(cases(CLUSTER))
    ]
    kept = fit(noisy, CLUSTER, estimate)
    assert not kept.gains and kept.cluster == CLUSTER and kept.mape_after == kept.mape_before
    assert fit(cases(with_constants(CLUSTER, OTHER)), CLUSTER, estimate).gains


@pytest.mark.parametrize("factor", [1.0, 1.0 / 0.87])
def test_few_steps_scale_a_data_sheet_that_all_of_them_contradict(factor: float) -> None:
    """Eight steps that scatter by 10 % show an error of 15 % that they share, and no constant that is wrong by itself."""
    sheet = with_constants(
        replace(CLUSTER, sources=(*CLUSTER.sources, ("device.step_efficiency", Source("test", 0.65, 1.0)))),
        {"device.step_efficiency": 0.85},
    )

    def kept(one: Configuration, cluster: Cluster) -> Predicted:
        found = estimate(one, cluster)
        return replace(found, step_time_s=found.step_time_s * 0.85 / cluster.device.step_efficiency)

    rows = [
        replace(case, measured=Measurement(step_time_s=(case.measured.step_time_s or 0) * (0.9, 1.1)[index % 2]))
        for index, case in enumerate(cases(CLUSTER, factor=factor)[:8])
    ]
    found = fit(rows, sheet, kept)
    assert found.gains == (factor > 1.0)
    assert found.cluster.device.step_efficiency == pytest.approx(0.85 / factor, rel=0.05)


def test_nothing_to_fit() -> None:
    with pytest.raises(InputError, match="no row with a step time"):
        fit([replace(cases(CLUSTER)[0], measured=Measurement(fits=False))], CLUSTER, estimate)
    with pytest.raises(InputError, match="no number has a range"):
        fit(cases(CLUSTER), replace(CLUSTER, sources=()), estimate)


def test_a_group_is_predicted_without_its_own_rows() -> None:
    measured = cases(CLUSTER)
    own = [replace(c, measured=replace(c.measured, step_time_s=99.0)) if c.group == "group 1" else c for c in measured]
    found, _ = leave_one_group_out(own, CLUSTER, predictor=estimate, steps=6, seed=3)
    plain = times(configurations(), CLUSTER)
    mine = [i for i, c in enumerate(own) if c.group == "group 1"]
    assert np.allclose(found.step_time_s[mine], plain[mine], rtol=1e-6)


def test_the_draw_depends_on_the_seed_alone() -> None:
    measured = cases(with_constants(CLUSTER, OTHER))
    first, fits = leave_one_group_out(measured, CLUSTER, predictor=estimate, steps=12, seed=1)
    recomputation, _ = leave_one_group_out(measured, CLUSTER, predictor=estimate, steps=12, seed=1)
    other, _ = leave_one_group_out(measured, CLUSTER, predictor=estimate, steps=12, seed=2)
    assert np.array_equal(first.step_time_s, recomputation.step_time_s)
    assert not np.array_equal(first.step_time_s, other.step_time_s)
    assert 1 <= len(fits) <= 4 and all(len(chosen) == 12 for chosen in fits)


def test_a_single_group_leaves_nothing_to_calibrate_on() -> None:
    with pytest.raises(InputError, match="one timed group only"):
        leave_one_group_out(cases(CLUSTER, groups=1), CLUSTER, predictor=estimate, steps=4, seed=0)


def test_steps_come_from_the_same_part() -> None:
    slow = [replace(c, part="slow") for c in cases(CLUSTER, factor=1.2)]
    fast = [replace(c, part="fast", group=f"fast {c.group}") for c in cases(CLUSTER)]
    found, _ = leave_one_group_out([*slow, *fast], CLUSTER, predictor=estimate, steps=8, seed=0)
    plain = times(configurations(), CLUSTER)
    assert np.allclose(found.step_time_s[len(slow) :], plain, rtol=1e-6)
    assert np.all(found.step_time_s[: len(slow)] > 1.05 * plain)
