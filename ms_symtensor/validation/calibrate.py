"""Constants of a cluster from measured steps: robust least squares towards what was known before.

With x_j = log(theta_j / theta0_j) / deviation_j, how far constant j is from its value in the cluster file in units of its
own uncertainty, and r_i = log(predicted_i / measured_i) / NOISE, what is minimised is

    sum_i soft_l1(r_i) + sum_j x_j**2

within the range that the cluster file states for each. It is the negative logarithm of the posterior: measurements far off
(another software, a disturbed run) count linearly, and a few rows move no constant further than they must.

First a single factor f for all that a step keeps of the data sheet (SHARES), where the rows say that the sheet is wrong: where
the mean of log(predicted / measured) is further from 0 than SURE of its standard errors. Then all constants by themselves, if
that explains steps that it was not fitted to better: leaving out one row after the other (without row i its residual is
r_i / (1 - h_i), with h the diagonal of the hat matrix; Allen 1974), the mean error has to fall by more than SURE of its standard
errors; by more than one where the sheet is known to be wrong. Else the cluster stays as it is.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeVar

import numpy as np
from scipy.optimize import least_squares

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InputError
from ms_symtensor.validation.constants import Constant, constants_of, with_constants
from ms_symtensor.validation.dataset import Case
from ms_symtensor.validation.evaluate import Numbers, Outcome, Predictor, outcome
from ms_symtensor.validation.metrics import mape
from ms_symtensor.validation.pricing import predict

_One = TypeVar("_One")
NOISE = 0.07  # empirical: the relative error that formulas of this kind keep (docs/results: medians of 0.06 to 0.10)
ENOUGH = 1e-2  # relative change of the sum, or of the constants, at which the solver stops: below what the rows know
EDGE = 1e-6  # a constant may start at an end of its range, where the solver wants room

SURE = 2.0
"""Standard errors: further away than these is one mean of twenty by chance."""
LEAST_ROWS = 5
"""Of fewer steps the spread is not known (empirical): their fit is taken, and no common factor is looked for."""
SHARES = ("device.step_efficiency", "device.attention_efficiency", "device.hbm_efficiency")
"""What a step keeps of the peak of the cube and of the memory's bandwidth."""


@dataclass(frozen=True)
class Fit:
    """A calibrated cluster: `constants` before, `values` after; mean absolute percentage errors on the rows it is fitted to.

    `gains`: whether the fit explains steps that it leaves out better; if not, `cluster` and `values` are as before.
    """

    cluster: Cluster
    constants: tuple[Constant, ...]
    values: tuple[float, ...]
    rows: int
    mape_before: float
    mape_after: float
    gains: bool = True


def fit(cases: Sequence[Case], cluster: Cluster, predictor: Predictor = predict) -> Fit:
    """The constants of `cluster` that explain the timed ones of `cases` best.

    Errors: InputError if none is timed, or if no constant of the cluster is uncertain.
    """
    timed = [case for case in cases if case.measured.step_time_s is not None]
    constants = constants_of(cluster)
    if not timed:
        raise InputError("there is no row with a step time to calibrate on")
    if not constants:
        raise InputError(f"cluster {cluster.name}: no number has a range, so there is nothing to calibrate")
    measured = np.array([case.measured.step_time_s for case in timed], dtype=float)

    def times(changed: Cluster) -> Numbers:
        return outcome(timed, changed, predictor).step_time_s

    scaled = _scaled(cluster, constants, times, measured)
    found, values = explaining(scaled, constants_of(scaled), times, measured, 1.0 if scaled != cluster else SURE)
    before, after = mape(times(cluster), measured), mape(times(found), measured)
    return Fit(found, constants, values, len(timed), before or 0.0, after or 0.0, found != cluster)


def _scaled(
    cluster: Cluster, constants: Sequence[Constant], times: Callable[[Cluster], Numbers], measured: Numbers
) -> Cluster:
    """`cluster` with what a step keeps of its data sheet times one factor, as far as the ranges allow; as it is where its errors
    have no sign that all share, or where it states no ranges for these.
    """
    shares = [constant for constant in constants if constant.place in SHARES]
    errors = np.log(times(cluster) / measured)
    if not shares or len(measured) < LEAST_ROWS or not _is_sure(errors):
        return cluster
    deviation = min(one.deviation for one in shares)
    lowest, highest = min(one.low / one.value for one in shares), max(one.high / one.value for one in shares)

    def changed(x: Numbers) -> Cluster:
        factor = float(np.exp(x[0] * deviation))
        return with_constants(cluster, {one.place: min(max(factor * one.value, one.low), one.high) for one in shares})

    def residuals(x: Numbers) -> Numbers:
        return np.concatenate([_soft(np.log(times(changed(x)) / measured) / NOISE), x])

    bounds = (np.log(lowest) / deviation - EDGE, np.log(highest) / deviation + EDGE)
    found = least_squares(residuals, [0.0], bounds=bounds, diff_step=1e-2, ftol=ENOUGH, xtol=ENOUGH)
    return changed(found.x)


def _is_sure(values: Numbers) -> bool:
    """Whether the mean of `values` is further from 0 than its errors explain."""
    return bool(abs(values.mean()) > SURE * _error_of_mean(values))


def _error_of_mean(values: Numbers) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def explaining(
    cluster: Cluster,
    constants: Sequence[Constant],
    times: Callable[[Cluster], Numbers],
    measured: Numbers,
    errors: float = 0.0,
) -> tuple[Cluster, tuple[float, ...]]:
    """`cluster` with the values of `constants` with which its `times` explain what was `measured` best; and these values.

    `errors`: as it was where rows that are left out do not gain so many standard errors by it.
    """
    start = np.array([c.value for c in constants])
    deviation = np.array([c.deviation for c in constants])
    lowest, highest = (
        np.log(np.array([getattr(c, end) for c in constants]) / start) / deviation for end in ("low", "high")
    )

    def values(x: Numbers) -> Numbers:
        return np.asarray(start * np.exp(x * deviation))

    def changed(x: Numbers) -> Cluster:
        return with_constants(cluster, _named(constants, values(x)))

    def residuals(x: Numbers) -> Numbers:
        return np.concatenate([_soft(np.log(times(changed(x)) / measured) / NOISE), x])

    bounds = (lowest - EDGE, highest + EDGE)
    nothing = np.zeros(len(constants))
    found = least_squares(residuals, nothing, bounds=bounds, diff_step=1e-4, ftol=ENOUGH, xtol=ENOUGH)
    rows = slice(0, len(measured))
    takes = not errors or _gains(residuals(nothing)[rows], found.fun[rows], found.jac, errors)
    chosen = found.x if takes else nothing
    return changed(chosen), tuple(float(v) for v in values(chosen))


def _gains(before: Numbers, after: Numbers, jacobian: Numbers, errors: float) -> bool:
    """Whether rows with residuals `before` a fit and `after` it have smaller ones after a fit without them.

    `jacobian`: of the fit's residuals, those of rows first.
    """
    if len(before) < LEAST_ROWS:
        return True
    leverage = np.diag(jacobian @ np.linalg.pinv(jacobian))[: len(before)]
    gained = np.abs(before) - np.abs(after / np.maximum(1.0 - leverage, EDGE))
    return bool(gained.mean() > errors * _error_of_mean(gained))


def leave_one_group_out(
    cases: Sequence[Case], cluster: Cluster, steps: int, seed: int, predictor: Predictor = predict
) -> tuple[Outcome, tuple[tuple[int, ...], ...]]:
    """Predictions for every group after a calibration on `steps` measured steps of other groups, and the cases of each fit.

    The steps are of the same part of the table (of all, if its other groups have none), in an order that `seed` decides.
    """
    order = drawn(cases, seed)
    found = outcome(cases, cluster, predictor)
    fits: dict[tuple[int, ...], Fit] = {}
    members: dict[str, list[int]] = {}
    for index, case in enumerate(cases):
        members.setdefault(case.group, []).append(index)
    for group, indices in members.items():
        if all(cases[i].measured.step_time_s is None for i in indices):
            continue  # nothing to compare a time with
        others = [i for i in order if cases[i].group != group]
        alike = [i for i in others if cases[i].part == cases[indices[0]].part]
        chosen = tuple(sorted((alike or others)[:steps]))
        if not chosen:
            raise InputError("calibration takes steps of other groups, and this table has one timed group only")
        if chosen not in fits:
            fits[chosen] = fit([cases[i] for i in chosen], cluster, predictor)
        own = outcome([cases[i] for i in indices], fits[chosen].cluster, predictor)
        found.step_time_s[indices] = own.step_time_s
        found.mfu[indices] = own.mfu
    return found, tuple(fits)


def drawn(cases: Sequence[Case], seed: int) -> list[int]:
    """The timed cases in random order, such that a group comes again only when all others have come as often."""
    timed = [i for i, c in enumerate(cases) if c.measured.step_time_s is not None]
    order = map(int, np.random.default_rng(seed).permutation(timed))
    return in_turns(order, lambda index: cases[index].group)


def in_turns(every: Iterable[_One], kind_of: Callable[[_One], str]) -> list[_One]:
    """One of every kind, then another one of every kind that has more, and so on."""
    kinds: dict[str, list[_One]] = {}
    for one in every:
        kinds.setdefault(kind_of(one), []).append(one)
    return [one for turn in zip_longest(*kinds.values()) for one in turn if one is not None]


def _named(constants: Sequence[Constant], values: Numbers) -> dict[str, float]:
    return {constant.place: float(value) for constant, value in zip(constants, values, strict=True)}


def _soft(error: Numbers) -> Numbers:
    """Residuals whose squares are soft_l1 of `error`: like error**2 below 1, like 2 |error| far above."""
    return np.asarray(np.sign(error) * np.sqrt(2.0 * (np.sqrt(1.0 + error**2) - 1.0)))
