"""What a pipeline schedule is: the order in which a stage takes the passes of its micro-batches."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Turn(NamedTuple):
    """A micro-batch passes through model chunk number `chunk` of a stage, forward or backward."""

    micro_batch: int
    chunk: int
    is_backward: bool


@dataclass(frozen=True)
class Scheduler:
    """One way to take turns.

    Attributes:
        name: what MindSpore calls it (`pipeline_scheduler`).
        order: the turns of stage number `stage` of `stages`, (stage, stages, micro_batch_num, chunks) given.
        enough: of (stages, micro_batch_num), as few micro-batches as see all that those of more see.
    """

    name: str
    order: Callable[[int, int, int, int], Iterable[Turn]]
    enough: Callable[[int, int], int]


def in_cycles(cycles: Iterable[int], chunks: int) -> list[Turn]:
    """The forward passes where so many micro-batches go round the chunks together, one cycle after the other."""
    found, start = [], 0
    for length in cycles:
        for chunk in range(chunks):
            found += [Turn(start + number, chunk, False) for number in range(length)]
        start += length
    return found
