"""How fast a block can be that keeps little: exact lower hulls of seconds against bytes, over layouts and recomputation.

For a price σ of a byte (seconds) and f micro-batches in flight, what part k of the network (the blocks of a kind, what stands
before or behind them) costs on one stage is at least

    B_k(σ, f) = min over layouts x, recomputed operators ρ of  each(x) + again(x, ρ) + c once(x) + σ (rest(x) + f kept(x, ρ))

by variable elimination over the candidates x_v and one yes or no ρ_v for every operator. An operator that is recomputed
frees the tensors that it makes. What it reads and no gradient does is kept then, or recomputed too. A tensor that moving made
larger may be moved again. So B is a bound for whatever MindSpore can be told to recompute.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.stages.layout_candidates import ConfigGroup
from ms_symtensor.search.tables.elimination import Factor, Minimum, elimination_order
from ms_symtensor.search.tables.tensor_terms import slices_B
from ms_symtensor.search.tables.tensors import Tensor, layouts_at
from ms_symtensor.search.tables.terms import Terms
from ms_symtensor.tensor.dtype import size_B

Array = NDArray[np.float64]


Among = Mapping[int, NDArray[np.bool_]]
"""Of some variables, which of their candidates [candidates] there are."""


@dataclass(frozen=True)
class Prices:
    """Of every question: seconds that a byte costs, micro-batches in flight, the share of what a step takes once."""

    byte_s: Array
    in_flight: Array
    once: Array


@dataclass(frozen=True)
class _Piece:
    """Tables of one term on one mesh: `left_B` of `kept_B` stay where the operator `made_by` is recomputed (-1: none may be), and
    `moved_s` seconds bring back a copy that moving made. Where a copy `differs` from what the operator made, that may be kept in
    its place: `source_B`.

    `wanted_by`: operators of the block that are no gradients' readers: if they are recomputed, `wanted_B` are kept, or what
    `made_by` makes is recomputed too; moving it again takes `carried_s`. `whole_s`: seconds where a whole block is recomputed.
    """

    scope: tuple[int, ...]
    counts: Array
    each_s: Array
    recompute_s: Array
    once_s: Array
    kept_B: Array
    left_B: Array
    at_rest_B: Array
    moved_s: Array
    source_B: Array
    differs: NDArray[np.bool_]
    made_by: int
    wanted_by: tuple[int, ...]
    wanted_B: Array
    carried_s: Array
    whole_s: Array

    @property
    def is_saved(self) -> bool:
        """Whether recomputation changes what it costs."""
        return bool(self.recompute_s.any() or (self.left_B != self.kept_B).any())


class Fronts:
    """The fronts of the parts of a network under one setting of the optimizer, on one member of its family of meshes."""

    def __init__(self, of: ConfigGroup, member: int) -> None:
        self._problem, self._parameters, self._member = of.problem, of.tables.parameters, member
        blocks = sum(of.depths[1:-1])
        least, most = self._problem.limits.recomputed(blocks)
        self._all, self._none = (
            least == blocks,
            most == 0,
        )  # whether it is pinned that blocks are recomputed, or that none is
        self._orders: dict[frozenset[tuple[int, ...]], tuple[int, ...]] = {}

    def least(self, weights: Array, prices: Prices, among: Among) -> Minimum:
        """B of every question [questions], with every place so often [questions, places] and candidates `among` some; and its
        layouts, by variable.
        """
        problem = self._problem
        grids = problem.on_one_grid(np.full(len(weights), self._member, dtype=np.intp))
        with np.errstate(invalid="ignore"):
            factors = [*self._factors(weights, prices), *grids]
        inside = len(problem.sizes) + len(problem.known.grid_nums)
        number = 1 + max(inside - 1, *(v for one in factors for v in one.scope))
        factors += [
            Factor((v,), np.tile(np.where(there, 0.0, np.inf), (len(weights), 1))) for v, there in among.items()
        ]
        sizes = (*problem.sizes, *problem.known.grid_nums, *(2,) * (number - inside))
        scopes = frozenset(problem.ties.scope(one.scope) for one in factors)
        if scopes not in self._orders:
            self._orders[scopes] = elimination_order(sizes, sorted(scopes))
        found = problem.ties.minimise(sizes, factors, self._orders[scopes])
        return replace(found, assignment=found.assignment[:, : len(problem.sizes)])

    def _factors(self, weights: Array, prices: Prices) -> Iterator[Factor]:
        problem = self._problem
        first = len(problem.sizes) + len(problem.known.grid_nums)
        number = {v: n for n, v in enumerate(self._makers)}
        dear = prices.byte_s * prices.in_flight
        for piece in self._pieces:
            occurs = weights @ piece.counts
            joint = _times(occurs, piece.each_s) + _times(occurs * prices.once, piece.once_s)
            joint += _times(occurs * prices.byte_s, piece.at_rest_B)
            joint += _times(weights[:, [0, -1]] @ piece.counts[[0, -1]] * dear, piece.kept_B)
            for kind in range(len(problem.places.kinds)):
                places = slice(3 * kind + 1, 3 * kind + 4)
                if self._all or self._none:
                    inside = weights[:, places] @ piece.counts[places]
                    joint += _times(inside * dear, piece.left_B if self._all else piece.kept_B)
                    joint += _times(inside if self._all else 0.0 * inside, piece.whole_s)
                    continue
                alike = self._alike(kind, weights[:, places]) @ piece.counts[places]
                if piece.made_by not in number:
                    alike = weights[:, places] @ piece.counts[places]
                further = weights[:, places] @ piece.counts[places] - alike
                joint += _times(further * dear, np.minimum(piece.kept_B, piece.left_B))
                if not alike.any():
                    continue
                keep, gone = _times(alike * dear, piece.kept_B), _times(alike * dear, piece.left_B)
                moved = _times(alike, piece.moved_s)
                other = np.minimum(keep, _times(alike * dear, piece.source_B) + moved)
                kept = np.where(piece.differs, other, keep)
                if piece.wanted_by:
                    yield self._wanted(piece, alike, alike * dear, first + kind * len(number), number)
                if piece.is_saved and piece.made_by in number:
                    saved = np.where(gone > keep, gone, np.minimum(kept, gone + moved))
                    made = _times(alike, piece.recompute_s) + saved
                    rho = first + kind * len(number) + number[piece.made_by]
                    yield Factor((*piece.scope, rho), np.stack([kept, made], axis=-1))
                else:
                    joint += kept
            yield Factor(piece.scope, joint)

    def _alike(self, kind: int, weights: Array) -> Array:
        """Those of `weights` [questions, first, middle and last block of a kind] whose blocks recompute alike: the middle ones,
        and others that do not differ in what recomputation is about; or the only ones that are asked for.
        """
        alone = (weights > 0).sum(axis=1, keepdims=True) == 1
        found: Array = np.where(alone | self._same[kind], weights, 0.0)
        return found

    @cached_property
    def _same(self) -> list[NDArray[np.bool_]]:
        """Of every kind, which of its first, middle and last blocks have what the middle ones can recompute."""
        kinds = range(len(self._problem.places.kinds))
        about = [p for p in self._pieces if p.made_by in self._makers and (p.is_saved or p.wanted_by)]
        counts = np.array([p.counts for p in about]).reshape(len(about), -1)
        every = [counts[:, 3 * kind + 1 : 3 * kind + 4] for kind in kinds]
        return [(one == one[:, 1:2]).all(axis=0) for one in every]

    def _wanted(self, piece: _Piece, alike: Array, dear: Array, first: int, number: Mapping[int, int]) -> Factor:
        """What those that are recomputed and read a tensor which no gradient reads ask for."""
        by = [v for v in piece.wanted_by if v in number]
        makes = piece.made_by in number
        scope = (*piece.scope, *(first + number[v] for v in by), *((first + number[piece.made_by],) if makes else ()))
        carried = _times(alike, piece.carried_s)
        table = np.zeros((*carried.shape, *(2,) * len(by), 2))  # whether each reads it, and whether it is recomputed
        for asks in product((0, 1), repeat=len(by)):
            if any(asks):
                moved = carried if all(asks) else 0.0 * carried
                at = (..., *asks, slice(None))
                table[at] = np.stack([moved + _times(dear, piece.wanted_B), moved], axis=-1)
        table = table if makes else table[..., 0]
        return Factor(scope, table)

    @cached_property
    def _recomputation(self) -> frozenset[int]:
        index = self._problem.known.index
        return frozenset(index[name] for name in self._problem.recomputation if name in index)

    @cached_property
    def _pieces(self) -> list[_Piece]:
        problem = self._problem
        of_tensor = {id(one): tensor for tensor, some in problem.between.items() for one in some}
        own = {id(one) for one in problem.terms[: len(problem.sizes)]}
        return [self._piece(one, of_tensor.get(id(one)), id(one) in own) for one in (*problem.terms, *self._parameters)]

    def _piece(self, one: Terms, tensor: Tensor | None, is_own: bool) -> _Piece:
        m = self._member
        kept, recomputation, nothing = one.kept_B[m], one.recompute_s[m], np.zeros_like(one.recompute_s[m])
        made_by = one.scope[0] if is_own else -1 if tensor is None else tensor.made_by[0]
        moved = recomputation if tensor is None or all(r.kept for r in tensor.readers) else nothing
        source, differs = nothing, recomputation > 0
        if tensor is not None and kept.any():
            least = self._least_B(tensor, one)
            source = least * self._narrower(tensor)
            differs = (moved > 0) | (source < kept)
            if self._problem.between[tensor][0] is not one or self._shared[tensor.made_by] > 1:
                source = nothing
        by = () if tensor is None else self._wanted_by(tensor, one)
        return _Piece(
            one.scope, np.array(one.counts), one.each_s[m], recomputation if is_own else nothing, one.once_s[m], kept,
            one.kept_recomputed_B[m], one.at_rest_B[m], nothing if is_own else moved, source, differs, made_by,
            by, self._least_B(tensor, one) if by and tensor is not None else nothing, recomputation if by else nothing,
            recomputation,
        )  # fmt: skip

    @cached_property
    def _shared(self) -> Counter[tuple[int, int]]:
        """Of every output of an operator, in how many tables bytes of it are kept inside the blocks."""
        every = ((tensor, one) for tensor, some in self._problem.between.items() for one in some)
        return Counter(tensor.made_by for tensor, one in every if one.kept_B.any() and any(one.counts[1:-1]))

    def _narrower(self, tensor: Tensor) -> float:
        """The bytes of an element as its operator makes it, in times of those of `tensor`, behind a Cast; 1 at most."""
        number, output = tensor.made_by
        if number < 0:
            return 1.0
        made = self._problem.known.items[number].op.outputs[output]
        return min(1.0, size_B(made.dtype) / size_B(tensor.dtype))

    @cached_property
    def _makers(self) -> tuple[int, ...]:
        """The variables whose operators stand in a block: what they make may be had again; in no time where they are not."""
        return tuple(
            v for v, one in enumerate(self._problem.known.items) if any(op.block is not None for op in one.members)
        )

    def _wanted_by(self, tensor: Tensor, one: Terms) -> tuple[int, ...]:
        if not tensor.in_block or tensor.maker_keeps or tensor.crosses or any(r.kept for r in tensor.readers):
            return ()
        if one is not self._problem.between[tensor][0]:
            return ()
        found = {
            r.end[0] for r in tensor.readers if r.inside and r.end[0] in self._recomputation and r.end[0] in one.scope
        }
        return tuple(sorted(found))

    def _least_B(self, tensor: Tensor, one: Terms) -> Array:
        """Bytes of `tensor` in the layout of that of its ends where a device has the least of it."""
        known = self._problem.known
        found = np.full(one.each_s.shape[1:], np.inf)
        for end, shape in ((tensor.maker, tensor.shape), *((r.end, tensor.reader_shape) for r in tensor.readers)):
            if end[0] in one.scope:
                size = slices_B(known, layouts_at(known, end, shape), tensor.dtype, tensor.power)[self._member]
                axis = one.scope.index(end[0])
                found = np.minimum(found, size.reshape([-1 if n == axis else 1 for n in range(found.ndim)]))
        return np.where(np.isfinite(found), found, 0.0)


def _times(occurs: Array, table: Array) -> Array:
    """`table` so often as it `occurs` in every question; what does not occur may be forbidden."""
    found: Array = occurs.reshape(-1, *(1,) * table.ndim) * table
    found[occurs == 0] = 0.0
    return found
