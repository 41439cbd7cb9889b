"""Exact minimisation of a sum of small tables: min f(x) = Σ_k f_k(x_S_k) over discrete variables x.

Variables are eliminated one after the other (dynamic programming over the graph's separators; Bertelè and Brioschi,
Nonserial Dynamic Programming, 1972): all tables that mention x_i are added, the minimum over x_i is a new table over its
neighbours. The result is exact; the cost is exponential only in the size of the separators, which are small where a
network is a chain with short cuts. The order in which variables go decides how small (`elimination_order`).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.errors import InputError

Table = NDArray[np.float64]

Neighbours = Mapping[int, set[int]]
"""For every variable those that stand in a table with it."""

MAX_ENTRIES = 1 << 27
"""Largest table that is built, 1 GiB of float64: a graph that needs more for one problem is refused rather than swapped."""

TOGETHER = 1 << 23
"""Problems whose sums together have more entries than so many, 64 MiB of float64, are solved some after others (empirical)."""


class Factor(NamedTuple):
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
    """Variables in the order in which they are eliminated: of those that greedy rules give the one whose sums have the fewest
    entries.
    """
    _, order = min((_greedy(sizes, scopes, rule) for rule in (_fill, _left)), key=lambda found: found[0])
    return order


def _greedy(
    sizes: Sequence[int], scopes: Sequence[tuple[int, ...]], rule: Callable[[int, Sequence[int], Neighbours], float]
) -> tuple[int, tuple[int, ...]]:
    """Always the variable for which `rule` is least, among equal ones that which leaves the smallest table; and how many entries
    are summed on the way.
    """
    neighbours: dict[int, set[int]] = {v: set() for v in range(len(sizes))}
    for scope in scopes:
        for v in scope:
            neighbours[v].update(u for u in scope if u != v)

    def cost(v: int) -> tuple[float, int, int]:
        return rule(v, sizes, neighbours), math.prod(sizes[u] for u in neighbours[v]), v

    costs = {v: cost(v) for v in neighbours}
    order, entries = list[int](), 0
    while costs:
        chosen = min(costs, key=costs.__getitem__)
        _, left, _ = costs.pop(chosen)
        around = neighbours.pop(chosen)
        joins = any(not around <= neighbours[u] | {u} for u in around)
        touched = around.union(*(neighbours[u] for u in around)) - {chosen} if joins else around
        for u in around:
            neighbours[u] |= around - {u}
            neighbours[u].discard(chosen)
        costs.update((u, cost(u)) for u in touched)
        order.append(chosen)
        entries += sizes[chosen] * left
    return entries, tuple(order)


def _fill(v: int, sizes: Sequence[int], neighbours: Neighbours) -> float:
    """How many values of others it joins which nothing joined before, for every value of its own: weighted minimum fill
    (Kjærulff, Triangulation of Graphs, 1990).
    """
    around = sorted(neighbours[v])
    return sum(sizes[a] * sizes[b] for a, b in combinations(around, 2) if b not in neighbours[a]) / sizes[v]


def _left(v: int, sizes: Sequence[int], neighbours: Neighbours) -> float:
    """Entries of the table that it leaves, for every value of its own."""
    return math.prod(sizes[u] for u in neighbours[v]) / sizes[v]


def minimise(sizes: Sequence[int], factors: Sequence[Factor], order: Sequence[int] | None = None) -> Minimum:
    """The minimum of Σ `factors` over variables with `sizes` values each, in every problem.

    Errors: InputError if an intermediate table would exceed MAX_ENTRIES. An infeasible sum has the value inf.
    """
    added: dict[tuple[int, ...], Table] = {}
    for factor in factors:
        known = added.get(factor.scope)
        added[factor.scope] = factor.table if known is None else known + factor.table
    if order is None:
        order = elimination_order(sizes, tuple(added))
    problems = factors[0].table.shape[0] if factors else 1
    together = max(1, TOGETHER // max(1, _entries(sizes, tuple(added), order)))
    parts = [
        _minimum(sizes, {scope: table[start : start + together] for scope, table in added.items()}, order)
        for start in range(0, problems, together)
    ]
    if len(parts) == 1:
        return parts[0]
    return Minimum(np.concatenate([one.value for one in parts]), np.concatenate([one.assignment for one in parts]))


def _entries(sizes: Sequence[int], scopes: Sequence[tuple[int, ...]], order: Sequence[int]) -> int:
    """The entries of all sums of one problem. InputError if one of them has more than MAX_ENTRIES."""
    number = {variable: n for n, variable in enumerate(order)}
    waiting, found = defaultdict[int, list[set[int]]](list), 0
    for scope in scopes:
        if scope:
            waiting[min(scope, key=number.__getitem__)].append({*scope})
    for variable in order:
        among = set[int]().union(*waiting.pop(variable, []))
        entries = math.prod(sizes[v] for v in among)
        if entries > MAX_ENTRIES:
            raise InputError(
                f"the search would need a table of {entries} entries; this graph joins too many operators at one tensor"
            )
        found += entries
        if others := among - {variable}:
            waiting[min(others, key=number.__getitem__)].append(others)
    return found


def _minimum(sizes: Sequence[int], added: Mapping[tuple[int, ...], Table], order: Sequence[int]) -> Minimum:
    """The minimum of the sum of the tables `added`, in every problem."""
    problems = len(next(iter(added.values()), np.zeros(1)))
    number = {variable: n for n, variable in enumerate(order)}
    value, waiting = np.zeros(problems), defaultdict[int, list[Ordered]](list)
    for scope, table in added.items():
        ordered, turned = _in_order(scope, table, sizes, number)
        if ordered:
            waiting[ordered[0]].append((ordered, turned))
        else:
            value = value + turned
    decided = list[tuple[int, tuple[int, ...], Table]]()
    for variable in order:
        among = waiting.pop(variable, [])
        if not among:
            continue
        others = tuple(sorted({v for scope, _ in among for v in scope[1:]}, key=number.__getitem__))
        # Small ones come first: the large sum is formed once.
        among.sort(key=lambda one: one[1].size)
        total = reduce(np.add, (_spread(scope, table, others) for scope, table in among))
        decided.append((variable, others, total))
        least = total.min(axis=0)
        if others:
            waiting[others[0]].append((others, least))
        else:
            value = value + least
    # A variable's best value is looked for where the variables after it ended up.
    found = np.zeros((len(sizes), problems), dtype=np.intp)
    for variable, others, total in reversed(decided):
        at = slice(None), *(found[v] for v in others), np.arange(problems)
        found[variable] = total[at].argmin(axis=0)
    return Minimum(value, found.T)


Ordered = tuple[tuple[int, ...], Table]
"""Variables in the order in which they are eliminated, and a table over them, and the problems last."""


def _in_order(scope: tuple[int, ...], table: Table, sizes: Sequence[int], number: Mapping[int, int]) -> Ordered:
    """A table over the variables that have several values (arrays have 32 axes at most), those first that are eliminated first.

    The problems come last: all that is summed and compared runs over them.
    """
    several = [v for v in scope if sizes[v] > 1]
    ordered = sorted(several, key=number.__getitem__)
    found = table.reshape((len(table), *(sizes[v] for v in several)))
    return tuple(ordered), np.ascontiguousarray(found.transpose(*(1 + several.index(v) for v in ordered), 0))


def _spread(scope: tuple[int, ...], table: Table, others: tuple[int, ...]) -> Table:
    """`table` with an axis for its first variable, for each of the `others`, and for the problems."""
    axes = slice(None), *(slice(None) if v in scope else None for v in others), slice(None)
    found: Table = table[axes]
    return found
