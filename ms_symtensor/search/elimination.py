"""Exact minimisation of a sum of small tables: min f(x) = Σ_k f_k(x_S_k) over discrete variables x.

Variables are eliminated one after the other (dynamic programming over the graph's separators; Bertelè and Brioschi,
Nonserial Dynamic Programming, 1972): all tables that mention x_i are added, the minimum over x_i is a new table over its
neighbours. The result is exact; the cost is exponential only in the size of the separators, which are small where a
network is a chain with short cuts. The next variable is that of weighted minimum fill (Kjærulff, Triangulation of Graphs, 1990).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.errors import InputError

Table = NDArray[np.float64]

MAX_ENTRIES = 1 << 27
"""Largest table that is built, 1 GiB of float64; a graph that needs more is refused rather than swapped."""

CACHED_ENTRIES = 1 << 15
"""Entries of a sum that is formed at once, 256 KiB of float64 (empirical: that stays in a core's cache)."""


@dataclass(frozen=True)
class Factor:
    """A table over the variables `scope`, for many problems at once: [problems, values of scope[0], …]."""

    scope: tuple[int, ...]
    table: Table


@dataclass(frozen=True)
class Minimum:
    """Per problem the least value of the sum, and the value of every variable there (the first one of equals).

    `value` [problems], `assignment` [problems, variables].
    """

    value: Table
    assignment: NDArray[np.intp]


def elimination_order(sizes: Sequence[int], scopes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Variables in the order in which they are eliminated: always the one that joins the fewest values of others which nothing
    joined before, for every value of its own; among equal ones that which leaves the smallest table.
    """
    neighbours: dict[int, set[int]] = {v: set() for v in range(len(sizes))}
    for scope in scopes:
        for v in scope:
            neighbours[v].update(u for u in scope if u != v)

    def cost(v: int) -> tuple[float, int, int]:
        around = sorted(neighbours[v])
        joined = sum(sizes[a] * sizes[b] for a, b in combinations(around, 2) if b not in neighbours[a])
        return joined / sizes[v], math.prod(sizes[u] for u in around), v

    costs = {v: cost(v) for v in neighbours}
    order = []
    while costs:
        chosen = min(costs, key=costs.__getitem__)
        around = neighbours.pop(chosen)
        touched = around if costs.pop(chosen)[0] == 0 else around.union(*(neighbours[u] for u in around)) - {chosen}
        for u in around:
            neighbours[u] |= around - {u}
            neighbours[u].discard(chosen)
        costs.update((u, cost(u)) for u in touched)
        order.append(chosen)
    return tuple(order)


def minimise(sizes: Sequence[int], factors: Sequence[Factor], order: Sequence[int] | None = None) -> Minimum:
    """The minimum of Σ `factors` over variables with `sizes` values each, in every problem.

    Errors: InputError if an intermediate table would exceed MAX_ENTRIES. An infeasible sum has the value inf.
    """
    if order is None:
        order = elimination_order(sizes, [f.scope for f in factors])
    problems = factors[0].table.shape[0] if factors else 1
    # Every table waits for the first of its variables that is eliminated.
    turn = {variable: number for number, variable in enumerate(order)}
    waiting: list[list[Factor]] = [[] for _ in order]
    value = np.zeros(problems)
    for factor in factors:
        if factor.scope:
            ordered = _in_turn(factor, turn)
            waiting[turn[ordered.scope[0]]].append(ordered)
        else:
            value = value + factor.table
    decided: list[tuple[int, list[Factor]]] = []
    for variable, among in zip(order, waiting, strict=True):
        mine = sorted(among, key=lambda f: f.table.size)
        decided.append((variable, mine))
        scope = tuple(sorted({v for f in mine for v in f.scope} - {variable}, key=turn.__getitem__))
        least = _least(mine, (variable, *scope), sizes, problems)
        if scope:
            waiting[turn[scope[0]]].append(Factor(scope, least))
        else:
            value = value + least
    # A variable's best value needs looking for only where the variables after it ended up.
    found = np.zeros((len(sizes), problems), dtype=np.intp)
    each = np.arange(problems)
    for variable, mine in reversed(decided):
        at = np.zeros((problems, sizes[variable]))
        for factor in mine:
            # Of an array indexed by arrays around a slice, numpy puts what they index first: [problems, values].
            index = (each, *(slice(None) if v == variable else found[v] for v in factor.scope))
            at += factor.table[index]
        found[variable] = np.argmin(at, axis=1)
    return Minimum(value, found.T)


def _least(factors: Sequence[Factor], scope: tuple[int, ...], sizes: Sequence[int], problems: int) -> Table:
    """The minimum over the first variable of `scope` of the sum of `factors`: [problems, values of the others].

    The sum is formed for some problems at a time, so that it stays in the cache.
    """
    entries = math.prod(sizes[v] for v in scope)
    if problems * entries > MAX_ENTRIES:
        raise InputError(
            f"the search would need a table of {problems * entries} entries; this graph joins too many operators at one tensor"
        )
    parts = [_aligned(factor, scope) for factor in factors]  # small ones come first: the large sum is formed once
    if not parts:
        return np.zeros((problems, *(sizes[v] for v in scope[1:])))
    least = np.empty((problems, *(sizes[v] for v in scope[1:])))
    step = max(1, CACHED_ENTRIES // entries)
    for start in range(0, problems, step):
        total = reduce(np.add, (part[start : start + step] for part in parts))
        np.minimum.reduce(total, axis=1, out=least[start : start + step])
    return least


def _in_turn(factor: Factor, turn: Mapping[int, int]) -> Factor:
    """`factor` with its variables in their turn, so that what is summed and compared together lies together."""
    scope = tuple(sorted(factor.scope, key=turn.__getitem__))
    if scope == factor.scope:
        return factor
    return Factor(scope, np.ascontiguousarray(factor.table.transpose(0, *(1 + factor.scope.index(v) for v in scope))))


def _aligned(factor: Factor, scope: tuple[int, ...]) -> Table:
    """The table of `factor` with an axis for every variable of `scope`, of one value where it does not depend on it."""
    index = (slice(None), *(slice(None) if v in factor.scope else None for v in scope))
    aligned: Table = factor.table[index]
    return aligned
