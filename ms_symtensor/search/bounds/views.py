"""What is true of every step on a shape: seconds that it takes at least, and bytes that must fit, place by place.

On stages, some of these views hold however blocks are divided: of an average stage, and of the first one, which holds what
stands before the blocks, and a block at least. A case has those of the run that it says lies on one stage (`stage_cases`), or of
all stages (`division_cases`). A dual may use all of them at once: shares of the seconds, and a price of a byte for each limit.

Memory is that which waits when the most micro-batches do, and of what is there for a moment then, the gradient of a weight. What
is made again is there for a moment too, but a part of a block may be gone before the next one is made: no more is certain. A
stage that holds n blocks, and more, holds no fewer in any of its runs than n dealt out to these.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.program.passes import Flights
from ms_symtensor.search.bounds.users import need_num
from ms_symtensor.search.folded.places import held_in_runs
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.average_stage import average_weights
from ms_symtensor.search.stages.stage_cases import Case, Held

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Views:
    """How often every place counts: `seconds` [views, (each micro-batch, again run by run, elsewhere, once), places], of each of
    which a step takes at least the sum; and `size_B` [limits, (kept, made again run by run, elsewhere, at rest), places], none of
    which may exceed the limit. The runs are those of the stages that the views know of; blocks of another run, or elsewhere, need
    not make again what those of one do.
    `there` [limits, needs]: 1 for what is needed for certain (`users`), of one kind of blocks at most.
    """

    seconds: Array
    size_B: Array
    there: Array

    def __add__(self, other: "Views") -> "Views":
        pairs = ((self.seconds, other.seconds), (self.size_B, other.size_B), (self.there, other.there))
        return Views(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True)
class _Stages:
    """What is known of some stages of `shape`: how often each has every place, and what it keeps of micro-batches."""

    occurrences: tuple[int, ...]
    shape: Shape
    every: tuple[tuple[Held, Flights], ...]

    @cached_property
    def runs(self) -> Array:
        """Every place in every run of these, one stage after the other [runs, places]."""
        return np.concatenate([held_in_runs(held, self.shape.interleave) for held, _ in self.every])

    def mine(self, stage: int) -> slice:
        """The runs of one of them."""
        return slice(stage * self.shape.interleave, (stage + 1) * self.shape.interleave)

    def of_average(self) -> Views:
        """What is true of an average stage of all."""
        every = average_weights(self.occurrences, [self.shape])
        depth = np.array(self.occurrences, dtype=float)
        here = np.where(depth > 0, self.runs / np.maximum(depth, 1.0), 0.0)
        share = np.array([*here, np.maximum(1 - here.sum(axis=0), 0.0)])
        each, again, once, kept, saved, rest = (
            one[:, 0]
            for one in (every.each_s, every.again_s, every.once_s, every.kept_B, every.saved_B, every.at_rest_B)
        )
        return Views(
            np.array([[each, *share * again, once]]),
            np.array([[kept, *share * saved, rest]]),
            _there(self.occurrences if self.shape.stages == 1 else [0] * len(self.occurrences)),
        )

    def seconds_of(self, stage: int, ends: Sequence[Sequence[float]] = ()) -> Array:
        """What a step takes at least, as one of these stages says: M - 1 / v times what that does, and 1 / v of what all places
        do; its end, no less than on an average stage, nor than for what the stage holds, nor than for each of `ends`.
        """
        depth, here = np.array(self.occurrences, dtype=float), np.array(self.every[stage][0], dtype=float)
        turns, inside = self.shape.turns, _inside(len(here))
        again = self.runs / turns.interleave
        again[self.mine(stage)] *= turns.micro_batch_num * turns.interleave
        elsewhere = (depth - self.runs.sum(axis=0)) / turns.interleave
        each = depth / turns.interleave + turns.slowest * here
        every_end = (depth / self.shape.stages, here, *np.array(ends, dtype=float))
        return np.array([[each, *again * inside, elsewhere * inside, once] for once in every_end])

    def memory_of(self, stage: int) -> Views:
        """What must fit on one of these stages."""
        held, flight = self.every[stage]
        waiting = np.array(flight.runs)[:, None] * self.runs[self.mine(stage)]
        found = self._while_waiting(stage, waiting, _there(held))
        if any(held[1:-1]):
            found += self._of_moment(stage, waiting)
        return found + self._of_start(stage) if held[0] and flight.mean > 1 else found

    def of(self, stage: int) -> Views:
        """All that is true of one of these stages."""
        memory = self.memory_of(stage)
        return replace(memory, seconds=self.seconds_of(stage))

    def memory_of_all(self, stages: Sequence[int]) -> Views:
        """What must fit on average of these, which all have blocks: while the most wait, and as the last block goes backward."""
        every = [self.memory_of(stage) for stage in stages]
        size_B, there = (np.mean([getattr(one, name)[:2] for one in every], axis=0) for name in ("size_B", "there"))
        return replace(every[0], size_B=size_B, there=there)

    def _of_moment(self, stage: int, waiting: Array) -> Views:
        """What is true while the last block goes backward for the first time: what it kept of the micro-batch is gone, but for
        what is needed then (`moments`), and so is all that is behind it. `waiting` [runs, places].
        """
        held = self.every[stage][0]
        last = max(place for place in range(1, len(held) - 1) if held[place])
        kept = waiting.copy()
        kept[-1, last + 1 :] -= held[last + 1 :]
        kept[-1, last] -= 1.0
        there = _there(held)
        there[0, len(held) // 3 + (last - 1) // 3] = 1.0
        return self._while_waiting(stage, kept, there)

    def _of_start(self, stage: int) -> Views:
        """What is true while what stands before the blocks goes backward: the micro-batch has nothing else left."""
        shape, held = self.shape, self.every[stage][0]
        first = (one.waiting for one in shape.turns.passes(0, shape.stages) if one.is_backward and not one.run)
        there = _there(held)
        there[0, -1] = 1.0
        return self._while_waiting(stage, np.array(max(first, key=sum))[:, None] * self.runs[self.mine(stage)], there)

    def _while_waiting(self, stage: int, kept: Array, there: Array) -> Views:
        """What is true at a moment when so much of every place waits on a stage, [runs, places]."""
        held = np.array(self.every[stage][0], dtype=float)
        saved = np.zeros((len(self.runs) + 1, len(held)))
        saved[self.mine(stage)] = kept * _inside(len(held))
        size_B = np.array([[kept.sum(axis=0), *saved, held]])
        return Views(np.zeros((0, *size_B.shape[1:])), size_B, there)


@lru_cache(maxsize=1 << 10)
def of_shape(occurrences: tuple[int, ...], shape: Shape) -> Views:
    """What is true on `shape` however its blocks are divided: of an average stage, and of the first one; where stages hold
    several runs, which have a block each, of the last one too.
    """
    if shape.stages == 1:
        return _Stages(occurrences, shape, (((0,) * len(occurrences), shape.flights(0)),)).of_average()
    more = min(shape.interleave - 1, occurrences[2])
    nothing = (0,) * (len(occurrences) - 3)
    every = [((1, 1, more, *nothing), shape.flights(0))]
    if more:
        every.append(((0, 0, more, 1, 1), shape.flights(shape.stages - 1)))
    stages = _Stages(occurrences, shape, tuple(every))
    return sum((stages.of(stage) for stage in range(len(every))), stages.of_average())


@lru_cache(maxsize=1 << 10)
def of_case(occurrences: tuple[int, ...], shape: Shape, case: Case) -> Views:
    """What is true in `case`: of an average stage, and of its run; and of the first stage's memory, and its end of a step; and
    what must fit on average of those before its run, and of those behind it, where it knows them.
    """
    also = () if case.before or case.also is None or case.held[0] else ((case.also, shape.flights(0)),)
    stages = _Stages(occurrences, shape, ((case.held, case.flight), *also, *case.before, *case.behind))
    ends = [] if case.also is None else [case.also]
    found = stages.of_average() + replace(stages.memory_of(0), seconds=stages.seconds_of(0, ends))
    if also or case.before:
        found += stages.memory_of(1)
    if len(case.before) > 1:
        found += stages.memory_of_all(range(1, 1 + len(case.before)))
    if case.behind:
        found += stages.memory_of_all(range(1 + len(case.before), len(stages.every)))
    return found


def _inside(places: int) -> Array:
    """1 for the places of blocks."""
    found = np.ones(places)
    found[[0, -1]] = 0.0
    return found


def _there(held: Sequence[int]) -> Array:
    """The kind of which there are the most blocks where every place is held so often, if there are any [1, needs]."""
    blocks = np.array(held[1:-1]).reshape(-1, 3).sum(axis=1)
    found = np.zeros((1, need_num(len(blocks))))
    if blocks.any():
        found[0, np.argmax(blocks)] = 1.0
    return found
