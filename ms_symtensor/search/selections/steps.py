"""How far a stage goes: which mixtures of levels there are for its blocks, and what each takes and saves."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.folded.mix import Mix
from ms_symtensor.search.selections.selected import Level, Levels, mix_of

Array = NDArray[np.float64]


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
