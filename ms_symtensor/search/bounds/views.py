"""What is true of every step on a shape: seconds that it takes at least, and bytes that must fit, place by place.

On stages, some of these views hold however blocks are divided: of an average stage, and of the first one, which holds what
stands before the blocks, and a block at least. A case (`stage_cases`) has those of the run that it
says lies on one stage. A dual may use all of them at once: shares of the seconds, and a price of a byte for each limit.

Memory is that which waits when the most micro-batches do, and of what is there for a moment then, the gradient of a weight. What
is made again is there for a moment too, but a part of a block may be gone before the next one is made: no more is certain. A
stage that holds n blocks, and more, holds no fewer in any of its runs than n dealt out to these.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.program.passes import Flights
from ms_symtensor.search.bounds.users import need_num
from ms_symtensor.search.folded.places import held_in_runs
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.average_stage import average_weights
from ms_symtensor.search.stages.stage_cases import Case

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Views:
    """How often every place counts: `seconds` [views, (each micro-batch, again run by run of the stage, elsewhere, once),
    places], of each of which a step takes at least the sum; and `size_B` [limits, (kept, made again run by run, elsewhere, at
    rest), places], none of which may exceed the limit. Blocks of another run, or elsewhere, need not make again what those of one
    do.
    `there` [limits, needs]: 1 for what is needed for certain (`users`), of one kind of blocks at most.
    """

    seconds: Array
    size_B: Array
    there: Array

    @property
    def of_memory(self) -> "Views":
        """The limits alone."""
        return replace(self, seconds=self.seconds[:0])

    def __add__(self, other: "Views") -> "Views":
        pairs = ((self.seconds, other.seconds), (self.size_B, other.size_B), (self.there, other.there))
        return Views(*(np.concatenate(pair) for pair in pairs))


@lru_cache(maxsize=1 << 10)
def of_shape(occurrences: tuple[int, ...], shape: Shape) -> Views:
    """What is true on `shape` however its blocks are divided: of an average stage, and of the first one; where stages hold
    several runs, which have a block each, of the last one too.
    """
    held = [0] * len(occurrences)
    if shape.stages == 1:
        return _of_average(occurrences, shape, held)
    more = min(shape.interleave - 1, occurrences[2])
    held[:3] = [1, 1, more]
    found = _of_average(occurrences, shape, held) + of_run(occurrences, shape, held, shape.flights(0))
    if not more:
        return found
    return found + of_run(occurrences, shape, [0, 0, more, 1, 1], shape.flights(shape.stages - 1))


@lru_cache(maxsize=1 << 10)
def of_case(occurrences: tuple[int, ...], shape: Shape, case: Case) -> Views:
    """What is true in `case`: of an average stage, and of its run."""
    found = _of_average(occurrences, shape, case.held) + of_run(occurrences, shape, case.held, case.flight)
    if case.also is None:
        return found
    seconds = found.seconds[1:2].copy()
    seconds[0, -1] = case.also
    first = of_run(occurrences, shape, case.also, shape.flights(0))
    return Views(np.concatenate([found.seconds, seconds]), found.size_B, found.there) + first.of_memory


def _of_average(occurrences: tuple[int, ...], shape: Shape, held: Sequence[int]) -> Views:
    """Of an average stage; of every place, so many blocks are in the run."""
    every = average_weights(occurrences, [shape])
    depth = np.array(occurrences, dtype=float)
    here = np.where(depth > 0, held_in_runs(held, shape.interleave) / np.maximum(depth, 1.0), 0.0)
    share = np.array([*here, 1 - here.sum(axis=0)])
    each, again, once, kept, saved, rest = (
        one[:, 0] for one in (every.each_s, every.again_s, every.once_s, every.kept_B, every.saved_B, every.at_rest_B)
    )
    return Views(
        np.array([[each, *share * again, once]]),
        np.array([[kept, *share * saved, rest]]),
        _there(occurrences if shape.stages == 1 else [0] * len(occurrences)),
    )


def of_run(occurrences: tuple[int, ...], shape: Shape, held: Sequence[int], flight: Flights) -> Views:
    """What is true where a stage that keeps `flight` micro-batches holds blocks, every place so often as `held` says.

    A step takes M - 1 / v times what the run does, and 1 / v of what all places do; its end, no less than on an average stage,
    nor than for the run.
    """
    depth, here, inside = np.array(occurrences, dtype=float), np.array(held, dtype=float), np.ones(len(held))
    inside[[0, -1]] = 0.0
    turns, nothing = shape.turns, np.zeros(len(held))
    runs = held_in_runs(held, turns.interleave)
    waiting = np.array(flight.runs)[:, None] * runs
    each = depth / turns.interleave + turns.slowest * here
    again, elsewhere = turns.micro_batch_num * runs * inside, (depth - here) * inside / turns.interleave
    seconds = np.array([[each, *again, elsewhere, once] for once in (depth / shape.stages, here)])
    size_B = np.array([[waiting.sum(axis=0), *waiting * inside, nothing, here]])
    found = Views(seconds, size_B, _there(held))
    if any(held[1:-1]):
        found += _of_moment(held, waiting)
    return found + _of_start(held, shape, runs) if held[0] and flight.mean > 1 else found


def _of_moment(held: Sequence[int], waiting: Array) -> Views:
    """What is true while the last block goes backward for the first time: what it kept of the micro-batch is gone, but for what
    is needed then (`moments`), and so is all that is behind it. `waiting` [runs, places].
    """
    last = max(place for place in range(1, len(held) - 1) if held[place])
    kept = waiting.copy()
    kept[-1, last + 1 :] -= held[last + 1 :]
    kept[-1, last] -= 1.0
    there = _there(held)
    there[0, len(held) // 3 + (last - 1) // 3] = 1.0
    return _while_waiting(kept, held, there)


def _of_start(held: Sequence[int], shape: Shape, runs: Array) -> Views:
    """What is true while what stands before the blocks goes backward: the micro-batch has nothing else left."""
    first = (one.waiting for one in shape.turns.passes(0, shape.stages) if one.is_backward and not one.run)
    there = _there(held)
    there[0, -1] = 1.0
    return _while_waiting(np.array(max(first, key=sum))[:, None] * runs, held, there)


def _while_waiting(kept: Array, held: Sequence[int], there: Array) -> Views:
    """What is true at a moment when so much of every place waits, [runs, places]."""
    saved, nothing = kept.copy(), np.zeros(len(held))
    saved[:, [0, -1]] = 0.0
    size_B = np.array([[kept.sum(axis=0), *saved, nothing, held]])
    return Views(np.zeros((0, *size_B.shape[1:])), size_B, there)


def _there(held: Sequence[int]) -> Array:
    """The kind of which there are the most blocks where every place is held so often, if there are any [1, needs]."""
    blocks = np.array(held[1:-1]).reshape(-1, 3).sum(axis=1)
    found = np.zeros((1, need_num(len(blocks))))
    if blocks.any():
        found[0, np.argmax(blocks)] = 1.0
    return found
