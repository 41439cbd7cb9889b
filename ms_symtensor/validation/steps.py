"""Which steps to measure before configurations are chosen from: of other workloads, without knowing what any step takes."""

from collections.abc import Hashable, Sequence

import numpy as np

from ms_symtensor.validation.dataset import Case
from ms_symtensor.validation.shapes import shape_of


def telling(own: Sequence[Case], others: Sequence[int], cases: Sequence[Case], steps: int) -> tuple[int, ...]:
    """`steps` of `others`, by rising index into `cases`, before one of `own` is chosen, which are sorted by predicted time.

    What a step tells beyond constants it tells about its shapes (shapes.py): for each of `own`, the fastest first, the first
    of `others` with its shapes; then the first of the rest. What is predicted to be slow is not chosen anyway.
    """
    first: dict[Hashable, int] = {}
    for index in others:
        first.setdefault(shape_of(cases[index].configuration), index)
    wanted = dict.fromkeys(shape_of(case.configuration) for case in own)
    chosen = dict.fromkeys((*(first[shape] for shape in wanted if shape in first), *others))
    return tuple(sorted(tuple(chosen)[:steps]))


def drawn(cases: Sequence[Case], seed: int) -> list[int]:
    """The timed cases in random order, such that a group comes again only when all others have come as often."""
    generator = np.random.default_rng(seed)
    members: dict[str, list[int]] = {}
    for index in generator.permutation([i for i, c in enumerate(cases) if c.measured.step_time_s is not None]):
        members.setdefault(cases[int(index)].group, []).append(int(index))
    queues = list(members.values())
    longest = max((len(queue) for queue in queues), default=0)
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]
