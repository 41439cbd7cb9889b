"""Rows and columns that all major products have: by them a plan's sequence and context parallelism are judged, and `dp,tp` are.

Which layouts of an attention, a norm or a pinned operator are within such limits depends on how the products are cut. So all of
these have one grid, which is searched as one more variable beside the operators'.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.ops.signature import Signature
from ms_symtensor.search.constraints.limits import LOWEST, Limits
from ms_symtensor.search.constraints.operator_pins import OperatorPin
from ms_symtensor.search.constraints.roles import Meanings, attended, batch_size, stream_norms, weight_dims
from ms_symtensor.search.space.family import Family
from ms_symtensor.tensor.graph import Graph

Allowed = NDArray[np.bool_]
Degrees = NDArray[np.float64]
Numbers = NDArray[np.intp]
Cuts = Sequence[Mapping[str, int]]
"""Of every strategy, into how many slices it cuts which dims."""


@dataclass(frozen=True)
class Slices:
    """Into how many slices strategies cut dims, on all meshes of `family`."""

    family: Family
    cuts: Cuts

    def of(self, counts: Callable[[str], bool] = lambda _: True) -> Degrees:
        """Slices of all dims that count together [members, strategies]."""
        one = np.ones(self.family.members)
        chosen = [[n for d, n in cut.items() if counts(d)] for cut in self.cuts]
        return np.stack([math.prod((degree_of(self.family, n) for n in ns), start=one) for ns in chosen], axis=1)


def degree_of(family: Family, n: int) -> Degrees:
    """What `n` slices are on every member of `family`; no number where they are no product of axes."""
    degree = family.degree(n)
    return np.full(family.members, np.nan) if degree is None else degree


class Grid(NamedTuple):
    """Slices of the rows and of the columns of every major product, as `Family.degree` reads them; `rows` None: any, `columns`
    None: several.
    """

    rows: int | None
    columns: int | None


class Grids:
    """The grids of `products` that `limits` of sequence or context parallelism allow, and what goes with each.

    `products`: of every major product, by name, its signature and the cuts of those strategies that it may have. `pins`: of
    operators, by name, those that speak of degrees.
    """

    def __init__(
        self,
        graph: Graph,
        meanings: Meanings,
        limits: Limits,
        family: Family,
        products: Mapping[str, tuple[Signature, Cuts]],
        pins: Mapping[str, Sequence[OperatorPin]],
    ) -> None:
        self._limits, self._family, self._pins = limits, family, pins
        self._batch = np.round(batch_size(graph, meanings) * family.growth).astype(int)
        self._exact = bool(pins) or limits.names("context_parallel")
        self._products = frozenset(products)
        self._norms = stream_norms(graph, meanings) if limits.judges_norms else frozenset()
        self._attention: dict[str, tuple[str, str, str]] = {}
        if limits.names("context_parallel"):
            for name in meanings:
                if (dims := attended(graph, graph.op_by_name[name], meanings[name][1])) is not None:
                    self._attention[name] = dims
        self.every = self._of(products)

    def _of(self, products: Mapping[str, tuple[Signature, Cuts]]) -> tuple[Grid, ...]:
        """Those that all products may have."""
        if not products:
            return (Grid(1, 1),)
        found = [{self._of_cut(sig, cut): None for cut in cuts} for sig, cuts in products.values()]
        first, *others = found
        return tuple(grid for grid in first if grid is not None and all(grid in other for other in others))

    def _of_cut(self, sig: Signature, cut: Mapping[str, int]) -> Grid | None:
        weight = weight_dims(sig)
        rows = math.prod(n for d, n in cut.items() if d not in weight)
        columns = math.prod(n for d, n in cut.items() if d in weight)
        if columns == 1 and self._limits.judges_norms and not self._limits.allows("sequence_parallel", 0):
            return None
        if self._exact:
            return Grid(rows, columns)
        return Grid(None, 1) if columns == 1 else Grid(rows, None)

    def judges(self, name: str) -> bool:
        """Whether an operator's layouts depend on the grid."""
        return any(name in some for some in (self._products, self._norms, self._attention, self._pins))

    def allowed(self, name: str, sig: Signature, cuts: Cuts) -> Allowed:
        """Which strategies of an operator that is judged go with which grid, [members, strategies, grids]."""
        found = [np.ones((self._family.members, len(cuts)), bool) for _ in self.every]
        for number, grid in enumerate(self.every):
            if name in self._products:
                found[number] &= self._product(sig, cuts, grid)
            if name in self._norms:
                found[number] &= self._norm(cuts, grid)
            if name in self._attention:
                found[number] &= self._attends(cuts, *self._attention[name], grid)
            for pin in self._pins.get(name, ()):
                found[number] &= self._pinned(sig, cuts, pin, grid)
        return np.stack(found, axis=-1) if found else np.zeros((self._family.members, len(cuts), 0), bool)

    def _product(self, sig: Signature, cuts: Cuts, grid: Grid) -> Allowed:
        weight, slices = weight_dims(sig), Slices(self._family, cuts)
        rows, columns = slices.of(lambda d: d not in weight), slices.of(weight.__contains__)
        right: Allowed = (
            columns > 1 if grid.columns is None else columns == degree_of(self._family, grid.columns)[:, None]
        )
        return right if grid.rows is None else right & (rows == degree_of(self._family, grid.rows)[:, None])

    def _norm(self, cuts: Cuts, grid: Grid) -> Allowed:
        """Whole weights leave no sequence parallelism to judge."""
        if grid.rows is None or grid.columns == 1:
            return np.ones((self._family.members, len(cuts)), bool)
        finer: Allowed = Slices(self._family, cuts).of() > degree_of(self._family, grid.rows)[:, None]
        return finer if self._limits.allows("sequence_parallel", 1) else ~finer

    def _attends(self, cuts: Cuts, _: str, heads: str, sequence: str, grid: Grid) -> Allowed:
        """Over how many devices attention shares out a sequence is within the limits."""
        slices = Slices(self._family, cuts)
        of_sequence, of_heads = slices.of(sequence.__eq__), slices.of(heads.__eq__)
        rows, columns, samples = self._numbers(grid)
        inside = np.nan_to_num(of_heads).astype(int)
        shared = of_sequence * np.gcd(inside // np.maximum(np.gcd(inside, columns), 1), rows // samples)
        least = self._limits.least.get("context_parallel", LOWEST["context_parallel"])
        most = self._limits.most.get("context_parallel", math.inf)
        within: Allowed = (least <= shared) & (shared <= most)
        return within

    def _pinned(self, sig: Signature, cuts: Cuts, pin: OperatorPin, grid: Grid) -> Allowed:
        """The first dim of the output is cut as `pin` says, and so are all others together."""
        assert pin.slices is not None
        _, columns, samples = self._numbers(grid)
        degrees = {"dp": samples, "tp": columns}
        first = next((d for d in sig.outputs[0] if d), None)
        of_first, of_rest = (math.prod(degrees[f] if f in degrees else int(f) for f in one) for one in pin.slices)
        slices = Slices(self._family, cuts)
        found: Allowed = slices.of(lambda d: d == first) == of_first
        found &= slices.of(lambda d: d != first) == of_rest
        return found

    def _numbers(self, grid: Grid) -> tuple[Numbers, Numbers, Numbers]:
        """Rows and columns of `grid`, and into how many slices these cut the batch, [members, 1]; 0: no number."""
        rows, columns = (np.nan_to_num(degree_of(self._family, n or 1)).astype(int)[:, None] for n in grid)
        samples = np.maximum(np.gcd(rows, self._batch[:, None]), 1) if self._batch.any() else rows
        return rows, columns, samples
