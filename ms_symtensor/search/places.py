"""Where in a network something happens: before its repeated blocks, in a block of some kind, or after them.

What is counted in a network with few blocks is then known for any number of blocks.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ms_symtensor.search.folding import Fold, kinds_of_blocks
from ms_symtensor.tensor.graph import Graph, Op

Counts = tuple[float, ...]
"""How often something happens: before the blocks, in one block of every kind, after the blocks."""


@dataclass(frozen=True)
class Places:
    """`kinds`: the names of the repeated blocks, kind by kind. `early`: operators outside them and before the first one.

    `depths`: how many blocks of every place the network has that these stand for; one of what is before and after.
    """

    kinds: tuple[tuple[str, ...], ...]
    early: frozenset[str]
    depths: tuple[int, ...]

    @property
    def number(self) -> int:
        return len(self.kinds) + 2

    def counts(self, occurrences: Mapping[Op | None, int]) -> Counts:
        """The counts of what happens so many times at each operator (None: at the network's inputs).

        A block in the middle of its kind stands for all; what first and last blocks have more or less is counted outside.
        """
        found = [0.0] * self.number
        middle = {names[min(1, len(names) - 2)]: kind for kind, names in enumerate(self.kinds)}
        for op, count in occurrences.items():
            if op is None or op.name in self.early:
                found[0] += count
            elif op.block in middle:
                kind = middle[op.block]
                found[kind + 1] += count
                found[-1] += count * (1 - len(self.kinds[kind]))
            else:
                found[-1] += count
        return tuple(found)


def places(graph: Graph, folded: Fold, depths: tuple[int, ...] | None = None) -> Places:
    """The places of `graph`, which may be short for one of the given `depths`."""
    kinds = kinds_of_blocks(graph, folded)
    inside = {name for names in kinds for name in names}
    early = []
    for op in graph.ops:
        if op.block in inside:
            break
        early.append(op.name)
    return Places(kinds, frozenset(early), depths or (1, *map(len, kinds), 1))
