"""Closures of least weight: what to choose where one choice implies others, by a maximum flow (Picard 1976): what items gain
flows along implications to what others cost, and those are chosen whose gain finds no room.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

LARGEST = 1 << 30
"""A capacity that no flow fills: SciPy's have 32 bits, so that all weights together are counted as a quarter of it."""

Pair = tuple[int, int]


class Closures:
    """Closures of least weight of so many items, known by their numbers, under `implies`, with all of `wanted`: what implies what
    is laid out once for all weights.
    """

    def __init__(self, items: int, implies: Iterable[Pair], wanted: Iterable[int] = ()) -> None:
        self._items, self._wanted = items, list(wanted)
        source, sink, pairs = items, items + 1, [*implies]
        edges = [*pairs, *((source, n) for n in range(items)), *((n, sink) for n in range(items))]
        self._pairs, (self._from, self._to) = len(pairs), np.array(edges).T

    def least(self, weights: Sequence[float]) -> list[int]:
        """The smallest closure of the least weight, up to a billionth of all weights. An item of negative weight is a gain."""
        exact = np.array(weights, dtype=float)
        scaled = np.round(exact / (np.abs(exact).sum() or 1.0) * (LARGEST // 4))
        gains = np.maximum(-scaled, 0.0)
        gains[self._wanted] += LARGEST // 2
        room = np.concatenate([np.full(self._pairs, LARGEST), gains, np.maximum(scaled, 0.0)]).astype(np.int32)
        graph = csr_array((room, (self._from, self._to)), shape=(self._items + 2,) * 2)
        left = graph - maximum_flow(graph, self._items, self._items + 1).flow
        left.eliminate_zeros()
        reached = breadth_first_order(left, self._items, return_predecessors=False)
        return sorted(int(n) for n in reached if n < self._items)
