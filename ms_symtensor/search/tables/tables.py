"""The tables of a problem added up: for a minimiser, and for choices of candidates."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.tables.elimination import Factor
from ms_symtensor.search.tables.problem import Problem
from ms_symtensor.search.tables.terms import Costs, Terms, Weights, merged, occurring, spread

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of problem `of` and those of its `parameters`, one for every scope and place."""

    of: Problem
    parameters: Sequence[Terms]

    @cached_property
    def every(self) -> tuple[Terms, ...]:
        return merged((*self.of.terms, *self.parameters))

    def factors(
        self,
        recomputed: float | Array,
        price_s_per_B: float | Array,
        weights: Weights | None = None,
        which: NDArray[np.intp] | None = None,
    ) -> list[Factor]:
        """The tables to minimise for a fraction `recomputed` of the blocks and a price λ of memory, one per scope.

        `recomputed` and `price_s_per_B`: one number, or one per member. `weights` defaults to one micro-batch of the whole
        network. `which`: the members of the family that are asked for, to which shares, prices and weights belong (default: all).
        """
        of_place = weights or Weights.plain(self.of.places.occurrences)
        each, recomputation, once, kept, saved, rest = occurring(
            self.every, [getattr(of_place, f.name) for f in fields(Weights)]
        )
        dear, repeats = bool(np.any(price_s_per_B)), bool(np.any(recomputed))
        price = np.atleast_1d(np.asarray(price_s_per_B, dtype=float))
        # In the order of `Terms.weighted`; what is None counts for nothing.
        occurs = (
            each,
            once,
            recomputed * recomputation if repeats else None,
            price * kept if dear else None,
            price * rest if dear else None,
            -recomputed * price * saved if dear and repeats else None,
        )
        joint: dict[tuple[int, ...], Array] = {}
        for i, t in enumerate(self.every):
            for number, table in t.weighted:
                if (worth := occurs[number]) is not None:
                    weight = spread(worth[i], table)
                    part = weight * table if which is None else np.multiply(chosen := table[which], weight, out=chosen)
                    if t.scope in joint:
                        joint[t.scope] += part
                    else:
                        joint[t.scope] = part
        return [*(Factor(scope, table) for scope, table in joint.items()), *self.of.on_one_grid(which)]

    def by_place(self, assignment: NDArray[np.intp], which: NDArray[np.intp]) -> Costs:
        """The costs of `assignment` [members, variables] on the members `which` of the family."""
        values = np.zeros((len(fields(Costs)), len(self.every), len(which)))
        for place, t in enumerate(self.every):
            at = (which, *(assignment[:, v] for v in t.scope))
            entry = np.ravel_multi_index(at, t.each_s.shape)
            for number, table in t.fixed:
                values[number, place] = table.take(entry)
        counts = np.array([t.counts for t in self.every], dtype=float)
        with np.errstate(invalid="ignore"):  # what is forbidden stays no number
            # A product for each member: sums that do not depend on what is asked for beside them.
            total = np.matmul(np.ascontiguousarray(values.transpose(2, 0, 1)), counts)
        return Costs(*total.transpose(1, 2, 0))


def factors(
    of: Problem, parameters: Sequence[Terms], recomputed: float | Array, price_s_per_B: float | Array
) -> list[Factor]:
    """`Tables.factors` of one sum, of one micro-batch of the whole network."""
    return Tables(of, parameters).factors(recomputed, price_s_per_B)


class Totals(NamedTuple):
    """Seconds of one choice of candidates on one micro-batch, bytes kept, and bytes of parameters with their gradients and
    optimizer states; and what it takes to compute one occurrence of every place again, and the bytes that this saves.
    """

    plain_s: float
    kept_B: float
    at_rest_B: float
    recompute_s: tuple[float, ...]
    saved_B: tuple[float, ...]

    def recomputing(self, repeated: Sequence[int]) -> tuple[float, float]:
        """Seconds, and bytes kept and at rest, where every place is recomputed so often (`Problem.repeated`)."""
        recompute_s = math.fsum(n * s for n, s in zip(repeated, self.recompute_s, strict=True) if n)
        saved_B = math.fsum(n * b for n, b in zip(repeated, self.saved_B, strict=True) if n)
        return self.plain_s + recompute_s, self.kept_B - saved_B + self.at_rest_B


def totals(of: Problem, parameters: list[Terms], choice: Sequence[int]) -> Totals:
    """What one choice of candidates costs on the first mesh of the family."""
    plain_s = kept_B = rest_B = 0.0
    recompute_s, saved_B = [0.0] * of.places.number, [0.0] * of.places.number
    for t in (*of.terms, *parameters):
        at = (0, *(choice[v] for v in t.scope))
        count = sum(c * n for c, n in zip(t.counts, of.places.occurrences, strict=True))
        plain_s += count * float(t.each_s[at] + t.once_s[at])
        kept_B += count * float(t.kept_B[at])
        rest_B += count * float(t.at_rest_B[at])
        for sums, value in ((recompute_s, t.recompute_s[at]), (saved_B, t.kept_B[at] - t.kept_recomputed_B[at])):
            if value:
                sums[:] = [known + c * float(value) for known, c in zip(sums, t.counts, strict=True)]
    return Totals(plain_s, kept_B, rest_B, tuple(recompute_s), tuple(saved_B))
