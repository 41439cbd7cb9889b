"""Closures of least weight: what to choose where one choice implies others. Exact, by a minimum cut (Picard 1976).

Written out because scipy's `maximum_flow` has capacities of 32 bits, too few for picoseconds times bytes.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from typing import TypeVar

PICOSECONDS = 10**12
"""Of a second: weights that are seconds are counted in whole ones."""

Item = TypeVar("Item", bound=Hashable)
_SOURCE, _SINK = 0, 1


def least_closure(
    weights: Mapping[Item, int], implies: Iterable[tuple[Item, Item]], wanted: Iterable[Item]
) -> Set[Item]:
    """The smallest of the sets of items with the least weight that hold all of `wanted` and, with an item, what it implies.

    `weights` in whole numbers, so that sums are exact; an item of negative weight is a gain.
    """
    number, flow = _network(weights, implies, wanted)
    reached = flow.cut()
    return frozenset(item for item, place in number.items() if reached[place] >= 0)


def prices_of_implications(
    weights: Mapping[Item, int], implies: Iterable[tuple[Item, Item]], priced: Sequence[tuple[Item, Item]]
) -> tuple[list[Item], list[int]]:
    """The closure of least weight under `implies` and `priced`; and prices at which no set of items that keeps `implies` alone
    weighs less, where one that breaks an implication of `priced` pays its price: what flows there (linear duality).
    """
    number, flow = _network(weights, [*implies, *priced], ())
    reached = flow.cut()
    first = len(flow.left) - 2 * len(priced)
    flows = [flow.left[first + 2 * place + 1] for place in range(len(priced))]
    return [item for item, place in number.items() if reached[place] >= 0], flows


def _network(
    weights: Mapping[Item, int], implies: Iterable[tuple[Item, Item]], wanted: Iterable[Item]
) -> tuple[Mapping[Item, int], "_Flow"]:
    """The number of every item in the network of capacities of which the least cut is the closure; and that network."""
    number = {item: 2 + place for place, item in enumerate(weights)}
    without_limit = 1 + sum(map(abs, weights.values()))
    flow = _Flow(2 + len(number))
    for item, weight in weights.items():
        if weight > 0:
            flow.edge(number[item], _SINK, weight)
        elif weight < 0:
            flow.edge(_SOURCE, number[item], -weight)
    for item, other in implies:
        flow.edge(number[item], number[other], without_limit)
    for item in wanted:
        flow.edge(_SOURCE, number[item], without_limit)
    return number, flow


class _Flow:
    """A network of capacities; `cut` finds its maximum flow (Dinic 1970)."""

    def __init__(self, nodes: int) -> None:
        self.ends: list[int] = []
        self.left: list[int] = []
        self.of: list[list[int]] = [[] for _ in range(nodes)]

    def edge(self, start: int, end: int, capacity: int) -> None:
        for node, other, room in ((start, end, capacity), (end, start, 0)):
            self.of[node].append(len(self.ends))
            self.ends.append(other)
            self.left.append(room)

    def cut(self) -> list[int]:
        """The distance of every node from the source once no more flows, -1 where none is reached: beyond the least cut."""
        while (level := self._levels())[_SINK] >= 0:
            following = [0] * len(self.of)
            while self._pushed(level, following):
                pass
        return level

    def _levels(self) -> list[int]:
        level = [-1] * len(self.of)
        level[_SOURCE] = 0
        todo = deque([_SOURCE])
        while todo:
            node = todo.popleft()
            for edge in self.of[node]:
                if self.left[edge] and level[self.ends[edge]] < 0:
                    level[self.ends[edge]] = level[node] + 1
                    todo.append(self.ends[edge])
        return level

    def _pushed(self, level: list[int], following: list[int]) -> int:
        """What one more path to the sink carries, 0 if there is none; `following`: the edges of every node that are left."""
        path: list[int] = []
        node = _SOURCE
        while node != _SINK:
            edges = self.of[node]
            while following[node] < len(edges):
                edge = edges[following[node]]
                if self.left[edge] and level[self.ends[edge]] == level[node] + 1:
                    break
                following[node] += 1
            if following[node] < len(edges):
                path.append(edge)
                node = self.ends[edge]
            elif path:  # a dead end: the edge that led here is no use
                back = path.pop()
                node = self.ends[back ^ 1]
                following[node] += 1
            else:
                return 0
        amount = min(self.left[edge] for edge in path)
        for edge in path:
            self.left[edge] -= amount
            self.left[edge ^ 1] += amount
        return amount
