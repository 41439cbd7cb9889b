"""What a stage's turns mean for its memory: how many micro-batches wait while another one passes.

Which turns a stage takes, `program.schedules` says. In interleaved stages the first chunk has more waiting than the last one: in
1F1B on the first of 8 stages with 4 chunks each 15, 8, 8 and 8 at the end of the warm-up, when the most wait.
"""

from collections.abc import Iterator, Sequence
from math import inf
from operator import mul
from typing import NamedTuple

from ms_symtensor.program.pipeline import dealt
from ms_symtensor.program.schedules.scheduler import Turn

ROUNDING = 1e-9
"""By such a share sums in another order may be larger."""


class Pass(NamedTuple):
    """A micro-batch passes through run number `run` of a stage. `is_late`: no forward pass follows.

    `waiting` [runs]: how many others have passed forward through each run, and not backward yet.
    """

    run: int
    is_backward: bool
    is_late: bool
    waiting: tuple[int, ...]


class InFlight(NamedTuple):
    """Micro-batches whose activations a stage keeps when the most wait: on average over its blocks, and in every run. `shares` of
    the blocks that each run holds; none: as many each.

    That is where so many wait for the first time (in 1F1B at the end of the warm-up). Later others wait in the first runs, or
    fewer in the last ones: where first runs keep less of each, since their blocks are recomputed, nothing needs more.
    """

    mean: float
    runs: tuple[int, ...]
    shares: tuple[float, ...] = ()

    def with_blocks(self, number: int) -> "InFlight":
        """The same of a stage that holds so many blocks, whose runs may be unequal."""
        if len(self.runs) == 1 or number < len(self.runs):
            return self
        shares = tuple(length / number for length in dealt((number,), len(self.runs)))
        return InFlight(sum(map(mul, self.runs, shares)), self.runs, shares)

    def of_blocks(self, number: int) -> list[int]:
        """How many wait in each of so many blocks of the stage."""
        lengths = dealt((number,), len(self.runs))
        return [waiting for waiting, blocks in zip(self.runs, lengths, strict=True) for _ in range(blocks)]

    def to_keep_less_B(self, missing_B: float, most_B: float) -> float:
        """Bytes of a micro-batch that its first blocks must not keep, of the `most_B` that all blocks need not, for so many to
        be saved; more than `most_B` where that is not enough.
        """
        if len(self.runs) == 1:
            return missing_B / self.mean
        found_B = 0.0
        for waiting, each_B in zip(self.runs, self._of_runs(most_B), strict=True):
            if missing_B <= waiting * each_B * (1 + ROUNDING):
                return found_B + missing_B / waiting
            missing_B, found_B = missing_B - waiting * each_B, found_B + each_B
        return inf

    def saved_B(self, gone_B: float, most_B: float) -> float:
        """Bytes that are saved where the first blocks do not keep so many of a micro-batch."""
        found_B = 0.0
        for waiting, each_B in zip(self.runs[:-1], self._of_runs(most_B), strict=False):
            if gone_B <= each_B:
                return found_B + waiting * gone_B
            gone_B, found_B = gone_B - each_B, found_B + waiting * each_B
        return found_B + self.runs[-1] * gone_B

    def _of_runs(self, size_B: float) -> list[float]:
        """What of so many bytes of all blocks is in every run."""
        return [share * size_B for share in self.shares or (1 / len(self.runs),) * len(self.runs)]


def in_flight(turns: Sequence[Turn], chunks: int) -> InFlight:
    """Those of a stage that takes these turns, with so many model chunks."""
    waiting, most, found = [0] * chunks, 0, (0,) * chunks
    for turn in turns:
        waiting[turn.chunk] += -1 if turn.is_backward else 1
        if sum(waiting) > most:
            most, found = sum(waiting), tuple(waiting)
    return InFlight(most / chunks, found)


def passes(turns: Sequence[Turn], chunks: int) -> tuple[Pass, ...]:
    """The different passes among these turns, without those that see no more waiting than others through the same chunk."""
    found: dict[tuple[int, bool, bool], list[tuple[int, ...]]] = {}
    for one in every_pass(turns, chunks):
        most, seen = found.setdefault(one[:3], []), one.waiting
        if not any(_covers(other, seen) for other in most):
            most[:] = [other for other in most if not _covers(seen, other)] + [seen]
    return tuple(Pass(*alike, seen) for alike, most in found.items() for seen in sorted(most))


def every_pass(turns: Sequence[Turn], chunks: int) -> Iterator[Pass]:
    """All passes of these turns, one after the other."""
    last = max(place for place, turn in enumerate(turns) if not turn.is_backward)
    waiting = [0] * chunks
    for place, (_, chunk, is_backward) in enumerate(turns):
        waiting[chunk] -= is_backward
        yield Pass(chunk, is_backward, place >= last, tuple(waiting))
        waiting[chunk] += not is_backward


def _covers(more: tuple[int, ...], less: tuple[int, ...]) -> bool:
    return all(map(int.__ge__, more, less))
