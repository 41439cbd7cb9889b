"""Closures of least weight: what to choose where one choice implies others. Exact, by a minimum cut (Picard 1976).

Written out because scipy's `maximum_flow` has capacities of 32 bits, too few for picoseconds times bytes.
"""

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
    return frozenset(item for item, place in number.items() if reached[place])


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
    return [item for item, place in number.items() if reached[place]], flows


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
        number = len(self.ends)
        self.of[start].append(number)
        self.of[end].append(number + 1)
        self.ends += (end, start)
        self.left += (capacity, 0)

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
