"""Closures of least weight: what to choose where one choice implies others. Exact, by a minimum cut (Picard 1976).

Written out because scipy's `maximum_flow` has capacities of 32 bits, too few for picoseconds times bytes.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

PICOSECONDS = 10**12
"""Of a second: weights that are seconds are counted in whole ones."""

Item = TypeVar("Item", bound=Hashable)
Pair = tuple[int, int]
_SOURCE, _SINK = 0, 1


def least_closure(
    weights: Mapping[Item, int], implies: Iterable[tuple[Item, Item]], wanted: Iterable[Item]
) -> Set[Item]:
    """The smallest of the sets of items with the least weight that hold all of `wanted` and, with an item, what it implies.

    `weights` in whole numbers, so that sums are exact; an item of negative weight is a gain.
    """
    number = {item: place for place, item in enumerate(weights)}
    pairs = [(number[item], number[other]) for item, other in implies]
    closures = Closures(len(number), pairs, wanted=[number[item] for item in wanted])
    chosen, _ = closures.least(list(weights.values()))
    items = list(weights)
    return frozenset(items[place] for place in chosen)


class Closures:
    """Closures of least weight of so many items, known by their numbers, under `implies` and `priced`, with all of `wanted`:
    the network of which the least cut is one is laid out once for all weights.
    """

    def __init__(
        self, items: int, implies: Iterable[Pair], priced: Sequence[Pair] = (), wanted: Iterable[int] = ()
    ) -> None:
        self._items, self._priced = items, len(priced)
        self._ends: list[int] = []
        self._of: list[list[int]] = [[] for _ in range(2 + items)]
        for item in range(items):
            self._edge(_SOURCE, 2 + item)
            self._edge(2 + item, _SINK)
        for item, other in (*implies, *priced):
            self._edge(2 + item, 2 + other)
        self._first_wanted = len(self._ends)
        for item in wanted:
            self._edge(_SOURCE, 2 + item)

    def _edge(self, start: int, end: int) -> None:
        """An edge, whose number is even, and the one back, with the number after it."""
        self._of[start].append(len(self._ends))
        self._of[end].append(len(self._ends) + 1)
        self._ends += (end, start)

    def least(self, weights: Sequence[int]) -> tuple[list[int], list[int]]:
        """The smallest closure of the least weight; and prices at which no set of items that keeps `implies` alone weighs less,
        where one that breaks an implication of `priced` pays its price: what flows there (linear duality).
        """
        left = list(chain.from_iterable((-w, 0, 0, 0) if w < 0 else (0, 0, w, 0) for w in weights))
        left += [1 + sum(map(abs, weights)), 0] * ((len(self._ends) - len(left)) // 2)
        flow = _Flow(self._ends, self._of, left)
        reached = flow.cut()
        first = self._first_wanted - 2 * self._priced
        return [n for n in range(self._items) if reached[2 + n]], left[first + 1 : self._first_wanted : 2]


@dataclass(frozen=True)
class _Flow:
    """A network: where every edge ends, the edges `of` every node, and what is `left` of their capacities; `cut` finds its
    maximum flow (Dinic 1970).
    """

    ends: Sequence[int]
    of: Sequence[Sequence[int]]
    left: list[int]

    def cut(self) -> list[bool]:
        """Which nodes the source still reaches once no more flows: those before the least cut."""
        while (left := self._distances())[_SOURCE] >= 0:
            self._push(left)
        reached = [False] * len(self.of)
        reached[_SOURCE] = True
        todo = [_SOURCE]
        for node in todo:  # grows
            for edge in self.of[node]:
                if self.left[edge] and not reached[self.ends[edge]]:
                    reached[self.ends[edge]] = True
                    todo.append(self.ends[edge])
        return reached

    def _distances(self) -> list[int]:
        """The edges from every node to the sink on a shortest way that is not full, as far as the source's; -1 beyond."""
        ends, left, of = self.ends, self.left, self.of
        far = [-1] * len(of)
        far[_SINK] = 0
        todo = [_SINK]
        for node in todo:  # grows
            further = far[node] + 1
            for edge in of[node]:
                if left[edge ^ 1] and far[ends[edge]] < 0:
                    far[ends[edge]] = further
                    todo.append(ends[edge])
            if far[_SOURCE] >= 0:
                break
        return far

    def _push(self, far: list[int]) -> None:
        """Let as much flow to the sink on shortest ways as can: one after the other, each from where the last one was full."""
        ends, left, of = self.ends, self.left, self.of
        following = [0] * len(of)  # the edges of every node that are left
        path: list[int] = []
        node = _SOURCE
        while True:
            if node == _SINK:
                amount = min([left[edge] for edge in path])
                full = len(path)
                for place in range(len(path) - 1, -1, -1):
                    edge = path[place]
                    left[edge] -= amount
                    left[edge ^ 1] += amount
                    if not left[edge]:
                        full = place
                node = ends[path[full] ^ 1]
                del path[full:]
            edges, nearer = of[node], far[node] - 1
            for number in range(following[node], len(edges)):
                edge = edges[number]
                if left[edge] and far[ends[edge]] == nearer:
                    following[node] = number
                    path.append(edge)
                    node = ends[edge]
                    break
            else:  # a dead end: the edge that led here is no use
                following[node] = len(edges)
                if not path:
                    return
                node = ends[path.pop() ^ 1]
                following[node] += 1
