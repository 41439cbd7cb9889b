"""The results of the ranks beside those of one process."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy

TOLERANCE = 1e-5
"""Largest relative error that counts as equal; a float32 sum of some thousand terms rounds to about a tenth of it."""

ZERO = 1e-2
"""A gradient whose largest entry is below this share of the network's largest is measured against that share instead: what is
zero but for rounding (the bias of attention keys) has no relative error of its own. A wrong sum still shows wherever a
gradient is above 1e-7 of the largest. empirical"""


@dataclass(frozen=True)
class Difference:
    """The relative error of one tensor: the largest on any rank. `ranks` are those where it is not equal."""

    name: str
    error: float
    ranks: tuple[int, ...]

    @property
    def equal(self) -> bool:
        return self.error <= TOLERANCE


def difference(
    name: str,
    expected: Iterable[numpy.ndarray],
    found: Iterable[numpy.ndarray],
    scale: float,
    ranks: Iterable[int],
) -> Difference:
    """Compare the slice of each of `ranks` with what it should be; `scale` is the size that errors are relative to.

    A value that is not finite, or of another shape, is infinitely wrong.
    """
    errors = [_error(e, f, scale) for e, f in zip(expected, found, strict=True)]
    wrong = tuple(rank for rank, error in zip(ranks, errors, strict=True) if error > TOLERANCE)
    return Difference(name, max(errors), wrong)


def scale_of(value: numpy.ndarray, largest: float) -> float:
    """What errors of `value` are relative to: its largest entry, or ZERO times the `largest` of all such tensors."""
    return max(float(numpy.abs(value).max(initial=0.0)), ZERO * largest)


def _error(expected: numpy.ndarray, found: numpy.ndarray, scale: float) -> float:
    if expected.shape != found.shape or not numpy.isfinite(found).all() or not numpy.isfinite(expected).all():
        return float("inf")
    distance = float(numpy.abs(expected.astype(numpy.float64) - found).max(initial=0.0))
    return distance / scale if scale else (0.0 if distance == 0.0 else float("inf"))
