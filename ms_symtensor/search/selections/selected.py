"""Plans that recompute operators inside blocks: a plan that recomputes whole blocks, made faster, its layouts as they are.

From the fronts of the blocks follows a row of levels, each a corner of every kind's front at one price of a byte, from nothing
to everything. The first blocks are on a level that saves more, as few of them as fit, the others on another one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.program.settings import Recompute
from ms_symtensor.search.folded.memory import PeakMemory
from ms_symtensor.search.folded.mix import Mix
from ms_symtensor.search.selections.selection import Selected, front, price_of_byte

SELECTING = "; then exact selections inside blocks, by minimum cuts"
"""What the method of a search adds to."""


WHOLE_BLOCK = Recompute()


Level = tuple[Selected, ...]
"""A point of the front of every kind of blocks."""


@dataclass(frozen=True)
class Levels:
    """`every` level of corners, from nothing to everything; and, where they were asked for, those at which a tensor of one block
    of a kind is recomputed `singly`.
    """

    every: tuple[Level, ...] = ()
    singly: tuple[Level, ...] = ()


def levels(
    peaks: PeakMemory,
    cluster: Cluster,
    only: bool = False,
    singly: bool = False,
) -> Levels:
    """The levels of the blocks of a network; none where something in them cannot be chosen.

    `peaks`: those with nothing recomputed. `only`: without those at which a block is recomputed as a whole. `singly`: single
    tensors are asked for. Blocks that MindSpore compiles once for all their calls share their marks, so that none is chosen for
    them.
    """
    shorts = peaks.shorts
    if any(parameter.in_shared_block for parameter in shorts.graph.parameters):
        return Levels()
    runs = shorts.short_runs(shorts.runs(0))
    graph, plan, program = shorts.of(runs), peaks.plan(runs), peaks.program(runs)
    blocks = [names[len(names) // 2] for names in shorts.named(runs)[1::2]]
    fronts = [front(graph, plan, program, block, cluster, shorts.known, singly) for block in blocks]
    there = [one for one in fronts if one is not None]
    if len(there) < len(fronts):
        return Levels()
    every = _merged([one.corners for one in there])
    plain = tuple(one.corners[0] for one in there)
    return Levels(
        tuple(level for level in every if not (only and WHOLE_BLOCK in (c.recompute for c in level))),
        tuple((*plain[:kind], p, *plain[kind + 1 :]) for kind, one in enumerate(there) for p in one.singly),
    )


def _merged(fronts: Sequence[Sequence[Selected]]) -> list[Level]:
    """The corners of all `fronts` at falling prices of memory: from level to level the cheapest next step of one of them."""
    at = [0] * len(fronts)
    found = [tuple(corners[0] for corners in fronts)]
    while any(place + 1 < len(corners) for place, corners in zip(at, fronts, strict=True)):
        steps = [
            (price_of_byte(corners[place], corners[place + 1]), kind)
            for kind, (place, corners) in enumerate(zip(at, fronts, strict=True))
            if place + 1 < len(corners)
        ]
        at[min(steps)[1]] += 1
        found.append(tuple(corners[place] for place, corners in zip(at, fronts, strict=True)))
    return found


def mix_of(first: Level, then: Level) -> Mix:
    """The first blocks on level `first`, the others on level `then`."""
    return Mix(*(tuple(c.recompute for c in level) for level in (first, then)))
