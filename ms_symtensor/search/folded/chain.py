"""The chain of a network's parts, of which a pipeline stage holds a run."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import accumulate, chain, groupby, repeat
from math import inf
from operator import attrgetter
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.program.passes import InFlight


@dataclass(frozen=True)
class Part:
    """A link of the chain: seconds of a micro-batch, forward and backward together, and of computing it again; bytes; seconds at
    the end of a step.
    """

    each_s: float
    recompute_s: float
    kept_B: float
    kept_recomputed_B: float
    at_rest_B: float
    is_block: bool = True
    once_s: float = 0.0

    @property
    def recomputed(self) -> "Part":
        """The link as it is when it is recomputed."""
        if not self.is_block:
            return self
        each_s, kept_B = self.each_s + self.recompute_s, self.kept_recomputed_B
        return replace(self, each_s=each_s, recompute_s=0.0, kept_B=kept_B)


@dataclass(frozen=True)
class Stage:
    """What a stage holds: blocks, how many of them are recomputed; its seconds per micro-batch, its bytes, and its seconds at the
    end of a step.
    """

    blocks: int
    recomputed: int
    each_s: float
    peak_B: float
    once_s: float = 0.0


_ByLevel = tuple["array[float]", "array[float]"]
"""Seconds, and bytes saved, level by level."""

_Value = TypeVar("_Value")

_FIELDS = attrgetter(*(field.name for field in fields(Part)))


class Chain:
    """The parts of a network in order, with sums over any run of them."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(parts)
        runs = [tuple(same) for _, same in groupby(self.parts, id)]  # of one part, many times over
        counts = tuple(map(len, runs))
        fields = zip(*(_FIELDS(run[0]) for run in runs), strict=True)
        each_s, recompute_s, kept_B, kept_recomputed_B, at_rest_B, is_block, once_s = fields
        saved_B = [b * (kept - less) for b, kept, less in zip(is_block, kept_B, kept_recomputed_B, strict=True)]
        sums = partial(_sums, counts=counts)
        self.each_s, self.recompute_s, self.once_s = sums(each_s), sums(recompute_s), sums(once_s)
        self.kept_B, self.at_rest_B, self.saved_B = sums(kept_B), sums(at_rest_B), sums(saved_B)
        self.blocks = sums(is_block)
        self.longest_s = max(each_s)
        self._block_B = _spread([saved if b else -inf for saved, b in zip(saved_B, is_block, strict=True)], counts)
        self._first_alike = _spread(accumulate(counts[:-1], initial=0), counts)
        self._outside_B = [0.0 if part.is_block else part.kept_B for part in (self.parts[0], self.parts[-1])]

    def first_alike(self, start: int, end: int) -> int:
        """Where the first run of as many parts begins that are all the same one as those from `start` to `end`; `start` if these
        are not the same one.
        """
        first = self._first_alike[start]
        return first if self._first_alike[end - 1] == first else start

    def with_recomputed(self, start: int, end: int, flight: InFlight, recomputed: int) -> Stage:
        """Parts `start` to `end`, of whose blocks the first `recomputed` are recomputed."""
        last = bisect_left(self.blocks, self.blocks[start] + recomputed, start, end + 1) if recomputed else start
        each_s = self.each_s[end] - self.each_s[start] + self.recompute_s[last] - self.recompute_s[start]
        peak_B = self.at_rest_B[end] - self.at_rest_B[start] + self._waiting_B(start, end, flight)
        peak_B -= flight.saved_B(self.saved_B[last] - self.saved_B[start], self.saved_B[end] - self.saved_B[start])
        peak_B += self.moment_B(start, end, recomputed)
        blocks, once_s = int(self.blocks[end] - self.blocks[start]), self.once_s[end] - self.once_s[start]
        return Stage(blocks, recomputed, each_s, peak_B, once_s)

    def _waiting_B(self, start: int, end: int, flight: InFlight) -> float:
        """Bytes that micro-batches keep in parts `start` to `end`, nothing recomputed: what stands before the blocks is in the
        first run, what stands behind them in the last one.
        """
        found_B = flight.mean * (self.kept_B[end] - self.kept_B[start])
        if len(flight.runs) > 1:
            for place, part, counts_in_flight in ((start, 0, flight.runs[0]), (end, len(self.parts), flight.runs[-1])):
                if place == part:
                    found_B += (counts_in_flight - flight.mean) * self._outside_B[part > 0]
        return found_B

    def moment_B(self, start: int, end: int, recomputed: int) -> float:
        """Bytes of the largest block while it is recomputed, where all blocks of a stage are recomputed; else, those that are
        not are done and gone by then. So is what stands behind the blocks: only bytes beyond it are more than is kept.
        """
        if not recomputed or recomputed < self.blocks[end] - self.blocks[start]:
            return 0.0
        largest_B = max(self._block_B[start:end])
        behind = self.parts[end - 1]
        return largest_B if behind.is_block else max(0.0, largest_B - behind.kept_B)

    def make_feasible(
        self, start: int, end: int, flight: InFlight, limit_B: float, most: float = inf
    ) -> tuple[float, float, int] | None:
        """Seconds per micro-batch, bytes and recomputed blocks of parts `start` to `end` with as few of these, first ones
        first, as fit; None if too large, or if more than `most` were recomputed.
        """
        each_s = self.each_s[end] - self.each_s[start]
        peak_B = self.at_rest_B[end] - self.at_rest_B[start] + self._waiting_B(start, end, flight)
        recomputed = 0
        if peak_B > limit_B:
            most_B = self.saved_B[end] - self.saved_B[start]
            wanted = self.saved_B[start] + flight.to_keep_less_B(peak_B - limit_B, most_B)
            last = bisect_left(self.saved_B, wanted, start, end + 1)
            if last > end:
                return None
            recomputed = int(self.blocks[last] - self.blocks[start])
            if recomputed > most:
                return None
            each_s += self.recompute_s[last] - self.recompute_s[start]
            peak_B -= flight.saved_B(self.saved_B[last] - self.saved_B[start], most_B)
            peak_B += self.moment_B(start, end, recomputed)
            if peak_B > limit_B:
                return None
        return each_s, peak_B, recomputed

    def stage(self, start: int, end: int, each_s: float, peak_B: float, recomputed: int) -> Stage:
        """Parts `start` to `end` with what `make_feasible` tells of them."""
        blocks, once_s = int(self.blocks[end] - self.blocks[start]), self.once_s[end] - self.once_s[start]
        return Stage(blocks, recomputed, each_s, peak_B, once_s)


class SelectedChain(Chain):
    """A chain whose blocks make parts again, as little as makes a run of them fit: anything between two levels;
    `levels` [levels, kinds, (seconds, bytes saved)] go from nothing to everything, `kinds` tells of which kind every part is.
    """

    def __init__(self, parts: Sequence[Part], levels: NDArray[np.float64], kinds: Sequence[int]) -> None:
        super().__init__(parts)
        self._held = _counts(tuple(kinds), levels.shape[1])
        self._first: list[list[float]] = levels[0].tolist()
        steps = np.diff(levels, axis=0)
        recompute_s, saved_B = (self._held[-1] @ steps[:, :, field].T for field in (0, 1))
        self._price: list[float] = (recompute_s / np.maximum(saved_B, 1.0)).tolist()  # seconds of a byte
        self._steps: list[list[list[float]]] = steps.transpose(1, 2, 0).tolist()
        self._mixed: dict[tuple[int, ...], list[_ByLevel]] = {}

    def make_feasible(
        self, start: int, end: int, flight: InFlight, limit_B: float, most: float = inf
    ) -> tuple[float, float, int] | None:
        """As of `Chain`, but for how many blocks are recomputed."""
        each_s = self.each_s[end] - self.each_s[start]
        peak_B = self.at_rest_B[end] - self.at_rest_B[start] + self._waiting_B(start, end, flight)
        if peak_B > limit_B:
            recompute_s = self._least_recompute_s(start, end, flight, peak_B - limit_B)
            if recompute_s is None:
                return None
            each_s, peak_B = each_s + recompute_s, limit_B
        return each_s, peak_B, 0

    def _least_recompute_s(self, start: int, end: int, flight: InFlight, missing_B: float) -> float | None:
        """Seconds between two levels that save as much as is missing; None if no level does."""
        before, after = self._held[start], self._held[end]
        held = [
            (n - m, *levels) for m, n, levels in zip(before, after, self._of_runs(flight.runs), strict=True) if n > m
        ]

        def made_s(level: int) -> float:
            return sum(count * recompute_s[level] for count, recompute_s, _ in held)

        def gone_B(level: int) -> float:
            return sum(count * saved_B[level] for count, _, saved_B in held)

        number = len(held[0][1])
        above = bisect_left(range(number), missing_B, key=gone_B)
        if above == number:
            return None
        if not above:
            return made_s(0)
        below = above - 1
        share = (missing_B - gone_B(below)) / (gone_B(above) - gone_B(below))
        return made_s(below) + (made_s(above) - made_s(below)) * share

    def _of_runs(self, counts_in_flight: tuple[int, ...]) -> list[_ByLevel]:
        """The levels of a stage in whose runs, of equal length, so many micro-batches wait: of a part of every kind its seconds,
        and what it saves in all of these. A run goes further the more wait in it: always the cheapest next step of one of them.
        """
        if counts_in_flight not in self._mixed:
            shares = {
                many: counts_in_flight.count(many) / len(counts_in_flight) for many in sorted(set(counts_in_flight))
            }
            mean = sum(many * share for many, share in shares.items())
            every = [(many, share, level) for many, share in shares.items() for level in range(len(self._price))]
            went = sorted(every, key=lambda step: self._price[step[2]] / step[0])
            self._mixed[counts_in_flight] = [
                (
                    _summed([first_s, *(share * recompute_s[level] for _, share, level in went)]),
                    _summed([first_B * mean, *(many * share * saved_B[level] for many, share, level in went)]),
                )
                for (first_s, first_B), (recompute_s, saved_B) in zip(self._first, self._steps, strict=True)
            ]
        return self._mixed[counts_in_flight]


def _sums(values: Iterable[float], counts: Iterable[int]) -> list[float]:
    """Sums of all before each place, and of all, of `values` that stand in so many places."""
    return list(accumulate(chain.from_iterable(map(repeat, values, counts)), initial=0.0))


def _counts(kinds: tuple[int, ...], number: int) -> tuple[tuple[int, ...], ...]:
    """Parts of each of so many kinds before every place, and of all."""
    found = [(0,) * number]
    for kind in kinds:
        found.append(tuple(count + (kind == n) for n, count in enumerate(found[-1])))
    return tuple(found)


def _summed(values: Iterable[float]) -> "array[float]":
    return array("d", accumulate(values))


def _spread(values: Iterable[_Value], counts: Iterable[int]) -> list[_Value]:
    """`values`, each in so many places."""
    return list(chain.from_iterable(map(repeat, values, counts)))
