"""How far a stage goes: which mixtures of levels there are for its blocks, and what each takes and saves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.folded.mix import WHOLE, Mix
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
    """The mixtures of `levels` for the blocks of a stage, whose kinds are `held`.

    `counts_in_flight` [blocks]: in times of the average, the micro-batches that wait in each; where they are not equal,
    those mixtures only of which no block saves more of one than a block before it.
    """

    def __init__(self, levels: Levels, held: Sequence[int], counts_in_flight: Sequence[float]) -> None:
        self.every, self.blocks, self.falling = levels.every, len(held), min(counts_in_flight) < max(counts_in_flight)
        self._of_one, self._singly = (*levels.every, *levels.between), levels.singly
        of_one = (*self._of_one, *self._singly)
        recompute_s = np.array([[corner.recompute_s for corner in level] for level in of_one])[:, list(held)]
        kept_B = np.array([[float(corner.kept_B) for corner in level] for level in of_one])[:, list(held)]
        each_B = kept_B[0] - kept_B
        self._each_B, saved_B = each_B, each_B * np.array(counts_in_flight)
        self._recompute_s, self._saved_B = recompute_s[: len(self.every)], saved_B[: len(self.every)]
        number = len(self._of_one)
        self._one_recompute_s, self._one_saved_B = recompute_s[:number], saved_B[:number]
        self._single_recompute_s, self._single_saved_B = recompute_s[number:], saved_B[number:]

    def neighbouring(self) -> "Neighbouring":
        """Those of two neighbouring levels, from nothing to everything."""
        sums = (_before(self._recompute_s), _before(self._saved_B))
        recompute_s, saved_B = ((of[1:] + of[:-1, -1:] - of[:-1])[:, 1:].ravel().tolist() for of in sums)
        return Neighbouring(self.every, self.blocks, (0.0, *recompute_s), (0.0, *saved_B))

    def singly(self) -> list[Step]:
        """Those of which all blocks but the last one are on the last level, and this makes a single tensor again, the quickest
        first.
        """
        recompute_s = self._recompute_s[-1, :-1].sum() + self._single_recompute_s[:, -1]
        saved_B = self._saved_B[-1, :-1].sum() + self._single_saved_B[:, -1]
        steps = [
            Step(mix_of(self.every[-1], level), self.blocks - 1, float(takes_s), float(saves_B))
            for level, takes_s, saves_B in zip(self._singly, recompute_s, saved_B, strict=True)
        ]
        return sorted(steps, key=lambda step: step.recompute_s)

    def quickest(self, saved_B: float) -> Step | None:
        """The one of any two levels, and anything of a block between, that takes the least of those that save so much; None if
        none does.
        """
        takes_s, saves_B = _mixed(self._recompute_s, self._one_recompute_s), _mixed(self._saved_B, self._one_saved_B)
        takes_s = np.where(saves_B >= saved_B, takes_s, np.inf)
        if self.falling:
            first, of_one = (self._each_B[: len(of)].min(axis=1) for of in (self._saved_B, self._one_saved_B))
            falls = (first[:, None, None] >= of_one[:, None]) & (of_one[:, None] >= first)
            takes_s = np.where(falls, takes_s, np.inf)
        at = np.unravel_index(np.argmin(takes_s), takes_s.shape)
        if not np.isfinite(takes_s[at]):
            return None
        first, *levels = map(int, at)
        more, between, less = self.every[levels[0]], self._of_one[levels[1]], self.every[levels[2]]
        return Step(mix_of(more, less, between), first, float(takes_s[at]), float(saves_B[at]))


@dataclass(frozen=True)
class Neighbouring(Sequence[Step]):
    """The steps of two neighbouring levels of `every`, of so many `blocks`, with seconds and bytes saved of each."""

    every: Sequence[Level]
    blocks: int
    recompute_s: Sequence[float]
    saved_B: Sequence[float]

    def __len__(self) -> int:
        return len(self.saved_B)

    @overload
    def __getitem__(self, number: int) -> Step: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Step]: ...
    def __getitem__(self, number: int | slice) -> Step | Sequence[Step]:
        if isinstance(number, slice):
            return [self[n] for n in range(*number.indices(len(self)))]
        number = range(len(self))[number]
        if not number:
            return Step(WHOLE, 0, 0.0, 0.0)
        level, first = divmod(number - 1, self.blocks)
        mix = mix_of(self.every[level + 1], self.every[level])
        return Step(mix, first + 1, self.recompute_s[number], self.saved_B[number])

    def are_alike(self, first: int, second: int) -> bool:
        """Whether both are there, and differ in nothing but how many blocks are on the higher one of two levels."""
        return (
            0 < first < len(self)
            and 0 < second < len(self)
            and (first - 1) // self.blocks == (second - 1) // self.blocks
        )

    def more_B(self, first: int, second: int) -> float:
        """Bytes that the second one saves more."""
        return self.saved_B[second] - self.saved_B[first]

    def saving(self, wanted_B: float, low: int, high: int) -> int | None:
        """The number of the first one from `low` to before `high` that saves so much; None if none does."""
        return next((n for n in range(low, high) if self.saved_B[n] >= wanted_B), None)


def _before(values: Array) -> Array:
    """Sums over the first blocks, [levels, blocks] -> [levels, 1 + blocks]."""
    return np.concatenate([np.zeros((len(values), 1)), values.cumsum(axis=1)], axis=1)


def _mixed(values: Array, of_one: Array) -> Array:
    """The first blocks on one level, the next one on another of those `of_one` block, and those behind it on a third one: [first
    blocks, level, level, level].
    """
    sums = _before(values)
    behind = sums[:, -1:] - sums
    mixed: Array = sums.T[:-1, :, None, None] + of_one.T[:, None, :, None] + behind.T[1:, None, None, :]
    return mixed
