"""What limits leave of an operator's candidates: the others cost infinitely much, on every mesh by itself."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.ops.placement import OpStrategy, cuts_of
from ms_symtensor.ops.signature import OpView, Signature
from ms_symtensor.search.domain import candidates
from ms_symtensor.search.family import Family
from ms_symtensor.search.limits import ALL, LOWEST, Limits
from ms_symtensor.search.roles import (
    Meanings,
    batch_size,
    expert_products,
    major_products,
    own_rows,
    stream_norms,
    weight_dims,
)
from ms_symtensor.tensor.graph import Graph

Allowed = NDArray[np.bool_]
Degrees = NDArray[np.float64]


class Restriction:
    """`limits` on the operators of `graph`, on all meshes of `family`."""

    def __init__(self, graph: Graph, meanings: Meanings, limits: Limits, family: Family) -> None:
        self._limits, self._family = limits, family
        self._batch = batch_size(graph, meanings) * family.growth
        self._products: frozenset[str] = frozenset()
        self._experts: frozenset[str] = frozenset()
        self._norms: frozenset[str] = frozenset()
        if limits.rows is not None or limits.names("data_parallel", "model_parallel"):
            self._products = frozenset(major_products(graph, meanings))
        if limits.names("expert_parallel"):
            self._experts = expert_products(graph, meanings)
        if limits.rows is not None:
            self._norms = stream_norms(graph, meanings)

    def allowed(self, op: OpView, sig: Signature, strategies: Sequence[OpStrategy]) -> Allowed | None:
        """Which of `strategies` are allowed [members, strategies]; None where all are."""
        if op.name in self._products:
            return self._product(self._cuts(op, sig, strategies), weight_dims(sig))
        if op.name in self._experts:
            cuts = [{d: n for d, n in cut.items() if d in own_rows(sig)} for cut in self._cuts(op, sig, strategies)]
            return self._within("expert_parallel", self._slices(cuts))
        if op.name in self._norms:
            return self._norm(self._cuts(op, sig, strategies))
        return None

    def needs_idle(self, op: OpView, sig: Signature, regular: bool) -> bool:
        """Whether none of the operator's candidates that use as many devices as they can are allowed."""
        if op.name not in self._products | self._experts | self._norms:
            return False
        allowed = self.allowed(op, sig, [s for s, _ in candidates(op, sig, self._family, regular)])
        return allowed is not None and not allowed.any()

    def _cuts(self, op: OpView, sig: Signature, strategies: Sequence[OpStrategy]) -> list[dict[str, Degrees]]:
        """Slices of every dim [members] under each of `strategies`."""
        found = []
        for strategy in strategies:
            cuts = cuts_of(op, sig, strategy, self._family.device_num)
            found.append({d: self._degree(n) for d, n in cuts.items() if n > 1})
        return found

    def _degree(self, n: int) -> Degrees:
        degree = self._family.degree(n)
        return np.full(self._family.members, np.nan) if degree is None else degree

    def _product(self, cuts: Sequence[dict[str, Degrees]], weight: frozenset[str]) -> Allowed:
        rows = self._slices([{d: n for d, n in cut.items() if d not in weight} for cut in cuts])
        columns = self._slices([{d: n for d, n in cut.items() if d in weight} for cut in cuts])
        found: Allowed = self._within("data_parallel", self._samples(rows)) & self._within("model_parallel", columns)
        if self._limits.rows is not None:
            found &= rows == self._limits.rows
        return found

    def _samples(self, rows: Degrees) -> Degrees:
        """Into how many slices `rows` cut the batch."""
        if not self._batch.any():
            return rows
        batch = np.round(self._batch).astype(int)[:, None]
        return np.where(np.isnan(rows), np.nan, np.gcd(np.nan_to_num(rows).astype(int), batch))

    def _norm(self, cuts: Sequence[dict[str, Degrees]]) -> Allowed:
        finer: Allowed = self._slices(cuts) > (self._limits.rows or math.inf)
        return finer if self._limits.allows("sequence_parallel", 1) else ~finer

    def _within(self, name: str, numbers: Degrees) -> Allowed:
        least, most = self._limits.least.get(name, LOWEST[name]), self._limits.most.get(name, ALL)
        return (least <= numbers) & (numbers <= most)

    def _slices(self, cuts: Sequence[dict[str, Degrees]]) -> Degrees:
        """Slices of all dims together [members, strategies]."""
        one = np.ones(self._family.members)
        return np.stack([math.prod(cut.values(), start=one) for cut in cuts], axis=1)
