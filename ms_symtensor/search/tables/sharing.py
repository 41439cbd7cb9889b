"""Operators of one primitive: MindSpore gives all of them the one strategy that the primitive carries.

To the minimiser they are one variable: every table over one of them is read at the candidate that has the first one's strategy.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.tables.elimination import Factor, Minimum, minimise
from ms_symtensor.search.tables.variables import Variables


@dataclass(frozen=True)
class Ties:
    """`leader`: of every variable that follows another one, that one; `values`: its candidate for each of the leader's; `barred`:
    of the leaders, whether some follower lacks a candidate.
    """

    leader: Mapping[int, int]
    values: Mapping[int, NDArray[np.intp]]
    barred: Mapping[int, NDArray[np.bool_]]

    def scope(self, scope: Sequence[int]) -> tuple[int, ...]:
        """The variables on which a table over `scope` depends."""
        return tuple(dict.fromkeys(self.leader.get(v, v) for v in scope))

    def minimise(self, sizes: Sequence[int], factors: Sequence[Factor], order: Sequence[int]) -> Minimum:
        """As `elimination.minimise`; followers have their leaders' strategies."""
        if not self.leader or not factors:
            return minimise(sizes, factors, order)
        problems = factors[0].table.shape[0]
        found = minimise(sizes, [*map(self._led, factors), *self._bars(problems)], order)
        for follower, leader in self.leader.items():
            found.assignment[:, follower] = self.values[follower][found.assignment[:, leader]]
        return found

    def _led(self, factor: Factor) -> Factor:
        if self.leader.keys().isdisjoint(factor.scope):
            return factor
        scope = self.scope(factor.scope)
        index: list[NDArray[np.intp]] = [np.arange(factor.table.shape[0]).reshape(-1, *(1,) * len(scope))]
        for variable, size in zip(factor.scope, factor.table.shape[1:], strict=True):
            values = self.values.get(variable, np.arange(size))
            axis = scope.index(self.leader.get(variable, variable))
            index.append(values.reshape(1, *(-1 if a == axis else 1 for a in range(len(scope)))))
        return Factor(scope, factor.table[tuple(index)])

    def _bars(self, problems: int) -> Iterator[Factor]:
        for leader, barred in self.barred.items():
            yield Factor((leader,), np.where(barred, np.inf, 0.0)[None].repeat(problems, axis=0))


def ties(known: Variables) -> Ties:
    """Which variables follow which, as the network is written."""
    leader: dict[int, int] = {}
    for numbers in _by_primitive(known):
        first, *others = sorted({_first(leader, number) for number in numbers})
        leader.update(dict.fromkeys(others, first))
    leader = {number: _first(leader, number) for number in leader}
    values: dict[int, NDArray[np.intp]] = {}
    barred: dict[int, NDArray[np.bool_]] = {}
    for follower, first in leader.items():
        own, wanted = known.items[follower].strategies, known.items[first].strategies
        place = {strategy: number for number, strategy in enumerate(own)}
        found = np.array([place.get(strategy, -1) for strategy in wanted], dtype=np.intp)
        values[follower] = np.maximum(found, 0)
        if (found < 0).any():
            barred[first] = barred.get(first, np.zeros(len(wanted), dtype=bool)) | (found < 0)
    return Ties(leader, values, barred)


def _first(leader: Mapping[int, int], number: int) -> int:
    while number in leader:
        number = leader[number]
    return number


def _by_primitive(known: Variables) -> list[list[int]]:
    """The variables of every primitive that is several, in the graph's order; none where all have one candidate."""
    found: dict[tuple[str, ...], dict[int, None]] = {}
    for number, variable in enumerate(known.items):
        for op in variable.members:
            if op.primitive and op.body is None and op.name not in known.by_default:
                found.setdefault((*op.cell, op.primitive), {})[number] = None
    return [[*ns] for ns in found.values() if len(ns) > 1 and any(len(known.items[n].strategies) > 1 for n in ns)]
