"""What of a block is worth recomputing: the front of seconds against bytes kept until the backward pass.

For a price λ of a byte every tensor of the block that the backward pass needs is either kept or recomputed:

    min  Σ_v c_v X_v + λ Σ_t b_t (N_t - Z_t)        N: needed, X: recomputed, Z: needed and recomputed, so not kept
    Z_t <= N_t, Z_t <= X_v(t);   X_v <= N_u for every u that v reads;   N_t = 1 where a gradient reads t

over the nodes v (seconds c) and tensors t (bytes b) of the forward program. Every constraint says that one choice implies
another, so this is a closure of least weight, solved exactly by a minimum cut (`closure`). The corners of the lower hull of
the front are found by solving at the slope between two known ones, until no new one is found (Eisner and Severance 1976)
or those on both sides are close (FINEST). `marks`: what MindSpore can be told of it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ms_symtensor.program.program import Program
from ms_symtensor.program.settings import Recompute
from ms_symtensor.search.selections.closure import Closures
from ms_symtensor.search.selections.forward_block import ForwardBlock, forward_block
from ms_symtensor.search.selections.marks import Item, Marks, marks
from ms_symtensor.tensor.graph import Graph

FINEST = 0.01
"""empirical: corners of the front that differ by less than this share of a block's bytes are not told apart: a stage mixes two
of them block by block anyway. The front of a block with experts has fifty, half of them that near."""


ROUNDING = 1e-9
"""By such a share sums in another order may differ."""


@dataclass(frozen=True)
class Selected:
    """A point of the front: what is recomputed (None: nothing), the seconds of that, the bytes that a block keeps then."""

    recompute: Recompute | None
    recompute_s: float
    kept_B: int


@dataclass(frozen=True)
class Front:
    """The `corners` of a block's front, from nothing to everything; and where it was asked for, every tensor recomputed
    `singly`.
    """

    corners: tuple[Selected, ...]
    singly: tuple[Selected, ...] = ()


def front(
    graph: Graph, program: Program, block: str, taken_s: Mapping[int, float], singly: bool = False
) -> Front | None:
    """The front of `block` in `program`, the partitioned `graph` with nothing recomputed, whose nodes take so many seconds
    (`cost.step.forward_s`). `singly`: single tensors are asked for. None where an operator of the block was written in pieces.
    """
    if any(op.body is not None for op in graph.ops if op.block == block):
        return None
    of = forward_block(graph, program, block, taken_s)
    nothing = Selected(None, 0.0, sum(of.size_B[t] for t in {of.root(t) for t in of.wanted}))
    choices = Choices(of, marks(of))
    falling = sorted(choices.selected(choices.corners), key=lambda point: (-point.kept_B, point.recompute_s))
    single = choices.selected(choices.singly()) if singly else ()
    return Front(tuple(hull([nothing, *falling])), tuple(single))


def hull(points: Sequence[Selected]) -> list[Selected]:
    """Those of `points`, of which each keeps less than the one before it, between which no other one lies lower."""
    found: list[Selected] = []
    for point in points:
        if found and point.kept_B >= found[-1].kept_B:
            continue
        while len(found) > 1 and price_of_byte(found[-2], found[-1]) >= price_of_byte(found[-1], point):
            found.pop()
        found.append(point)
    return found


def price_of_byte(more: Selected, less: Selected) -> float:
    """Seconds for every byte less that is kept."""
    return (less.recompute_s - more.recompute_s) / (more.kept_B - less.kept_B)


@dataclass(frozen=True)
class Choice:
    """A solution: seconds, bytes, and what is chosen of it."""

    recompute_s: float
    kept_B: int
    items: frozenset[Item]


@dataclass(frozen=True)
class Choices:
    """What a block may recompute as far as its `marks` can say it."""

    of: ForwardBlock
    marks: Marks

    def selected(self, choices: Sequence[Choice]) -> list[Selected]:
        return [
            Selected(self.marks.recompute(one.items), one.recompute_s, one.kept_B)
            for one in choices
            if any(kind == "made" for kind, _ in one.items)
        ]

    # -- one price -----------------------------------------------------------------------------------------------------

    @cached_property
    def _items(self) -> list[Item]:
        """All variables: what is needed, recomputed and saved."""
        needed: list[Item] = [("needed", t) for t in self.of.size_B]
        return [
            *needed,
            *(("made", number) for number in self.marks.makeable),
            *(("saved", t) for t in self.marks.savable),
        ]

    @cached_property
    def _closures(self) -> Closures:
        number = {item: place for place, item in enumerate(self._items)}
        pairs = [(number[item], number[other]) for item, other in self.marks.implies]
        return Closures(len(number), pairs, wanted=[number["needed", t] for t in self.of.wanted])

    def at(self, of_B: float, of_time: float = 1.0) -> Choice:
        """The best choice where a byte costs `of_B` and a second `of_time`."""
        worth = {"needed": of_B, "saved": -of_B}
        weights = [
            of_time * self.of.cost_s[number] if kind == "made" else worth[kind] * self.of.size_B[number]
            for kind, number in self._items
        ]
        chosen = self._closures.least(weights)
        return self._choice({self._items[place] for place in chosen})

    def _choice(self, items: set[Item]) -> Choice:
        """The choice of `items`, and of what these save."""
        saved: set[Item] = {
            ("saved", t) for t in self.marks.savable if ("needed", t) in items and ("made", self.of.maker[t]) in items
        }
        items |= saved
        recompute_s = math.fsum(self.of.cost_s[number] for kind, number in items if kind == "made")
        kept_B = sum(self.of.size_B[t] for kind, t in items if kind == "needed" and ("saved", t) not in items)
        return Choice(recompute_s, kept_B, frozenset(items))

    # -- the front -----------------------------------------------------------------------------------------------------

    @cached_property
    def corners(self) -> list[Choice]:
        most, least = self.at(0.0), self.at(1.0, 0.0)
        return [most, *self._corners_between(most, least)]

    def _corners_between(self, more: Choice, less: Choice) -> Iterator[Choice]:
        """The corners behind `more` up to `less`, which keeps less; none so near to another one that they are all but it."""
        if less.kept_B >= more.kept_B:
            return
        if more.kept_B - less.kept_B < FINEST * sum(self.of.size_B.values()):
            yield less
            return
        price = (less.recompute_s - more.recompute_s) / (more.kept_B - less.kept_B)
        found = self.at(price)
        gain_s = less.recompute_s - found.recompute_s + price * (less.kept_B - found.kept_B)
        if gain_s > ROUNDING * less.recompute_s:
            yield from self._corners_between(more, found)
            yield from self._corners_between(found, less)
        else:
            yield less

    def singly(self) -> list[Choice]:
        """Every tensor recomputed by itself, with what that needs."""
        return [self._choice({*self.corners[0].items, *self._implied(("saved", t))}) for t in self.marks.savable]

    def _implied(self, item: Item) -> set[Item]:
        """`item`, and all that follows from it."""
        found, todo = {item}, [item]
        while todo:
            new = self.marks.follows[todo.pop()] - found
            found |= new
            todo += new
        return found
