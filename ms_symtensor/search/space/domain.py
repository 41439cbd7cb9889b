"""What every operator may choose from: all ways to cut its dims that MindSpore accepts and that make sense on N devices."""

import math
from collections.abc import Iterator, Sequence

from ms_symtensor.algebra.divisors import divisors
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy, Placement, place, strategy_of
from ms_symtensor.ops.signature import OpView, Signature, Unit
from ms_symtensor.search.space.family import Family
from ms_symtensor.tensor.redistribution_groups import is_feasible

FINEST_MESH_DEVICES = 8
"""Up to so many devices the finest mesh (prime axes) is searched, which contains all others; beyond, all meshes of two
axes (empirical: the number of layouts grows with the power of the axes)."""

REPEATING_DIMS = 2
"""Operators with at most so many dims to cut may repeat their work on some devices (a norm under tensor parallelism);
those with more always use as many as their dims allow. Empirical, to bound the search."""


def meshes(device_num: int) -> tuple[tuple[int, ...], ...]:
    """The mesh factorisations of `device_num` that are searched, each a tuple of axis sizes, descending.

    One axis alone has no layout that two do not have.
    """
    if device_num <= FINEST_MESH_DEVICES:
        return (prime_factors(device_num),)
    two = tuple((device_num // d, d) for d in divisors(device_num) if d > 1 and d * d <= device_num)
    return two or ((device_num, 1),)


def prime_factors(n: int) -> tuple[int, ...]:
    """The prime factors of n, descending, with repetition."""
    found = []
    factor = 2
    while n > 1:
        while n % factor == 0:
            found.append(factor)
            n //= factor
        factor += 1
    return tuple(reversed(found))


def cut_vectors(sig: Signature, mesh: tuple[int, ...]) -> tuple[dict[str, int], ...]:
    """All ways to cut the dims of `sig` by the axes of `mesh`: every axis cuts one dim or none, in a fixed order."""
    found: dict[tuple[int, ...], None] = {(1,) * len(sig.cuttable): None}
    for axis in mesh:
        for vector in list(found):
            for i, dim in enumerate(sig.cuttable):
                degree = vector[i] * axis
                if sig.sizes[dim] % degree == 0:
                    longer = (*vector[:i], degree, *vector[i + 1 :])
                    found[longer] = None
    ordered = sorted(found, reverse=True)
    return tuple({d: n for d, n in zip(sig.cuttable, vector, strict=True) if n > 1} for vector in ordered)


def candidates(
    op: OpView,
    sig: Signature,
    of: Family,
    regular: bool = False,
    idle: bool = False,
    samples: frozenset[str] = frozenset(),
) -> tuple[tuple[OpStrategy, Placement], ...]:
    """The strategies of `op` on the meshes of `of` worth pricing, with their placements, in a fixed order.

    `regular`: only those whose layouts are alike on all meshes of a family. `samples`: the dims that hold samples, which a family
    may have an axis for.

    Products, and operators with more than REPEATING_DIMS dims to cut, use as many devices as their dims allow, unless they may
    be `idle`. Operators whose partial sums can be scattered appear in both forms.
    """
    every = cut_vectors(sig, of.mesh)
    vectors = _by_samples(every, samples, of.sample_slices)
    most = max(math.prod(v.values()) for v in vectors)
    busy = not idle and (sig.unit is Unit.CUBE or len(sig.cuttable) > REPEATING_DIMS)
    for chosen in ([v for v in vectors if not busy or math.prod(v.values()) == most], vectors, every):
        found = tuple(_placed(op, sig, chosen, of, regular))
        if found:
            return found
    place(op, sig, strategy_of(sig, vectors[0]), of.device_num)  # says what speaks against it
    raise InvalidStrategyError(f"{op.name} ({op.type}): MindSpore accepts no strategy on {of.device_num} devices")


def _by_samples(
    vectors: tuple[dict[str, int], ...], samples: frozenset[str], slices: int
) -> tuple[dict[str, int], ...]:
    """Those that cut `samples` in so many slices, or a multiple; all where none does."""
    found = tuple(v for v in vectors if math.prod(v.get(d, 1) for d in samples) % slices == 0)
    return found or vectors


def _placed(
    op: OpView, sig: Signature, vectors: Sequence[dict[str, int]], of: Family, regular: bool
) -> Iterator[tuple[OpStrategy, Placement]]:
    for vector in vectors:
        partial = math.prod(vector.get(d, 1) for d in sig.reduced) > 1
        for scatter in (False, True) if partial and sig.scatter is not None else (False,):
            strategy = strategy_of(sig, vector, scatter)
            try:
                placement = place(op, sig, strategy, of.device_num)
            except InvalidStrategyError:
                continue  # a rule of this operator (`forbids`, a scatter that does not divide)
            layouts = (*placement.inputs, *placement.computed, *placement.outputs)
            if (regular or of.is_strict) and not all(map(of.is_regular, layouts)):
                continue
            if placement.partial is None or is_feasible(placement.partial.group):
                yield strategy, placement
