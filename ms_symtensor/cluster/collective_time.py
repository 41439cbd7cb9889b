"""The time of a collective in numbers: HCCL's formula, evaluated with a cluster's figures.

A time is piecewise a + b·n in the bytes n, so each (cluster, kind, group) is evaluated once into a few coefficients;
10^5 message sizes then cost one numpy expression. Bytes are those of the whole tensor, see hccl.py.
"""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import sympy
from numpy.typing import ArrayLike, NDArray

from ms_symtensor.algebra import symbols
from ms_symtensor.algebra.expression import Compiled, compile_expression
from ms_symtensor.cluster.hccl import Collective
from ms_symtensor.cluster.hierarchy import Formula, formula
from ms_symtensor.cluster.topology import Cluster, group_sizes
from ms_symtensor.errors import InputError

LARGE_B = 2.0**60
"""Bytes so many that a time less that of 0 bytes, divided by them, is its slope to the last digit."""


class Piece(NamedTuple):
    """From `from_B` bytes on, a collective takes alpha_s + beta_s_per_B · bytes."""

    from_B: float
    alpha_s: float
    beta_s_per_B: float


@dataclass(frozen=True)
class CollectiveTime:
    """Time of a collective as a function of its bytes, in `pieces` by rising size, the first from 0 bytes on.

    Where HCCL changes its algorithm the time may jump, also downwards; within a piece it never falls.
    """

    pieces: tuple[Piece, ...]

    def seconds(self, size_B: float) -> float:
        """Seconds for one message of `size_B` bytes."""
        piece = self.pieces[bisect_right(self._starts, size_B) - 1]
        return piece.alpha_s + piece.beta_s_per_B * size_B

    def array_s(self, size_B: ArrayLike) -> NDArray[np.float64]:
        """Seconds for an array of message sizes."""
        size = np.asarray(size_B, dtype=float)
        starts, alpha, beta = self._columns
        which = np.searchsorted(starts, size, side="right") - 1
        result: NDArray[np.float64] = alpha[which] + beta[which] * size
        return result

    @cached_property
    def _starts(self) -> list[float]:
        return [piece.from_B for piece in self.pieces]

    @cached_property
    def _columns(self) -> tuple[NDArray[np.float64], ...]:
        return tuple(np.array(column, dtype=float) for column in zip(*self.pieces, strict=True))


def collective_time_s(cluster: Cluster, kind: str, ranks: tuple[int, ...], size_B: float) -> float:
    """Seconds of one collective `kind` ("AllReduce", …) over the global `ranks`, on `size_B` bytes of the whole tensor.

    0 for a single rank. Errors: InputError for an unknown kind or a group that cannot be.
    """
    return collective_time(cluster, kind, ranks).seconds(size_B)


def group_formula(cluster: Cluster, kind: str, ranks: tuple[int, ...]) -> Formula:
    """The symbolic formula that `collective_time` evaluates for this group."""
    return formula(cluster, _collective(kind), group_sizes(cluster, ranks))


@lru_cache(maxsize=1 << 17)
def collective_time(cluster: Cluster, kind: str, ranks: tuple[int, ...]) -> CollectiveTime:
    """The time of `kind` over the global `ranks` as a function of bytes; kept, so asking again is a look-up."""
    collective = _collective(kind)
    if collective in (Collective.SEND, Collective.RECEIVE) and len(ranks) != 2:
        raise InputError(f"{collective.value} between {len(ranks)} ranks: it joins exactly two")
    return collective_time_of_sizes(cluster, collective, group_sizes(cluster, ranks))


@lru_cache(maxsize=1 << 16)
def collective_time_of_sizes(cluster: Cluster, kind: Collective, sizes: tuple[int, ...]) -> CollectiveTime:
    """As `collective_time`, for any group with `sizes` members per level (`group_sizes`)."""
    arguments: dict[str, Any] = dict(cluster.arguments)
    for level, size in zip(cluster.levels, sizes, strict=True):
        arguments[symbols.group_size(level.name).name] = size
    of = formula(cluster, kind, sizes)
    names, compiled = _compiled_branches(of)
    arguments[symbols.n.name] = np.array([0.0, LARGE_B])
    values = compiled(**{name: arguments[name] for name in names})

    pieces: list[Piece] = []
    regimes = of.regimes
    for index, regime in enumerate(regimes):
        start = float(values[f"{index}/from"])
        end = float(values[f"{index + 1}/from"]) if index + 1 < len(regimes) else float("inf")
        # Every branch is of the form a + b·n.
        least_s, most_s = np.array(
            [values[f"{index}/{branch}"] + np.zeros(2) for branch in range(len(regime.branches))]
        ).T
        lines = list(zip(least_s.tolist(), ((most_s - least_s) / LARGE_B).tolist(), strict=True))
        pieces += _upper_envelope(lines, start, end)
    return CollectiveTime(tuple(pieces))


def _compiled_branches(of: Formula) -> tuple[tuple[str, ...], Compiled]:
    """Where every regime starts, and its branches, the same expressions as printed; with the names of their symbols."""
    found: dict[str, sympy.Expr] = {}
    for index, regime in enumerate(of.regimes):
        found[f"{index}/from"] = sympy.sympify(regime.from_B)
        found.update((f"{index}/{number}", sympy.sympify(branch)) for number, branch in enumerate(regime.branches))
    needed = tuple(sorted(set().union(*(e.free_symbols for e in found.values())), key=lambda s: s.name))
    return tuple(symbol.name for symbol in needed), compile_expression(found, needed)


def _upper_envelope(lines: list[tuple[float, float]], start: float, end: float) -> list[Piece]:
    """The largest of several lines a + b·x on start ≤ x < end, as pieces."""
    alpha, beta = max(lines, key=lambda line: (line[0] + line[1] * start, line[1]))
    pieces = [Piece(start, alpha, beta)]
    while True:
        crossings = [((alpha - a) / (b - beta), -b, a) for a, b in lines if b > beta]
        if not crossings:
            return pieces
        # The line just ahead that is crossed first, the steepest one if several cross there.
        x, negative_slope, alpha = min(crossings)
        beta = -negative_slope
        if x >= end:
            return pieces
        pieces.append(Piece(max(x, start), alpha, beta))


def _collective(kind: str) -> Collective:
    try:
        return Collective(kind)
    except ValueError:
        known = ", ".join(member.value for member in Collective)
        raise InputError(f"unknown collective {kind!r}; known: {known}") from None
