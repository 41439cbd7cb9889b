"""Ways to recompute blocks, between which the blocks of a stage are divided: the first ones one way, the others another one."""

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


WHOLE = Mix()
"""Blocks are recomputed as a whole, or not at all."""
