"""What a definition of an operator consists of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ms_symtensor.bridge.proof.splice import Call


@dataclass(frozen=True)
class Group:
    """The global ranks of a communication group, as seen by one of them: its place among them."""

    ranks: tuple[int, ...]
    position: int

    @property
    def size(self) -> int:
        return len(self.ranks)


@dataclass(frozen=True)
class Function:
    """A class of cells in one of the modules of definitions with its arguments.

    `inner`: a cell that it takes as its first one.

    `written`: which of its operands are parameters that it changes: parameters of the cell, in the order of their names.

    `takes_position`: its last input is the rank's place in the operator's group.
    """

    cell: str
    arguments: tuple[Any, ...] = ()
    inner: "Function | None" = None
    takes_position: bool = False
    written: tuple[int, ...] = ()


Operand = int | tuple[int, int]


@dataclass(frozen=True)
class Definition:
    """What stands for a call: functions and sums over the ranks, one after the other; the first takes `operands`.

    An operand (i, j) is element j of the tuple that operand i is.

    `position` is this rank's place in the operator's group. The sums are over that group, or over the ranks of `pair`.
    """

    operands: tuple[Operand, ...]
    steps: tuple[Function | str, ...]
    position: int | None = None
    pair: tuple[int, int] | None = None


GroupOf = Callable[[str], Group]


@dataclass(frozen=True)
class Substitute:
    """How an operator is defined (None: this call can stay), and in words."""

    described: str
    define: Callable[[Call, GroupOf], Definition | None]
