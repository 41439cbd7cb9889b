"""In which order a pipeline stage takes its micro-batches, and how many of them wait meanwhile: 1F1B.

A stage runs some forward passes, then a backward and a forward pass in turn. Where it holds several model chunks, micro-batches
go round in groups of as many as there are stages: a group passes through the first run of every stage, then through the second,
…, then the next group does; backward through the last run first (Narayanan et al. 2021, "Efficient Large-Scale Language Model
Training on GPU Clusters", section 2.2). MindSpore's control edges say the same. So the first run of a stage has more waiting than
the last one: on the first of 8 stages with 4 runs each 15, 8, 8 and 8 at the end of the warm-up, when the most wait.
"""

from collections.abc import Iterator
from functools import lru_cache
from math import inf
from typing import NamedTuple

from ms_symtensor.program.pipeline import dealt

GROUPS = 4
"""Of more groups of micro-batches, those in the middle see what others see (tests/program/test_passes.py)."""

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


def warm_up(stage: int, stages: int, micro_batch_num: int, interleave: int = 1) -> int:
    """Forward passes, through one run each, before the first backward pass.

    min(M, P - i); with v > 1 runs a stage warms up twice as long: min(M v, 2 (P - i - 1) + (v - 1) P + 1).
    """
    if interleave == 1:
        return min(micro_batch_num, stages - stage)
    return min(micro_batch_num * interleave, 2 * (stages - stage - 1) + (interleave - 1) * stages + 1)


class InFlight(NamedTuple):
    """Micro-batches whose activations a stage keeps when the most wait: on average over its model chunks, and in every run.

    That is at the end of the warm-up. Later others wait in the first runs, or fewer in the last ones: where first runs keep less
    of each, since their blocks are recomputed, nothing needs more.
    """

    mean: float
    runs: tuple[int, ...]

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
        each_B, found_B = most_B / len(self.runs), 0.0
        for waiting in self.runs:
            if missing_B <= waiting * each_B * (1 + ROUNDING):
                return found_B + missing_B / waiting
            missing_B, found_B = missing_B - waiting * each_B, found_B + each_B
        return inf

    def saved_B(self, gone_B: float, most_B: float) -> float:
        """Bytes that are saved where the first blocks do not keep so many of a micro-batch."""
        each_B, found_B = most_B / len(self.runs), 0.0
        for waiting in self.runs[:-1]:
            if gone_B <= each_B:
                return found_B + waiting * gone_B
            gone_B, found_B = gone_B - each_B, found_B + waiting * each_B
        return found_B + self.runs[-1] * gone_B


@lru_cache(maxsize=1 << 12)
def in_flight(stage: int, stages: int, micro_batch_num: int, interleave: int = 1) -> InFlight:
    """Those of stage number `stage` of `stages`."""
    warm = warm_up(stage, stages, micro_batch_num, interleave)
    if interleave == 1:
        return InFlight(float(warm), (warm,))
    once = [min(stages, max(0, warm - run * stages)) for run in range(interleave)]
    return InFlight(warm / interleave, (once[0] + max(0, warm - interleave * stages), *once[1:]))


@lru_cache(maxsize=1 << 12)
def passes(stage: int, stages: int, micro_batch_num: int, interleave: int = 1) -> tuple[Pass, ...]:
    """The different passes of a step on stage number `stage` of `stages`, without those that see no more waiting than others
    through the same run.
    """
    groups, rest = divmod(micro_batch_num, stages)
    found: dict[tuple[int, bool, bool], set[tuple[int, ...]]] = {}
    for one in every_pass(stage, stages, min(groups, GROUPS) * stages + rest, interleave):
        found.setdefault(one[:3], set()).add(one.waiting)
    return tuple(
        Pass(*alike, waiting)
        for alike, every in found.items()
        for waiting in sorted(every)
        if not any(other != waiting and all(map(int.__ge__, other, waiting)) for other in every)
    )


def every_pass(stage: int, stages: int, micro_batch_num: int, interleave: int) -> Iterator[Pass]:
    """All passes of a step on stage number `stage` of `stages`, one after the other."""
    number, waiting = micro_batch_num * interleave, [0] * interleave
    warm = warm_up(stage, stages, micro_batch_num, interleave)
    order = [run for group in _groups(stages, micro_batch_num) for run in range(interleave) for _ in range(group)]
    turns = [(turn, False) for turn in range(warm)]
    for turn in range(number):
        turns.append((turn, True))
        turns += [(warm + turn, False)] if warm + turn < number else []
    last = turns.index((number - 1, False))
    for place, (turn, is_backward) in enumerate(turns):
        run = interleave - 1 - order[turn] if is_backward else order[turn]
        waiting[run] -= is_backward
        yield Pass(run, is_backward, place >= last, tuple(waiting))
        waiting[run] += not is_backward


def _groups(stages: int, micro_batch_num: int) -> Iterator[int]:
    """How many micro-batches go round together; the last ones may be fewer."""
    whole, rest = divmod(micro_batch_num, stages)
    yield from (stages,) * whole
    if rest:
        yield rest
