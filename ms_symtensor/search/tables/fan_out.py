"""One tensor on its way to several readers: what they share is paid once.

Forward, MindSpore makes equal nodes on one tensor one (common sub-expressions), so that the ways to the readers form a
tree. Backward every reader sends its gradient along its own way. Only a first AllGather is shared there too, if all first
AllGathers of the tensor are alike, since MindSpore merges those before it differentiates: the gradients of its readers meet
at what it gathers, those of all others at the tensor itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.tables.pricing import Pricer
from ms_symtensor.search.tables.redistributions import Array, PairCost, common_s


@dataclass(frozen=True)
class FanOut:
    """The ways from one maker to each of its readers; tables are over (member, maker, reader 1, …, reader k)."""

    pairs: tuple[PairCost, ...]
    pricer: Pricer

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.pairs[0].forward_s.shape[:2], *(p.forward_s.shape[2] for p in self.pairs))

    @property
    def nothing(self) -> Array:
        """A table of zeros, in memory with the members side by side, as those of `pairs` are."""
        members, *paths = self.shape
        return np.zeros((*paths, members)).transpose(len(paths), *range(len(paths)))

    def spread(self, table: NDArray, *axes: int) -> NDArray:
        """`table` over some of the axes (maker 0, reader i at i + 1), with or without members, as one that broadcasts."""
        members = slice(None) if table.ndim > len(axes) else None
        index = (members, *(slice(None) if axis in axes else None for axis in range(len(self.pairs) + 1)))
        found: NDArray = table[index]
        return found

    def forward_s(self, chosen: Sequence[bool], start: int = 0) -> Array:
        """Seconds of the ways to the `chosen` readers from number `start` on: each pays what no earlier one has in common with
        it.
        """
        total = self.nothing
        for i, pair in enumerate(self.pairs):
            if i < start or not chosen[i]:
                continue
            total += self.spread(pair.forward_s, 0, i + 1)
            shared = np.zeros(())
            for j in range(i):
                if chosen[j]:
                    shared = np.maximum(shared, self.spread(common_s(self.pairs[j], pair), 0, j + 1, i + 1))
            total -= shared
        return total

    def backward_s(self, gradients: Sequence[int], others: int, maker_B: Array) -> Array:
        """Seconds of the way back from the readers, each of which stands for so many `gradients` (0: it sends none), and of the
        additions where these meet.

        `others` more users send theirs without a move. `maker_B` [members, maker]: bytes of the tensor as it is made.
        """
        total = self.nothing
        at_maker: Array = np.full((1,) * len(self.shape), float(sum(gradients) + others))
        sending = [(i, pair) for i, pair in enumerate(self.pairs) if gradients[i]]
        if sum(gradients) == 1:
            ((i, pair),) = sending
            total += self.spread(pair.backward_s + pair.gather_s, 0, i + 1)
        elif sending:
            merged = self._merged()
            apart = not merged.all()
            through: Array = np.zeros((1, *self.shape[1:]))
            once_s, gathered_B = np.zeros(()), np.zeros(())
            for i, pair in sending:
                back_s = self.spread(pair.backward_s, 0, i + 1)
                gather_s, whole_B = self.spread(pair.gather_s, 0, i + 1), self.spread(pair.gathered_B, 0, i + 1)
                if apart:
                    back_s = back_s + np.where(merged, 0.0, gather_s)
                    gather_s, whole_B = np.where(merged, gather_s, 0.0), np.where(merged, whole_B, 0.0)
                total += gradients[i] * back_s
                through = through + gradients[i] * (merged & self.spread(pair.gather >= 0, 0, i + 1))
                once_s, gathered_B = np.maximum(once_s, gather_s), np.maximum(gathered_B, whole_B)
            total += once_s + self._additions_s(through, gathered_B)
            at_maker = at_maker - through + (through > 0)
        return total + self._additions_s(at_maker, self.spread(maker_B, 0))

    def joining_s(self, gradients: Sequence[int], others: int, maker_B: Array) -> Array:
        """Seconds that the last reader adds to those of `backward_s` of the readers before it."""
        before_s = FanOut(self.pairs[:-1], self.pricer).backward_s(gradients[:-1], others, maker_B)
        with np.errstate(invalid="ignore"):  # what is impossible stays so without being counted again
            more_s = self.backward_s(gradients, others, maker_B) - before_s[..., None]
        return np.where(np.isnan(more_s), 0.0, more_s)

    def _merged(self) -> NDArray[np.bool_]:
        """Whether all first AllGathers of the tensor are alike."""
        merged = np.ones((1, *self.shape[1:]), bool)
        for i, pair in enumerate(self.pairs):
            mine = self.spread(pair.gather, 0, i + 1)
            for j in range(i):
                other = self.spread(self.pairs[j].gather, 0, j + 1)
                merged &= (mine < 0) | (other < 0) | (mine == other)
        return merged

    def _additions_s(self, terms: Array, bytes_: Array) -> Array:
        """Seconds of adding so many tensors of `bytes_` each; one alone needs no addition."""
        if not (terms >= 2).any():
            return np.zeros(())
        found: Array = np.where(terms >= 2, self.pricer.local_s("AddN", (terms + 1) * bytes_), 0.0)
        return found
