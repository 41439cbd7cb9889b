import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ms_symtensor.validation.metrics import Fits, kendall, mape, ordered_pairs, spearman, told_fits, top1_regret

times = st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=12).map(np.array)


def two(least: int = 3):
    """Predictions and measurements of the same configurations."""
    return st.integers(least, 12).flatmap(
        lambda n: st.tuples(*(st.lists(st.floats(1e-3, 1e3), min_size=n, max_size=n).map(np.array),) * 2)
    )


@given(times)
def test_perfect_predictions(measured) -> None:
    assert mape(measured, measured) == 0
    assert top1_regret(measured, measured) == 0
    correct, total = ordered_pairs(measured, measured)
    assert correct == total
    if np.ptp(measured) > 0:
        assert spearman(measured, measured) == pytest.approx(1)
        assert kendall(measured, measured) == pytest.approx(1)
    else:
        assert spearman(measured, measured) is None


@given(two(), st.floats(0.5, 2))
def test_ranks_do_not_see_a_factor_but_the_error_does(both, factor) -> None:
    predicted, measured = both
    scaled = 2.0 ** round(np.log2(factor) * 4) * predicted  # a power of two, so that no ties appear
    assert ordered_pairs(predicted, measured) == ordered_pairs(scaled, measured)
    assert top1_regret(predicted, measured) == top1_regret(scaled, measured)
    assert mape(3 * measured, measured) == pytest.approx(2)


@given(two())
def test_reversed_predictions_reverse_the_ranks(both) -> None:
    predicted, measured = both
    rho, tau = spearman(predicted, measured), kendall(predicted, measured)
    if rho is None or np.ptp(predicted) == 0:
        return
    assert spearman(-predicted, measured) == pytest.approx(-rho)
    assert kendall(-predicted, measured) == pytest.approx(-tau)


@given(two(2))
def test_regret_is_that_of_the_predicted_best_and_never_negative(both) -> None:
    predicted, measured = both
    regret = top1_regret(predicted, measured)
    assert regret >= 0
    assert regret <= measured.max() / measured.min() - 1 + 1e-12
    assert (1 + regret) * measured.min() == pytest.approx(measured[predicted == predicted.min()].max())


@given(two())
def test_pairs_by_counting(both) -> None:
    predicted, measured = both
    pairs = [(i, j) for i, j in itertools.combinations(range(len(measured)), 2) if measured[i] != measured[j]]
    right = sum(
        (predicted[i] < predicted[j]) == (measured[i] < measured[j]) and predicted[i] != predicted[j] for i, j in pairs
    )
    assert ordered_pairs(predicted, measured) == (right, len(pairs))


@given(st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=12, unique=True).map(np.array), st.randoms())
def test_kendall_counts_pairs_where_nothing_ties(measured, random) -> None:
    predicted = np.array(random.sample(list(measured), len(measured)))
    correct, total = ordered_pairs(predicted, measured)
    assert kendall(predicted, measured) == pytest.approx(2 * correct / total - 1)


def test_by_hand() -> None:
    measured, predicted = np.array([1.0, 2.0, 4.0]), np.array([1.5, 1.0, 4.0])
    assert mape(predicted, measured) == pytest.approx((0.5 + 0.5 + 0) / 3)
    assert top1_regret(predicted, measured) == pytest.approx(1.0)
    assert ordered_pairs(predicted, measured) == (2, 3)
    assert spearman(predicted, measured) == pytest.approx(stats.pearsonr([2, 1, 3], [1, 2, 3]).statistic)


def test_equal_predictions_rank_nothing_and_may_pick_the_worst() -> None:
    measured, same = np.array([1.0, 2.0, 3.0]), np.ones(3)
    assert spearman(same, measured) == 0
    assert kendall(same, measured) == 0
    assert top1_regret(same, measured) == pytest.approx(2)
    assert ordered_pairs(same, measured) == (0, 3)


def test_too_few_say_nothing() -> None:
    none, one = np.array([]), np.array([1.0])
    assert mape(none, none) is None
    assert spearman(np.array([1.0, 2.0]), np.array([1.0, 2.0])) is None
    assert top1_regret(one, one) is None
    assert ordered_pairs(one, one) == (0, 0)
    assert Fits().accuracy is None
    assert Fits().precision is None
    assert Fits().recall is None


answers = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30)


@given(answers)
def test_fits_by_counting(both) -> None:
    predicted, measured = (np.array(side) for side in zip(*both))
    fits = told_fits(predicted, measured)
    assert fits.accuracy == pytest.approx(np.mean(predicted == measured))
    assert fits.some_fail == (not measured.all())
    if predicted.any():
        assert fits.precision == pytest.approx(np.mean(measured[predicted]))
    if measured.any():
        assert fits.recall == pytest.approx(np.mean(predicted[measured]))
