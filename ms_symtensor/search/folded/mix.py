"""Ways to recompute blocks, between which the blocks of a stage are divided: the first ones one way, the others another one, and
perhaps one block between them a third one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ms_symtensor.program.settings import Recompute

ReshardPaths = tuple[Recompute | None, ...]
"""What of the blocks of every kind is recomputed; None: nothing."""


@dataclass(frozen=True)
class Mix:
    """`first`: what the first blocks recompute, of every kind; `then`: what the others do. Empty: everything, nothing.

    `between`: what the one block right behind the first ones does; empty: as the others.
    """

    first: ReshardPaths = ()
    then: ReshardPaths = ()
    between: ReshardPaths = ()

    def way(self, kind: int, behind: int) -> Recompute | None:
        """What a block of `kind` recomputes that is so many blocks behind the last one of the first ones; less than 1: it is
        one of them.
        """
        if behind == 1 and self.between:
            return self.between[kind]
        paths = self.first if behind < 1 else self.then
        if paths:
            return paths[kind]
        return Recompute() if behind < 1 else None

    def parts(self, held: Sequence[int], first: int) -> tuple[Sequence[int], ...]:
        """The blocks of a stage, whose kinds are `held`, that compute the same again: the first ones, and those behind them."""
        ends = (0, first, first + 1, len(held)) if self.between else (0, first, len(held))
        return tuple(held[start:end] for start, end in pairwise(ends))

    def recompute(self, runs: Sequence[Sequence[str]]) -> Mapping[str, Recompute]:
        """The setting for blocks that are named run by run: of every kind those of the `parts`, one part after the other."""
        behind = (0, 1, 2) if self.between else (0, 1)
        return {
            name: way
            for number, names in enumerate(runs)
            if (way := self.way(number // len(behind), behind[number % len(behind)])) is not None
            for name in names
        }


WHOLE = Mix()
"""Blocks are recomputed as a whole, or not at all."""
