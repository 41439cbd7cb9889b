from dataclasses import replace

import numpy as np
import pytest
from estimate import CLUSTER, MODEL, cases, configurations, estimate

from ms_symtensor.validation.configuration import Configuration
from ms_symtensor.validation.dataset import Case, Dataset, Exclusion, Measurement, Pair
from ms_symtensor.validation.evaluate import of_cluster, outcome, pair_outcome
from ms_symtensor.validation.score import score


def dataset(found: list[Case], pairs: tuple[Pair, ...] = ()) -> Dataset:
    return Dataset("test", len(found) + len(pairs), tuple(found), pairs, ())


def scored(data: Dataset):
    return score(data, outcome(data.cases, CLUSTER, estimate), pair_outcome(data, CLUSTER, estimate))


def test_what_is_measured_as_predicted_is_perfect() -> None:
    found = scored(dataset(cases(CLUSTER)))
    assert found.total.mape == pytest.approx(0)
    assert found.total.spearman_mean == pytest.approx(1) and found.total.spearman_overall == pytest.approx(1)
    assert (found.total.regret_mean, found.total.regret_max) == (0, 0)
    assert found.total.pairs_correct == found.total.pairs_total > 0
    assert [group.rows for group in found.groups] == [6] * 4
    assert found.parts == ()


def test_means_are_over_groups_and_errors_over_rows() -> None:
    measured = cases(CLUSTER)
    doubled = [
        replace(c, measured=replace(c.measured, step_time_s=2 * c.measured.step_time_s)) if c.group == "group 0" else c
        for c in measured
    ]
    found = scored(dataset(doubled))
    assert found.total.mape == pytest.approx(0.5 * 6 / 24)
    assert found.total.spearman_mean == pytest.approx(1)
    assert {g.name: g.mape for g in found.groups}["group 0"] == pytest.approx(0.5)


def test_regret_is_among_the_rows_that_are_told_to_fit() -> None:
    data = dataset([c for c in cases(CLUSTER) if c.group == "group 0"])
    found = outcome(data.cases, CLUSTER, estimate)
    slow = replace(data.cases[int(np.argmin(found.step_time_s))].measured, step_time_s=1e6)
    fastest = int(np.argmin(found.step_time_s))
    told = replace(
        data, cases=tuple(replace(c, measured=slow) if i == fastest else c for i, c in enumerate(data.cases))
    )
    pairs = pair_outcome(data, CLUSTER, estimate)
    assert (score(told, found, pairs).total.regret_mean or 0) > 1
    fits = found.fits.copy()
    fits[fastest] = False
    assert score(told, replace(found, fits=fits), pairs).total.regret_mean == 0


def test_parts_have_totals_of_their_own() -> None:
    first = [replace(c, part="first") for c in cases(CLUSTER)]
    second = [replace(c, part="second", group=f"2 {c.group}") for c in cases(CLUSTER, factor=2)]
    found = scored(dataset([*first, *second]))
    assert [(part.name, part.rows) for part in found.parts] == [("first", 24), ("second", 24)]
    assert found.parts[0].mape == pytest.approx(0) and found.parts[1].mape == pytest.approx(0.5)


def test_memory_is_that_of_the_measured_stage() -> None:
    spread = configurations(1)[0]
    memory = float(max(estimate(spread, CLUSTER).stage_memory_B))
    whole = Case(2, "a", spread, Measurement(peak_memory_B=memory))
    second = Case(3, "a", spread, Measurement(peak_memory_B=memory / 2, stage=1))
    assert scored(dataset([whole, second])).total.memory_mape == pytest.approx(0)


def test_rows_that_failed_are_told_apart_from_those_that_fit() -> None:
    huge = Configuration(replace(MODEL, hidden_size=32768, num_layers=16), 1024)
    found = scored(dataset([Case(2, "a", huge, Measurement(fits=False)), *cases(CLUSTER)]))
    assert found.total.fits.fail_as_predicted == 1 and found.total.fits.accuracy == 1
    wrong = scored(dataset([Case(2, "a", configurations(1)[0], Measurement(fits=False))]))
    assert wrong.total.fits.fail_but_predicted_to_fit == 1 and wrong.total.fits.accuracy == 0


def test_utilisation_counts_where_nothing_else_was_measured() -> None:
    spread = configurations(1)[0]
    mfu = estimate(spread, CLUSTER).mfu
    found = scored(
        dataset([Case(2, "a", spread, Measurement(mfu=mfu + 0.02)), Case(3, "a", spread, Measurement(1.0, mfu=9.0))])
    )
    assert found.total.mfu_error == pytest.approx(0.02)


def test_pairs_compare_tokens_per_second_and_device() -> None:
    plain = Configuration(MODEL, 1024, 8, micro_batch_num=1)
    more_work = replace(plain, micro_batch_num=64)  # a longer step, but more tokens per second
    huge = Configuration(replace(MODEL, hidden_size=32768, num_layers=16), 1024)
    pairs = (
        Pair(2, "A", more_work, replace(plain, model_parallel=8, data_parallel=1)),
        Pair(3, "A", replace(plain, model_parallel=8, data_parallel=1), more_work),
        Pair(4, "B", plain, huge, by_memory=True),
        Pair(5, "B", plain, plain, by_memory=True),
    )
    found = scored(dataset([], pairs))
    assert [(g.name, g.pairs_correct, g.pairs_total) for g in found.groups] == [
        ("confidence A", 1, 2),
        ("confidence B", 1, 2),
    ]
    assert (found.total.rows, found.total.pairs_correct, found.total.pairs_total) == (4, 2, 4)
    assert found.total.mape is None and found.total.spearman_overall is None


def test_cases_of_another_cluster_are_left_out() -> None:
    here, there = (replace(c, device=d) for c, d in zip(cases(CLUSTER)[:2], ("a100_80g", "h100_80g")))
    data = replace(dataset([here, there]), excluded=(Exclusion(1, "x"), Exclusion(9, "y")))
    found = of_cluster(data, CLUSTER)
    assert found.cases == (here,)
    assert [e.line for e in found.excluded] == [1, 3, 9]
    assert found.excluded[1].reason == "measured on h100_80g"
    assert of_cluster(data, replace(CLUSTER, name="a100_80g_calibrated")).cases == (here,)
    assert len(of_cluster(data, replace(CLUSTER, name="mine")).cases) == 2


def test_no_rows() -> None:
    empty = outcome([], CLUSTER, estimate)
    assert empty.step_time_s.shape == (0,) and np.asarray(empty.fits).dtype == bool


def test_memory_of_the_first_step_is_compared_with_that_of_the_first_step():
    spread = configurations(1)[0]
    memory = float(max(estimate(spread, CLUSTER).stage_memory_B))
    case = Case(2, "a", spread, Measurement(peak_memory_B=0.75 * memory, first_step=True))
    assert outcome([case], CLUSTER, estimate).memory_B[0] == pytest.approx(0.75 * memory)
