"""The chain of a network's parts, of which a pipeline stage holds a run."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import accumulate, chain, groupby, repeat
from math import inf
from operator import attrgetter
from typing import TypeVar

from ms_symtensor.program.passes import InFlight
from ms_symtensor.program.pipeline import stage_by_stage


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
        self._flights: dict[tuple[InFlight, int], InFlight] = {}
        self._block_B = _spread([saved if b else -inf for saved, b in zip(saved_B, is_block, strict=True)], counts)
        self._outside_B = [0.0 if part.is_block else part.kept_B for part in (self.parts[0], self.parts[-1])]

    def stage_by_stage(self, layers: Sequence[int], interleave: int) -> "Chain":
        """The same with the blocks in the order of `stage_by_stage`."""
        (first, last), blocks = (self.parts[0], self.parts[-1]), self.parts[1:-1]
        return Chain([first, *stage_by_stage(blocks, layers, interleave), last])

    def with_recomputed(self, start: int, end: int, flight: InFlight, recomputed: int) -> Stage:
        """Parts `start` to `end`, of whose blocks the first `recomputed` are recomputed."""
        flight = self._of_blocks(flight, int(self.blocks[end] - self.blocks[start]))
        last = bisect_left(self.blocks, self.blocks[start] + recomputed, start, end + 1) if recomputed else start
        each_s = self.each_s[end] - self.each_s[start] + self.recompute_s[last] - self.recompute_s[start]
        peak_B = self.at_rest_B[end] - self.at_rest_B[start] + self._waiting_B(start, end, flight)
        peak_B -= flight.saved_B(self.saved_B[last] - self.saved_B[start], self.saved_B[end] - self.saved_B[start])
        peak_B += self.moment_B(start, end, recomputed)
        blocks, once_s = int(self.blocks[end] - self.blocks[start]), self.once_s[end] - self.once_s[start]
        return Stage(blocks, recomputed, each_s, peak_B, once_s)

    def _of_blocks(self, flight: InFlight, number: int) -> InFlight:
        """`flight` of a stage that holds so many blocks, worked out once."""
        if len(flight.runs) == 1:
            return flight
        if (flight, number) not in self._flights:
            self._flights[flight, number] = flight.with_blocks(number)
        return self._flights[flight, number]

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
        flight = self._of_blocks(flight, int(self.blocks[end] - self.blocks[start]))
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


def _sums(values: Iterable[float], counts: Iterable[int]) -> list[float]:
    """Sums of all before each place, and of all, of `values` that stand in so many places."""
    return list(accumulate(chain.from_iterable(map(repeat, values, counts)), initial=0.0))


def _spread(values: Iterable[_Value], counts: Iterable[int]) -> list[_Value]:
    """`values`, each in so many places."""
    return list(chain.from_iterable(map(repeat, values, counts)))
