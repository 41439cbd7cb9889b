"""Ways to recompute blocks, between which the blocks of a stage are divided: the first ones one way, the others another one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ms_symtensor.program.settings import Recompute

Ways = tuple[Recompute | None, ...]
"""What of the blocks of every kind is recomputed; None: nothing."""


@dataclass(frozen=True)
class Mix:
    """`first`: what the first blocks recompute, of every kind; `then`: what the others do. Empty: everything, nothing."""

    first: Ways = ()
    then: Ways = ()

    def way(self, kind: int, is_first: bool) -> Recompute | None:
        """What a block of `kind` recomputes that is one of the first, or not."""
        if paths := self.first if is_first else self.then:
            return paths[kind]
        return Recompute() if is_first else None

    def recompute(self, runs: Sequence[Sequence[str]]) -> Mapping[str, Recompute]:
        """The setting for blocks that are named run by run: of every kind the first ones, then the others."""
        return {
            name: way
            for number, names in enumerate(runs)
            if (way := self.way(number // 2, number % 2 == 0)) is not None
            for name in names
        }


WHOLE = Mix()
"""Blocks are recomputed as a whole, or not at all."""
