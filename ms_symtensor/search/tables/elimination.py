"""Exact minimisation of a sum of small tables: min f(x) = Σ_k f_k(x_S_k) over discrete variables x.

Variables are eliminated one after the other (dynamic programming over the graph's separators; Bertelè and Brioschi,
Nonserial Dynamic Programming, 1972): all tables that mention x_i are added, the minimum over x_i is a new table over its
neighbours. The result is exact; the cost is exponential only in the size of the separators, which are small where a
network is a chain with short cuts. The order in which variables go decides how small (`elimination_order`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.errors import InputError

Table = NDArray[np.float64]

Neighbours = Mapping[int, set[int]]
"""For every variable those that stand in a table with it."""

MAX_ENTRIES = 1 << 27
"""Largest table that is built, 1 GiB of float64: many problems are solved some after others; a graph that needs more for one is
refused rather than swapped."""

CACHED_ENTRIES = 1 << 16
"""Entries of a sum that is formed at once, 512 KiB of float64 (empirical: that stays in a core's cache)."""


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
    scopes = tuple(added)
    if order is None:
        order = elimination_order(sizes, scopes)
    problems = factors[0].table.shape[0] if factors else 1
    scopes, parts = _of_several_values(sizes, added)
    axes, turns = _turns(tuple(sizes), scopes, tuple(order))
    if problems > 1 and problems * max((turn.entries for turn in turns), default=0) > MAX_ENTRIES:
        return _in_halves(sizes, added, order)
    # Problems last: all that is summed and compared runs over them, and the axes before come in turn.
    tables = [np.ascontiguousarray(table.transpose(of)) for table, of in zip(parts, axes, strict=True)]
    value = np.zeros(problems) + sum(table for table, scope in zip(parts, scopes, strict=True) if not scope)
    decided = []
    for turn in turns:
        summed, least = _least(turn, tables, problems)
        tables.append(least)
        decided.append(summed)
        if not turn.others:
            value = value + least
    # A variable's best value needs looking for only where the variables after it ended up.
    found: list[int | NDArray[np.intp]] = [0] * len(sizes)
    each = np.arange(problems) if problems > 1 else 0
    for turn, summed in zip(reversed(turns), reversed(decided), strict=True):
        at = np.zeros((sizes[turn.variable], problems) if problems > 1 else sizes[turn.variable])
        for others, table in summed:
            index = (slice(None), *(found[v] for v in others), each)
            at += table[index]
        found[turn.variable] = at.argmin(axis=0)
    return Minimum(value, np.array(found, dtype=np.intp).reshape(len(sizes), problems).T)


def _of_several_values(
    sizes: Sequence[int], added: Mapping[tuple[int, ...], Table]
) -> tuple[tuple[tuple[int, ...], ...], list[Table]]:
    """The scopes and tables of `added` without the variables of one value, which need no axis: arrays have 32 at most."""
    scopes = tuple(tuple(v for v in scope if sizes[v] > 1) for scope in added)
    tables = [
        table.reshape((len(table), *(sizes[v] for v in scope)))
        for table, scope in zip(added.values(), scopes, strict=True)
    ]
    return scopes, tables


def _in_halves(sizes: Sequence[int], added: Mapping[tuple[int, ...], Table], order: Sequence[int]) -> Minimum:
    """The minima of one half of the problems after those of the other."""
    problems = len(next(iter(added.values())))
    halves = [
        minimise(sizes, [Factor(scope, table[part]) for scope, table in added.items()], order)
        for part in (slice(problems // 2), slice(problems // 2, None))
    ]
    value, assignment = ([getattr(half, name) for half in halves] for name in ("value", "assignment"))
    return Minimum(np.concatenate(value), np.concatenate(assignment))


@dataclass(frozen=True)
class _Turn:
    """The elimination of `variable`, which leaves a table over the `others`, sized `shape`; `entries` are summed before.

    `parts`: the tables that are added, by number, each with the variables after the first and the index that gives it an axis
    for every one of the others, of one value where it does not depend on it, and one for the problems.
    """

    variable: int
    others: tuple[int, ...]
    shape: tuple[int, ...]
    entries: int
    parts: tuple[tuple[int, tuple[int, ...], tuple[slice | None, ...]], ...]


@lru_cache(maxsize=64)
def _turns(
    sizes: tuple[int, ...], scopes: tuple[tuple[int, ...], ...], order: tuple[int, ...]
) -> tuple[tuple[tuple[int, ...], ...], tuple[_Turn, ...]]:
    """How tables over `scopes` are transposed, and what is done with them and with the tables that are left, which are numbered
    on.

    Every table waits for the first of its variables that is eliminated; the first axis is that variable's.
    """
    number = {variable: n for n, variable in enumerate(order)}
    ordered = [tuple(sorted(scope, key=number.__getitem__)) for scope in scopes]
    axes = tuple((*(1 + scope.index(v) for v in mine), 0) for mine, scope in zip(ordered, scopes, strict=True))
    counts_in_flight: list[list[int]] = [[] for _ in order]
    for table, scope in enumerate(ordered):
        if scope:
            counts_in_flight[number[scope[0]]].append(table)
    turns = []
    for variable, among in zip(order, counts_in_flight, strict=True):
        # Small ones come first: the large sum is formed once.
        among.sort(key=lambda table: math.prod(sizes[v] for v in ordered[table]))
        others = tuple(sorted({v for table in among for v in ordered[table]} - {variable}, key=number.__getitem__))
        shape = tuple(sizes[v] for v in others)
        parts = tuple(
            (
                table,
                ordered[table][1:],
                (slice(None), *(slice(None) if v in ordered[table] else None for v in others), slice(None)),
            )
            for table in among
        )
        turns.append(_Turn(variable, others, shape, sizes[variable] * math.prod(shape), parts))
        if others:
            counts_in_flight[number[others[0]]].append(len(ordered))
        ordered.append(others)
    return axes, tuple(turns)


def _least(turn: _Turn, tables: Sequence[Table], problems: int) -> tuple[list[tuple[tuple[int, ...], Table]], Table]:
    """The tables whose sum is minimised, each with its variables after the first; and the minimum, [values of the others,
    problems].

    The sum is formed for some values of the others at a time, so that it stays in the cache; where that is all of them, it is
    kept.
    """
    entries = problems * turn.entries
    if entries > MAX_ENTRIES:
        raise InputError(
            f"the search would need a table of {entries} entries; this graph joins too many operators at one tensor"
        )
    if not turn.parts:
        return [], np.zeros((*turn.shape, problems))
    parts = [tables[number][index] for number, _, index in turn.parts]
    apart = 0  # of so many of the others, a value at a time
    while entries > CACHED_ENTRIES and apart < len(turn.shape):
        entries //= turn.shape[apart]
        apart += 1
    if not apart:
        total = reduce(np.add, parts)
        return [(turn.others, total)], np.minimum.reduce(total, axis=0)
    least = np.empty((*turn.shape, problems))
    for values in np.ndindex(turn.shape[:apart]):
        total = reduce(np.add, (_at(part, values) for part in parts))
        np.minimum.reduce(total, axis=0, out=least[values])
    return [(others, tables[number]) for number, others, _ in turn.parts], least


def _at(part: Table, values: tuple[int, ...]) -> Table:
    """`part` where the first of the others have these values."""
    index: tuple[slice | int, ...] = (
        slice(None),
        *(value if size > 1 else 0 for value, size in zip(values, part.shape[1:], strict=False)),
    )
    found: Table = part[index]
    return found
