"""What limits leave of an operator's candidates: the others cost infinitely much, on every mesh by itself."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.ops.placement import OpStrategy, cuts_of
from ms_symtensor.ops.signature import OpView, Signature
from ms_symtensor.search.constraints.limits import ALL, LOWEST, Limits
from ms_symtensor.search.constraints.operator_pins import SYMBOLS, OperatorPin, Strategy
from ms_symtensor.search.constraints.roles import (
    Meanings,
    batch_size,
    expert_products,
    major_products,
    own_rows,
    weight_dims,
)
from ms_symtensor.search.space.domain import candidates
from ms_symtensor.search.space.family import Family
from ms_symtensor.search.space.grids import Degrees, Grids, Slices, degree_of
from ms_symtensor.tensor.graph import Graph

Allowed = NDArray[np.bool_]


class Restriction:
    """`limits` on the operators of `graph`, on all meshes of `family`."""

    def __init__(self, graph: Graph, meanings: Meanings, limits: Limits, family: Family) -> None:
        self._graph, self._meanings, self._limits, self._family = graph, meanings, limits, family
        self._batch = batch_size(graph, meanings) * family.growth
        self._products: frozenset[str] = frozenset()
        self._experts: frozenset[str] = frozenset()
        if limits.judges_grids or limits.names("data_parallel", "model_parallel"):
            self._products = frozenset(major_products(graph, meanings))
        if limits.names("expert_parallel"):
            self._experts = expert_products(graph, meanings)
        self._pins: dict[str, list[OperatorPin]] = {}
        self._open: dict[str, list[OperatorPin]] = {}
        for pin in limits.operators:
            for op in graph.ops:
                if pin.is_for(op):
                    (self._open if limits.is_open(pin) else self._pins).setdefault(op.name, []).append(pin)

    def allowed(self, op: OpView, sig: Signature, strategies: Sequence[OpStrategy]) -> Allowed | None:
        """Which of `strategies` are allowed [members, strategies]; None where all are."""
        if not self._restricts(op.name):
            return None
        found = self._by_itself(op, sig, strategies)
        if self.grids is not None and self.grids.judges(op.name):
            found &= self.grids.allowed(op.name, sig, self._slices_of(op, sig, strategies)).any(axis=-1)
        return found

    def together(self, op: OpView, sig: Signature, strategies: Sequence[OpStrategy]) -> Allowed | None:
        """Which `strategies` go with which of several grids [members, strategies, grids]; None where all do."""
        if self.grids is None or len(self.grids.every) < 2 or not self.grids.judges(op.name):
            return None
        return self.grids.allowed(op.name, sig, self._slices_of(op, sig, strategies))

    @cached_property
    def grids(self) -> Grids | None:
        """How the major products may be cut, where other operators are judged by that."""
        if not self._limits.judges_grids:
            return None
        known: dict[int, tuple[Signature, Sequence[Mapping[str, int]]]] = {}
        products = {}
        for name in sorted(self._products):
            seen, sig = self._meanings[name]
            if id(seen) not in known:
                known[id(seen)] = sig, self._slices_of(seen, sig, self._left(seen, sig))
            products[name] = known[id(seen)]
        return Grids(self._graph, self._meanings, self._limits, self._family, products, self._open)

    def _left(self, op: OpView, sig: Signature) -> Sequence[OpStrategy]:
        """The strategies of a major product that its own limits leave."""
        for idle in (False, True):
            every = [strategy for strategy, _ in candidates(op, sig, self._family, regular=True, idle=idle)]
            left = self._by_itself(op, sig, every).any(axis=0)
            if left.any():
                return [strategy for strategy, is_left in zip(every, left, strict=True) if is_left]
        return ()

    def _by_itself(self, op: OpView, sig: Signature, strategies: Sequence[OpStrategy]) -> Allowed:
        """Which of `strategies` are allowed whatever other operators have."""
        slices = Slices(self._family, self._slices_of(op, sig, strategies))
        found: Allowed = np.ones((self._family.members, len(strategies)), bool)
        if op.name in self._products:
            weight = weight_dims(sig)
            rows, columns = slices.of(lambda d: d not in weight), slices.of(weight.__contains__)
            found &= self._within("data_parallel", self._samples(rows)) & self._within("model_parallel", columns)
        if op.name in self._experts:
            found &= self._within("expert_parallel", slices.of(own_rows(sig).__contains__))
        for pin in self._pins.get(op.name, ()):
            found &= self._pinned(pin, sig, strategies, slices)
        return found

    def needs_idle(
        self, op: OpView, sig: Signature, regular: bool, samples: frozenset[str], growing: frozenset[str]
    ) -> bool:
        """Whether none of the operator's candidates that use as many devices as they can is allowed (`domain.candidates`) on a
        mesh that divides its dims. `growing`: the dims that go with the batch.
        """
        if not self._restricts(op.name):
            return False
        every = [strategy for strategy, _ in candidates(op, sig, self._family, regular, samples=samples)]
        allowed = self.allowed(op, sig, every)
        if allowed is None:
            return False
        slices = Slices(self._family, self._slices_of(op, sig, every))
        for d in sig.mesh:
            size = sig.sizes[d] * self._family.grown(int(d in growing))
            allowed = allowed & (size[:, None] % slices.of(d.__eq__) == 0)
        return not allowed.any()

    def _restricts(self, name: str) -> bool:
        is_judged = self.grids is not None and self.grids.judges(name)
        return is_judged or any(name in some for some in (self._pins, self._products, self._experts))

    def _slices_of(self, op: OpView, sig: Signature, strategies: Sequence[OpStrategy]) -> list[dict[str, int]]:
        """Slices of every dim on the representative under each of `strategies`."""
        every = (cuts_of(op, sig, strategy, self._family.device_num) for strategy in strategies)
        return [{d: n for d, n in cuts.items() if n > 1} for cuts in every]

    def _samples(self, rows: Degrees) -> Degrees:
        """Into how many slices `rows` cut the batch."""
        if not self._batch.any():
            return rows
        batch = np.round(self._batch).astype(int)[:, None]
        return np.where(np.isnan(rows), np.nan, np.gcd(np.nan_to_num(rows).astype(int), batch))

    def _pinned(self, pin: OperatorPin, sig: Signature, strategies: Sequence[OpStrategy], slices: Slices) -> Allowed:
        if pin.inputs is not None:
            columns = [self._is_strategy(pin, sig, strategy) for strategy in strategies]
            return np.stack(columns, axis=1)
        if pin.dims is not None:
            found: Allowed = np.full((self._family.members, len(strategies)), pin.dims.keys() <= {*sig.mesh})
            for dim in pin.dims if pin.rest_free else sig.mesh:
                found &= slices.of(dim.__eq__) == pin.dims.get(dim, 1)
            return found
        assert pin.slices is not None
        first = next((d for d in sig.outputs[0] if d), None)
        of_first, of_rest = slices.of(lambda d: d == first), slices.of(lambda d: d != first)
        result: Allowed = (of_first == self._product_of(pin.slices[0])) & (of_rest == self._product_of(pin.slices[1]))
        return result

    def _is_strategy(self, pin: OperatorPin, sig: Signature, strategy: OpStrategy) -> Allowed:
        """Whether `strategy` is the one of `pin` [members]; without outputs where the pin has none."""
        found: Allowed = np.ones(self._family.members, bool)
        pairs: list[tuple[Strategy | None, Strategy | None]] = [(pin.inputs, strategy.inputs)]
        if pin.outputs is not None or not sig.implicit_reduce_scatter:
            pairs.append((pin.outputs, strategy.outputs))
        for wanted, fixed in pairs:
            if (wanted is None) != (fixed is None) or [len(x) for x in wanted or ()] != [len(x) for x in fixed or ()]:
                return np.zeros_like(found)
            for w, g in zip(chain.from_iterable(wanted or ()), chain.from_iterable(fixed or ()), strict=True):
                found &= degree_of(self._family, g) == w
        return found

    def _product_of(self, factors: Sequence[str]) -> float:
        """The product of numbers and of degrees, which the limits say exactly."""
        return math.prod(self._limits.least[SYMBOLS[f]] if f in SYMBOLS else int(f) for f in factors)

    def _within(self, name: str, numbers: Degrees) -> Allowed:
        least, most = self._limits.least.get(name, LOWEST[name]), self._limits.most.get(name, ALL)
        within: Allowed = (least <= numbers) & (numbers <= most)
        return within
