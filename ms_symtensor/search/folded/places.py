"""Where in a network something happens: before its repeated blocks, in a block of some kind, or after them.

What is counted in a network with few blocks is then known for any number of blocks. The first and the last block of a kind
are places of their own, since what they move differs from what the others do: so every place costs what its operators cost,
never less than nothing, and any run of places costs the sum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from ms_symtensor.search.folded.folding import Fold
from ms_symtensor.tensor.graph import Graph, Op

Counts = tuple[float, ...]
"""How often something happens at every place: before the blocks; in the first, a middle and the last block, kind by kind;
after the blocks.
"""


ONE_KIND = 5
"""Places of a network whose repeated blocks are of one kind."""


@dataclass(frozen=True)
class Places:
    """`kinds`: the names of the repeated blocks, kind by kind, of which so many in a row take turns as `turns` says. `early`:
    operators outside them and before the first one.
    """

    kinds: tuple[tuple[str, ...], ...]
    turns: tuple[int, ...]
    early: frozenset[str]

    @property
    def blocks(self) -> tuple[str, ...]:
        """The repeated blocks, in the order of the network."""
        left = [iter(names) for names in self.kinds]
        return tuple(next(left[kind]) for kind in kinds_in_order(self.depths, self.turns))

    @property
    def depths(self) -> tuple[int, ...]:
        """How many there are of every kind, with 1 before and after."""
        return (1, *map(len, self.kinds), 1)

    @property
    def number(self) -> int:
        return 3 * len(self.kinds) + 2

    @property
    def behind(self) -> Counts:
        """The counts of what happens once behind the blocks."""
        return (*(0.0,) * (self.number - 1), 1.0)

    def counts(self, happens: Mapping[Op | None, int]) -> Counts:
        """The counts of what happens so many times at each operator (None: at the network's inputs).

        A middle block is the average of all between the first and the last of its kind.
        """
        found = [0.0] * self.number
        for op, count in happens.items():
            if op is None or op.name in self.early:
                found[0] += count
            else:
                found[self._place_of.get(op.block, -1)] += count
        for kind, names in enumerate(self.kinds):
            found[3 * kind + 2] /= max(len(names) - 2, 1)
        return tuple(found)

    @cached_property
    def _place_of(self) -> Mapping[str | None, int]:
        found: dict[str | None, int] = {}
        for kind, names in enumerate(self.kinds):
            found.update(dict.fromkeys(names, 3 * kind + 2))
            found.update({names[-1]: 3 * kind + 3, names[0]: 3 * kind + 1})
        return found


def occurrences(depths: Sequence[int]) -> tuple[int, ...]:
    """How often every place is there in a network with so many blocks of every kind; 1 before and after them. The only block of a
    kind is its first one.
    """
    blocks = (n for depth in depths[1:-1] for n in ((1, depth - 2, 1) if depth > 1 else (1, 0, 0)))
    return (depths[0], *blocks, depths[-1])


def kinds_in_order(depths: Sequence[int], turns: Sequence[int]) -> list[int]:
    """The kind of every block, in the order of the network: `turns` says how many kinds in a row take turns."""
    found: list[int] = []
    for first, group in zip(accumulate(turns, initial=0), turns, strict=False):
        found += [*range(first, first + group)] * depths[1 + first]
    return found


def places(graph: Graph, folded: Fold) -> Places:
    """The places of `graph`."""
    kinds = folded.kinds
    inside = {name for names in kinds for name in names}
    early = []
    for op in graph.ops:
        if op.block in inside:
            break
        early.append(op.name)
    return Places(kinds, folded.turns, frozenset(early))
