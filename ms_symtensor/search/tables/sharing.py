"""Operators that take one choice: those of one primitive, since MindSpore gives all of them the one strategy that it carries,
and those of a cell that is cut alike.

To the minimiser they are one variable: every table over one of them is read at the candidate that has the first one's strategy,
or its cuts of samples and heads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.space.alike import cuts_alike
from ms_symtensor.search.tables.elimination import Factor, Minimum, minimise
from ms_symtensor.search.tables.variables import Variable, Variables


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
    for numbers in (*_by_primitive(known), *_cut_alike(known)):
        first, *others = sorted({_first(leader, number) for number in numbers})
        leader.update(dict.fromkeys(others, first))
    leader = {number: _first(leader, number) for number in leader}
    cuts = _Cuts(known)
    values: dict[int, NDArray[np.intp]] = {}
    barred: dict[int, NDArray[np.bool_]] = {}
    for follower, first in leader.items():
        found = np.array(_same(cuts, follower, first), dtype=np.intp)
        values[follower] = np.maximum(found, 0)
        if (found < 0).any():
            barred[first] = barred.get(first, np.zeros(len(found), dtype=bool)) | (found < 0)
    return Ties(leader, values, barred)


class _Cuts:
    """How the candidates of variables cut samples and heads, worked out once for those of a kind."""

    def __init__(self, known: Variables) -> None:
        self.known = known
        self._found: dict[int, list[tuple[int, int]]] = {}

    def of(self, variable: Variable) -> list[tuple[int, int]]:
        if variable.kind not in self._found:
            device_num = self.known.pricer.family.device_num
            self._found[variable.kind] = [
                cuts_alike(variable.seen, variable.signature, strategy, device_num) for strategy in variable.strategies
            ]
        return self._found[variable.kind]


def _same(cuts: _Cuts, follower: int, first: int) -> list[int]:
    """The candidate of `follower` for each of `first`; -1 where it has none."""
    own, wanted = cuts.known.items[follower], cuts.known.items[first]
    if own.op.name not in cuts.known.alike:
        place = {strategy: number for number, strategy in enumerate(own.strategies)}
        return [place.get(strategy, -1) for strategy in wanted.strategies]
    numbers = {cut: number for number, cut in enumerate(cuts.of(own))}
    return [numbers.get((samples, heads), numbers.get((0, heads), -1)) for samples, heads in cuts.of(wanted)]


def _cut_alike(known: Variables) -> list[list[int]]:
    """The variables of every cell whose operators are cut alike, in the graph's order."""
    found: dict[str, list[int]] = {}
    for number, variable in enumerate(known.items):
        if (cell := known.alike.get(variable.op.name)) is not None:
            found.setdefault(cell, []).append(number)
    return [numbers for numbers in found.values() if len(numbers) > 1]


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
