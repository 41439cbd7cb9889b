"""How far predictions are from measurements, and what it would cost to believe them.

All arrays are one-dimensional with one entry per configuration; times are above 0, lower is better.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Numbers = NDArray[np.float64]
LEAST_FOR_RANKS = 3  # two configurations correlate perfectly or not at all


def mape(predicted: Numbers, measured: Numbers) -> float | None:
    """Mean absolute percentage error as a fraction of the measured; None of nothing."""
    return float(np.mean(np.abs(predicted / measured - 1.0))) if len(measured) else None


def median_error(predicted: Numbers, measured: Numbers) -> float | None:
    """Median absolute percentage error as a fraction of the measured; None of nothing."""
    return float(np.median(np.abs(predicted / measured - 1.0))) if len(measured) else None


def geometric_ratio(predicted: Numbers, measured: Numbers) -> float | None:
    """Geometric mean of predicted over measured: 1 is unbiased; None of nothing."""
    return float(np.exp(np.mean(np.log(predicted / measured)))) if len(measured) else None


def spearman(predicted: Numbers, measured: Numbers) -> float | None:
    """Spearman's rank correlation; None for fewer than three configurations or if all were measured alike.

    Predictions that are all alike rank nothing: 0.
    """
    if len(measured) < LEAST_FOR_RANKS or np.ptp(measured) == 0:
        return None
    return float(stats.spearmanr(predicted, measured).statistic) if np.ptp(predicted) > 0 else 0.0


def kendall(predicted: Numbers, measured: Numbers) -> float | None:
    """Kendall's tau-b, under the conditions of `spearman`."""
    if len(measured) < LEAST_FOR_RANKS or np.ptp(measured) == 0:
        return None
    return float(stats.kendalltau(predicted, measured).statistic) if np.ptp(predicted) > 0 else 0.0


def top1_regret(predicted: Numbers, measured: Numbers) -> float | None:
    """How much slower the configuration is that is predicted to be fastest than the one that is: 0.1 is 10 %.

    Of several that are predicted to be equally fast, the slowest counts. None for fewer than two.
    """
    if len(measured) < 2:
        return None
    picked = measured[predicted == predicted.min()].max()
    return float(picked / measured.min() - 1.0)


def ordered_pairs(predicted: Numbers, measured: Numbers) -> tuple[int, int]:
    """Of all pairs that were measured to differ: how many are predicted in that order, and how many there are."""
    first, second = np.triu_indices(len(measured), k=1)
    truth = np.sign(measured[first] - measured[second])
    guess = np.sign(predicted[first] - predicted[second])
    differ = truth != 0
    return int(np.sum(guess[differ] == truth[differ])), int(np.sum(differ))


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that are known; None of nothing."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


class Times(ABC):
    """What is predicted and what is measured of rows, an array each, and the metrics of these."""

    @property
    @abstractmethod
    def times(self) -> tuple[Numbers, Numbers]:
        """In that order."""

    @property
    def mape(self) -> float | None:
        return mape(*self.times)

    @property
    def median_error(self) -> float | None:
        return median_error(*self.times)

    @property
    def geometric_ratio(self) -> float | None:
        return geometric_ratio(*self.times)

    @property
    def spearman(self) -> float | None:
        return spearman(*self.times)

    @property
    def kendall(self) -> float | None:
        return kendall(*self.times)


@dataclass(frozen=True)
class Fits:
    """Configurations by whether they were predicted to fit into memory and whether they did."""

    fit_as_predicted: int = 0
    fail_but_predicted_to_fit: int = 0
    fit_but_predicted_to_fail: int = 0
    fail_as_predicted: int = 0

    @property
    def some_fail(self) -> bool:
        """Whether any configuration failed: without one, there is nothing to tell apart."""
        return self.fail_as_predicted + self.fail_but_predicted_to_fit > 0

    @property
    def accuracy(self) -> float | None:
        """The share that was told rightly."""
        right = self.fit_as_predicted + self.fail_as_predicted
        return _share(right, right + self.fail_but_predicted_to_fit + self.fit_but_predicted_to_fail)

    @property
    def precision(self) -> float | None:
        """Of those predicted to fit, the share that does."""
        return _share(self.fit_as_predicted, self.fit_as_predicted + self.fail_but_predicted_to_fit)

    @property
    def recall(self) -> float | None:
        """Of those that fit, the share that was predicted to."""
        return _share(self.fit_as_predicted, self.fit_as_predicted + self.fit_but_predicted_to_fail)


def told_fits(predicted: NDArray[np.bool_], measured: NDArray[np.bool_]) -> Fits:
    """The four counts of two arrays that say of each configuration whether it fits."""
    return Fits(
        int(np.sum(predicted & measured)),
        int(np.sum(predicted & ~measured)),
        int(np.sum(~predicted & measured)),
        int(np.sum(~predicted & ~measured)),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
