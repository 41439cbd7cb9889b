"""What is true of every step on a shape: seconds that it takes at least, and bytes that must fit, place by place.

On stages, some of these views hold however blocks are divided: of an average stage, and of the first and the last one, which
hold what stands before the blocks and behind them, with a block at least. A case (`stage_cases`) adds those of the run that it
says lies on one stage. A dual may use all of them at once: shares of the seconds, and a price of a byte for each limit.

Memory is that which waits when the most micro-batches do. What is made again is there for a moment too, but a part of a block may
be gone before the next one is made, so that no more is certain.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.program.pipeline import in_flight
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.average_stage import average_weights
from ms_symtensor.search.stages.stage_cases import Case

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Views:
    """How often every place counts: `seconds` [views, (each micro-batch, again, once), places], of each of which a step takes at
    least the sum; and `size_B` [limits, (kept, made again, at rest), places], none of which may exceed the limit. A view is of
    the same run of blocks as limit `of_limit` [views], or of an average stage.
    """

    seconds: Array
    size_B: Array
    of_limit: NDArray[np.intp]

    def __add__(self, other: "Views") -> "Views":
        return Views(
            np.concatenate([self.seconds, other.seconds]),
            np.concatenate([self.size_B, other.size_B]),
            np.concatenate([self.of_limit, other.of_limit + len(self.size_B)]),
        )


def of_shape(occurrences: tuple[int, ...], shape: Shape) -> Views:
    """What is true on `shape` however its blocks are divided."""
    every = average_weights(occurrences, [shape], np.zeros(1), np.inf)
    average = Views(
        np.array([[one[:, 0] for one in (every.each_s, every.again_s, every.once_s)]]),
        np.array([[one[:, 0] for one in (every.kept_B, every.saved_B, every.at_rest_B)]]),
        np.zeros(1, dtype=np.intp),
    )
    if shape.stages == 1:
        return average
    first, last = [0] * len(occurrences), [0] * len(occurrences)
    first[:2], last[-2:] = [1, 1], [1, 1]
    number = shape.micro_batch_num
    for held, stage in ((first, 0), (last, shape.stages - 1)):
        average += of_run(occurrences, shape, held, in_flight(stage, shape.stages, number))
    return average


def of_case(occurrences: tuple[int, ...], shape: Shape, case: Case) -> Views:
    """What is true in `case` beside that."""
    found = of_run(occurrences, shape, case.held, case.flight)
    if case.also is None:
        return found
    seconds = found.seconds[:1].copy()
    seconds[0, 2] = case.also
    return Views(
        np.concatenate([found.seconds, seconds]), found.size_B, np.zeros(len(found.seconds) + 1, dtype=np.intp)
    )


def of_run(occurrences: tuple[int, ...], shape: Shape, held: Sequence[int], flight: int) -> Views:
    """What is true where a stage that keeps `flight` micro-batches holds a run, every place so often as `held` says.

    A step takes M - 1 times what the run does, and once what every place does; its end, no less than on an average stage, nor
    than for the run. Blocks outside the run need not make anything again.
    """
    depth, here, inside = np.array(occurrences, dtype=float), np.array(held, dtype=float), np.ones(len(held))
    inside[[0, -1]] = 0.0
    each, again = depth + (shape.micro_batch_num - 1) * here, shape.micro_batch_num * here * inside
    seconds = np.array([[each, again, once] for once in (depth / shape.stages, here)])
    size_B = np.array([[flight * here, flight * here * inside, here]])
    return Views(seconds, size_B, np.zeros(len(seconds), dtype=np.intp))
