"""Closures of least weight: what to choose where one choice implies others. Exact, by a maximum flow (Picard 1976): what items
gain flows along implications to what others cost, and those are chosen whose gain finds no room.

Written out because scipy's `maximum_flow` has capacities of 32 bits, too few for picoseconds times bytes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

PICOSECONDS = 10**12
"""Of a second: weights that are seconds are counted in whole ones."""

Pair = tuple[int, int]
_Step = tuple[int, int, bool]
"""From which item one is reached, by which implication, and whether by sending back what flows there."""


class Closures:
    """Closures of least weight of so many items, known by their numbers, under `implies` and `priced`, with all of `wanted`:
    what implies what is laid out once for all weights.
    """

    def __init__(
        self, items: int, implies: Iterable[Pair], priced: Sequence[Pair] = (), wanted: Iterable[int] = ()
    ) -> None:
        pairs = [*implies, *priced]
        self._pairs, self._first_priced, self._wanted = len(pairs), len(pairs) - len(priced), tuple(wanted)
        self._implied: list[list[Pair]] = [[] for _ in range(items)]
        self._implying: list[list[Pair]] = [[] for _ in range(items)]
        for pair, (item, other) in enumerate(pairs):
            self._implied[item].append((pair, other))
            self._implying[other].append((pair, item))

    def least(self, weights: Sequence[int]) -> tuple[list[int], list[int]]:
        """The smallest closure of the least weight; and prices at which no set of items that keeps `implies` alone weighs less,
        where one that breaks an implication of `priced` pays its price: what flows there (linear duality).

        `weights` in whole numbers, so that sums are exact; an item of negative weight is a gain.
        """
        gains = [max(-weight, 0) for weight in weights]
        for item in self._wanted:
            gains[item] += 1 + sum(map(abs, weights))
        flow = _Flow(self._implied, self._implying, [max(weight, 0) for weight in weights], [0] * self._pairs, set())
        for item, gain in enumerate(gains):
            if gain:
                flow.send(item, gain)
        return sorted(flow.closed), flow.along[self._first_priced :]


@dataclass(frozen=True)
class _Flow:
    """What flows `along` every implication, and the `room` that is left at every item.

    `implied` and `implying`: the implications of every item, and those by which it is implied, each with the item at its other
    end. `closed`: the items from which nothing finds room any more, which stays so.
    """

    implied: Sequence[Sequence[Pair]]
    implying: Sequence[Sequence[Pair]]
    room: list[int]
    along: list[int]
    closed: set[int]

    def send(self, item: int, gain: int) -> None:
        """Let as much of the `gain` of `item` flow as finds room."""
        while gain and item not in self.closed:
            gain = self._left(item, gain)

    def _left(self, start: int, gain: int) -> int:
        """What is left of a `gain` once it has flowed from item `start` on shortest ways (Edmonds and Karp 1972), up to one on
        which something flowed back and is used up: others may have led along it.
        """
        along, closed = self.along, self.closed
        steps: dict[int, _Step | None] = {start: None}
        reached = [start]
        for item in reached:  # grows
            if self.room[item]:
                amount, is_used_up = self._flow(steps, item, gain)
                gain -= amount
                if is_used_up or not gain:
                    return gain
            for pair, other in self.implied[item]:
                if other not in steps and other not in closed:
                    steps[other] = item, pair, False
                    reached.append(other)
            for pair, other in self.implying[item]:
                if along[pair] and other not in steps and other not in closed:
                    steps[other] = item, pair, True
                    reached.append(other)
        closed.update(reached)
        return gain

    def _flow(self, steps: Mapping[int, _Step | None], end: int, gain: int) -> tuple[int, bool]:
        """How much of `gain` has flowed to `end` by the `steps` that lead there, and whether something that flowed back on the
        way is used up.
        """
        amount, way = min(gain, self.room[end]), []
        step = steps[end]
        while step is not None:
            way.append(step)
            item, pair, is_back = step
            if is_back and self.along[pair] < amount:
                amount = self.along[pair]
            step = steps[item]
        is_used_up = False
        for _, pair, is_back in way:
            self.along[pair] += -amount if is_back else amount
            is_used_up |= is_back and not self.along[pair]
        self.room[end] -= amount
        return amount, is_used_up
