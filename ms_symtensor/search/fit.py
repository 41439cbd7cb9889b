"""The largest number that fits, or the smallest: doubling, then bisection, every number tried by a plan."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Found = TypeVar("Found")

FINEST = 8
"""An answer is exact to an eighth of itself, or to the unit: each further place costs a search (empirical)."""


@dataclass(frozen=True)
class Attempt(Generic[Found]):
    """What was `found` at `number`, or `why` nothing was."""

    number: int
    found: Found | None
    why: str = ""

    @property
    def fits(self) -> bool:
        return self.found is not None


@dataclass(frozen=True)
class Numbers:
    """Whole numbers from `least` to `most`; those between powers of two are multiples of `unit`."""

    least: int
    most: int
    unit: int = 1

    def middle(self, low: int, high: int) -> int | None:
        """A number half way between two, a multiple of the unit and of an eighth of `low`; None where there is none."""
        step = self.unit
        while step * FINEST < low:
            step *= 2
        first, last = low // step + 1, -(-high // step) - 1
        return (first + last) // 2 * step if first <= last else None


def largest(numbers: Numbers, start: int, plan_at: Callable[[int], Attempt[Found]]) -> Iterator[Attempt[Found]]:
    """The attempts at the largest of `numbers` that fits, the first one at `start`: below one that fits all are taken to fit."""
    at = max(numbers.least, min(start, numbers.most))
    last = plan_at(at)
    yield last
    low, high = (at, None) if last.fits else (None, at)
    while low is None and at > numbers.least:
        at = max(numbers.least, at // 2)
        last = plan_at(at)
        yield last
        low, high = (at, high) if last.fits else (None, at)
    while low is not None and high is None and low < numbers.most:
        at = min(2 * low, numbers.most)
        last = plan_at(at)
        yield last
        low, high = (at, None) if last.fits else (low, at)
    while low is not None and high is not None and (between := numbers.middle(low, high)) is not None:
        last = plan_at(between)
        yield last
        low, high = (between, high) if last.fits else (low, between)


def smallest(numbers: Numbers, plan_at: Callable[[int], Attempt[Found]]) -> Iterator[Attempt[Found]]:
    """The attempts at the smallest of `numbers` that fits: what does not fit at one is taken not to fit at any below."""
    low, high, at = 0, None, numbers.least
    while high is None and at <= numbers.most:
        last = plan_at(at)
        yield last
        low, high, at = (low, at, at) if last.fits else (at, None, 2 * at)
    while high is not None and (between := numbers.middle(low, high)) is not None:
        last = plan_at(between)
        yield last
        low, high = (low, between) if last.fits else (between, high)
