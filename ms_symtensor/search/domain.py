"""What every operator may choose from: all ways to cut its dims that MindSpore accepts and that make sense on N devices."""

import math
from collections.abc import Iterator
from functools import lru_cache

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy, Placement, place, strategy_of
from ms_symtensor.ops.signature import OpView, Signature, Unit

FULL_DOMAIN_DEVICES = 16
"""Up to so many devices operators may also leave devices idle in part (repeat work): empirical, to bound the search."""


@lru_cache(maxsize=4096)
def divisors(n: int) -> tuple[int, ...]:
    """The divisors of n, ascending."""
    return tuple(d for d in range(1, n + 1) if n % d == 0)


def cut_vectors(sig: Signature, device_num: int) -> Iterator[dict[str, int]]:
    """All assignments of slices to the dims of `sig` whose product divides `device_num` and that divide the dims."""

    def extend(dims: tuple[str, ...], left: int) -> Iterator[dict[str, int]]:
        if not dims:
            yield {}
            return
        for degree in divisors(left):
            if sig.sizes[dims[0]] % degree == 0:
                for rest in extend(dims[1:], left // degree):
                    yield {dims[0]: degree, **rest} if degree > 1 else rest

    yield from extend(sig.cuttable, device_num)


def candidates(op: OpView, sig: Signature, device_num: int) -> tuple[tuple[OpStrategy, Placement], ...]:
    """The strategies of `op` worth pricing, with their placements, in a fixed order.

    All cut vectors that MindSpore accepts. Products use all devices; with more than FULL_DOMAIN_DEVICES devices every
    other operator also uses all of them or as many as its dims allow, or none. Operators whose partial sums can be
    scattered appear in both forms.
    """
    vectors = list(cut_vectors(sig, device_num))
    most = max(math.prod(v.values()) for v in vectors)
    kept = []
    for vector in vectors:
        used = math.prod(vector.values())
        wasteful = used < most and (sig.unit is Unit.CUBE or (device_num > FULL_DOMAIN_DEVICES and used != 1))
        if not wasteful:
            kept.append(vector)
    found: list[tuple[OpStrategy, Placement]] = []
    for vector in kept:
        partial = math.prod(vector.get(d, 1) for d in sig.reduced) > 1
        for scatter in (False, True) if partial and sig.scatter is not None else (False,):
            strategy = strategy_of(sig, vector, scatter)
            try:
                found.append((strategy, place(op, sig, strategy, device_num)))
            except InvalidStrategyError:
                continue  # a rule of this operator (`exclusive`, `forbids`, a scatter that does not divide)
    if not found:
        strategy = strategy_of(sig, {})
        found.append((strategy, place(op, sig, strategy, device_num)))
    return tuple(found)
