"""The tables of a problem added up: for a minimiser, and for choices of candidates."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.tables.elimination import Factor
from ms_symtensor.search.tables.problem import Problem
from ms_symtensor.search.tables.terms import Costs, Terms, Weights, occurring, spread

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of problem `of` and those of its `parameters`, one for every scope and place."""

    of: Problem
    parameters: Sequence[Terms]

    @property
    def every(self) -> tuple[Terms, ...]:
        return (*self.of.merged, *self.parameters)

    def factors(
        self,
        recomputed: float | Array,
        price_s_per_B: float | Array,
        weights: Weights,
        which: NDArray[np.intp],
    ) -> list[Factor]:
        """The tables to minimise for a fraction `recomputed` of the blocks and a price λ of memory, one per scope.

        `recomputed` and `price_s_per_B`: one number, or one per member. `which`: the members of the family that are asked for, to
        which shares, prices and `weights` belong.
        """
        each, recomputation, once, kept, saved, rest = occurring(
            self.every, [getattr(weights, f.name) for f in fields(Weights)]
        )
        price = np.atleast_1d(np.asarray(price_s_per_B, dtype=float))
        # In the order of `Terms.weighted`.
        occurs = each, once, recomputed * recomputation, price * kept, price * rest, -recomputed * price * saved
        there = [worth.any(axis=1).tolist() for worth in occurs]
        joint: dict[tuple[int, ...], Array] = {}
        for i, t in enumerate(self.every):
            for number, table in t.weighted:
                if there[number][i]:
                    part = np.multiply(chosen := table[which], spread(occurs[number][i], table), out=chosen)
                    if t.scope in joint:
                        joint[t.scope] += part
                    else:
                        joint[t.scope] = part
        return [*(Factor(scope, table) for scope, table in joint.items()), *self.of.on_one_grid(which)]

    def by_place(self, assignment: NDArray[np.intp], which: NDArray[np.intp]) -> Costs:
        """The costs of `assignment` [members, variables] on the members `which` of the family."""
        values = np.zeros((len(fields(Costs)), len(self.every), len(which)))
        entries: dict[tuple[int, ...], NDArray[np.intp]] = {}
        for place, t in enumerate(self.every):
            if t.scope not in entries:
                at = (which, *(assignment[:, v] for v in t.scope))
                entries[t.scope] = np.ravel_multi_index(at, t.each_s.shape)
            entry = entries[t.scope]
            for number, table in t.fixed:
                values[number, place] = table.take(entry)
        counts = np.array([t.counts for t in self.every], dtype=float)
        with np.errstate(invalid="ignore"):  # what is forbidden stays no number
            # A product for each member: sums that do not depend on what is asked for beside them.
            total = np.matmul(np.ascontiguousarray(values.transpose(2, 0, 1)), counts)
        return Costs(*total.transpose(1, 2, 0))
