"""Plans that recompute operators inside blocks: a plan that recomputes whole blocks, made faster, its layouts as they are.

From the fronts of the blocks follows a row of levels, each a corner of every kind's front at one price of a byte, from nothing
to everything. The first blocks are on a level that saves more, as few of them as fit, the others on another one.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cost.step import HCCL_BUFFER_B, buffers_B, forward_s
from ms_symtensor.program.meanings import meanings
from ms_symtensor.program.partition import partition
from ms_symtensor.program.settings import Recompute, StagePlan
from ms_symtensor.search.folded.folding import fold
from ms_symtensor.search.folded.mix import Mix
from ms_symtensor.search.selections.selection import FINEST, Selected, front, price_of_byte
from ms_symtensor.search.stages.layout_candidates import Candidate
from ms_symtensor.search.stages.network import Network

Array = NDArray[np.float64]

SELECTING = "; then exact selections inside blocks, by minimum cuts"
"""What the method of a search adds to."""


WHOLE_BLOCK = Recompute()


Level = tuple[Selected, ...]
"""A point of the front of every kind of blocks."""


@dataclass(frozen=True)
class Levels:
    """`every` level of corners, from nothing to everything; and, where they were asked for, those at which a tensor of one block
    of a kind is recomputed `singly`. `buffers_B`: bytes of the buffers of a device's communicators.
    """

    every: tuple[Level, ...] = ()
    singly: tuple[Level, ...] = ()
    buffers_B: int = 0


def levels(network: Network, row: Candidate, singly: bool = False) -> Levels:
    """The levels of the blocks of a network in the layouts of `row`; none where something in them cannot be chosen.

    Where no block is to be recomputed as a whole, levels at which one is are left out. `singly`: single tensors are asked for.
    Blocks that MindSpore compiles once for all their calls share their marks, so that none is chosen for them.
    InvalidStrategyError for layouts that MindSpore rejects.
    """
    settings = row.settings
    key = row.shape.batch, settings.device_num, settings.optimizer_level, settings.swap_optimizer, singly
    found = network.once((*key, frozenset(row.strategies.items())), lambda: _levels(network, row, singly))
    if row.shape.stages > 1:
        found = replace(found, buffers_B=found.buffers_B + HCCL_BUFFER_B)
    copied_B = row.copied_B[2:-1:3].tolist()  # of a block inside, for every kind
    if not any(copied_B):
        return found
    every = (tuple(map(_with_copies, level, copied_B)) for level in found.every)
    return replace(found, every=tuple(every))


def _with_copies(corner: Selected, copied_B: float) -> Selected:
    """`corner`, with what a block that recomputes nothing keeps of copies of weights."""
    return replace(corner, kept_B=corner.kept_B + int(copied_B)) if corner.recompute is None else corner


def _levels(network: Network, row: Candidate, singly: bool) -> Levels:
    graph, known = network.short(row.shape.batch), row.problem.known
    if graph.is_lazy_inline:
        return Levels()
    plan, means = StagePlan(row.strategies, row.settings), meanings(graph, known.rules)
    program = partition(graph, plan, known=means)
    folded = fold(graph)
    form_of = {op.block: folded.class_of[op.name] for op in reversed(graph.ops)}  # identical blocks have one
    blocks = [names[len(names) // 2] for names in folded.kinds]
    taken_s = forward_s(graph, plan, program, known.pricer.cluster, means)
    fronts = {
        form: front(graph, program, block, taken_s, singly) for form, block in {form_of[b]: b for b in blocks}.items()
    }
    there = [one for block in blocks if (one := fronts[form_of[block]]) is not None]
    if len(there) < len(blocks):
        return Levels()
    every, selects = _merged([one.corners for one in there]), known.limits.selects
    plain = tuple(one.corners[0] for one in there)
    return Levels(
        tuple(level for level in every if not (selects and WHOLE_BLOCK in (c.recompute for c in level))),
        tuple((*plain[:kind], p, *plain[kind + 1 :]) for kind, one in enumerate(there) for p in one.singly),
        buffers_B(program),
    )


def _merged(fronts: Sequence[Sequence[Selected]]) -> list[Level]:
    """The corners of all `fronts` at falling prices of memory: from level to level the cheapest next steps of some of them, until
    a level saves so much more than the one before as FINEST tells apart.
    """
    at = [0] * len(fronts)
    found = [tuple(corners[0] for corners in fronts)]
    finest_B = FINEST * sum(corners[0].kept_B for corners in fronts)
    while any(place + 1 < len(corners) for place, corners in zip(at, fronts, strict=True)):
        steps = [
            (price_of_byte(corners[place], corners[place + 1]), kind)
            for kind, (place, corners) in enumerate(zip(at, fronts, strict=True))
            if place + 1 < len(corners)
        ]
        at[min(steps)[1]] += 1
        level = tuple(corners[place] for place, corners in zip(at, fronts, strict=True))
        if len(found) > 1 and _kept_B(found[-2]) - _kept_B(level) < finest_B:
            found.pop()
        found.append(level)
    return found


def _kept_B(level: Level) -> int:
    return sum(corner.kept_B for corner in level)


def mix_of(first: Level, then: Level) -> Mix:
    """The first blocks on level `first`, the others on level `then`."""
    return Mix(*(tuple(c.recompute for c in level) for level in (first, then)))


@dataclass(frozen=True)
class Step:
    """A mixture and how many blocks come first: seconds of what is recomputed for a micro-batch, and bytes that this saves, of
    one micro-batch of as many as wait on average.
    """

    mix: Mix
    first: int
    recompute_s: float
    saved_B: float


class Steps:
    """The mixtures of two `levels` for the blocks of a stage, whose kinds are `held`, that take the least of those that save as
    much: from nothing to everything. The first blocks are on the level that saves more.

    `counts_in_flight` [blocks]: in times of the average, the micro-batches that wait in each.
    """

    def __init__(self, levels: Levels, held: Sequence[int], counts_in_flight: Sequence[float]) -> None:
        self._levels, self._singly, blocks = levels.every, levels.singly, len(held)
        of_one = (*self._levels, *self._singly)
        self._takes_s = np.array([[corner.recompute_s for corner in level] for level in of_one])[:, list(held)]
        kept_B = np.array([[float(corner.kept_B) for corner in level] for level in of_one])[:, list(held)]
        self._saves_B = (kept_B[0] - kept_B) * np.array(counts_in_flight)
        pairs = combinations(range(len(self._levels)), 2)
        at = np.array([(0, 0, 0), *((first, more, less) for less, more in pairs for first in range(1, blocks + 1))]).T
        takes, saves = self._mixed(self._takes_s, at), self._mixed(self._saves_B, at)
        order = np.lexsort((-saves, takes))
        best = order[saves[order] > np.maximum.accumulate(np.concatenate([[-1.0], saves[order][:-1]]))]
        self._at = at[:, best].T.tolist()
        self.recompute_s: list[float] = takes[best].tolist()
        self.saved_B: list[float] = saves[best].tolist()

    def __len__(self) -> int:
        return len(self._at)

    def __getitem__(self, number: int) -> Step:
        first, more, less = self._at[number]
        mix = mix_of(self._levels[more], self._levels[less])
        return Step(mix, first, self.recompute_s[number], self.saved_B[number])

    def saving(self, wanted_B: float, low: int, high: int) -> int | None:
        """The number of the first one from `low` to before `high` that saves so much; None if none does."""
        found = bisect_left(self.saved_B, wanted_B, low, high)
        return found if found < high else None

    def singly(self, last: Level) -> list[Step]:
        """Those of which all blocks but the last one are on the level `last`, and this makes a single tensor again, the quickest
        first.
        """
        number = len(self._levels)
        all_but = self._levels.index(last)
        recompute_s = self._takes_s[all_but, :-1].sum() + self._takes_s[number:, -1]
        saved_B = self._saves_B[all_but, :-1].sum() + self._saves_B[number:, -1]
        blocks = self._takes_s.shape[1]
        steps = [
            Step(mix_of(last, level), blocks - 1, float(takes_s), float(saves_B))
            for level, takes_s, saves_B in zip(self._singly, recompute_s, saved_B, strict=True)
        ]
        return sorted(steps, key=lambda step: step.recompute_s)

    def _mixed(self, values: Array, at: NDArray[np.intp]) -> Array:
        """Sums of `values` [levels, blocks] over the blocks: [mixtures]."""
        first, more, less = at
        before = np.concatenate([np.zeros((len(values), 1)), values.cumsum(axis=1)], axis=1)
        found: Array = before[more, first] + before[less, -1] - before[less, first]
        return found
