"""NCCL's collectives in formulas, over all levels of a cluster at once (n, p, alpha and B as in hccl.py).

A ring runs through the members of a node and on to the next node, one ring per network port, so that all levels carry data
at the same time and the slowest decides. With g_l members inside the domains below level l, a rank's port at that level
carries 1/g_l of what passes:

    AllGather, ReduceScatter   Σ_l steps_l·alpha_l + max_l (p-1)/p · n / (g_l B_l)
    AllReduce                  twice that as a ring, or as a double binary tree where that is faster:
                               Σ_inside 2·(p_l - 1)·alpha_l + 2·log2(p_out)·alpha_out + max_l 2 n / (0.9 g_l B_l)
    Broadcast                  Σ_l steps_l·alpha_l + max_l n / (g_l B_l)
    AlltoAll                   Σ_l (p_l - 1)·alpha_l + max_l (share of the ranks beyond that level) · n / B_l
    Send, Receive              alpha + n / B of the outermost level between the two

steps_l is p - 1 in all, of which p_l - 1 of the outermost level pass between its domains. Source: github.com/NVIDIA/nccl,
src/graph/tuning.cc (latencies, bandwidths, choice of the algorithm); trees reach 0.9 of the ring's bandwidth there.
"""

from dataclasses import dataclass
from typing import Any

import sympy

from ms_symtensor.algebra import symbols
from ms_symtensor.cluster.hccl import Collective

TREE_EFFICIENCY = sympy.Rational(9, 10)
n = symbols.n


@dataclass(frozen=True)
class Way:
    """One algorithm: a name, and the branches a + b·n whose largest is its time."""

    name: str
    alpha: sympy.Expr
    slopes: tuple[sympy.Expr, ...]

    @property
    def branches(self) -> tuple[sympy.Expr, ...]:
        return tuple(self.alpha + slope * n for slope in self.slopes)


def ring(kind: Collective, levels: tuple[str, ...]) -> Way:
    """The ring over the named levels, innermost first, on each of which the group has more than one member."""
    sizes, alphas = _symbols(levels)
    p = sympy.Mul(*sizes)
    rounds = 2 if kind is Collective.ALL_REDUCE else 1
    outer = sizes[-1] - 1 if len(levels) > 1 else sympy.Integer(0)
    alpha = rounds * ((p - 1 - outer) * alphas[0] + outer * alphas[-1])
    whole = kind is Collective.BROADCAST
    slopes = tuple(rounds * (1 if whole else (p - 1) / p) * part for part in _parts(levels))
    return Way("Ring", alpha, slopes)


def tree(levels: tuple[str, ...]) -> Way:
    """AllReduce by two binary trees between the domains of the outermost level, chains inside them."""
    sizes, alphas = _symbols(levels)
    inside = sum(((size - 1) * alpha for size, alpha in zip(sizes[:-1], alphas[:-1], strict=True)), sympy.Integer(0))
    alpha = 2 * (inside + sympy.log(sizes[-1], 2) * alphas[-1])
    return Way("Tree", alpha, tuple(2 * part / TREE_EFFICIENCY for part in _parts(levels)))


def all_to_all(levels: tuple[str, ...]) -> Way:
    """Every rank sends 1/p to each other one, over the innermost level that both share."""
    sizes, alphas = _symbols(levels)
    alpha = sum(((size - 1) * alpha for size, alpha in zip(sizes, alphas, strict=True)), sympy.Integer(0))
    p = sympy.Mul(*sizes)
    slopes = []
    for index, name in enumerate(levels):
        inside = sympy.Mul(*sizes[:index])
        slopes.append((p - inside) / (p * symbols.bandwidth(name)))
    return Way("Pairwise", alpha, tuple(slopes))


def tree_until(slow: Way, quick: Way) -> sympy.Expr:
    """Bytes up to which `quick`, which has fewer steps and less bandwidth, is the faster one."""
    return sympy.Max(
        0, (slow.alpha - quick.alpha) / (sympy.Max(*quick.slopes) - sympy.Max(*slow.slopes)), evaluate=False
    )


def _symbols(levels: tuple[str, ...]) -> tuple[list[Any], list[Any]]:
    return [symbols.group_size(name) for name in levels], [symbols.latency(name) for name in levels]


def _parts(levels: tuple[str, ...]) -> list[sympy.Expr]:
    """Seconds per byte of every level's port: 1 / (members inside · B)."""
    sizes, _ = _symbols(levels)
    return [1 / (sympy.Mul(*sizes[:i]) * symbols.bandwidth(name)) for i, name in enumerate(levels)]
