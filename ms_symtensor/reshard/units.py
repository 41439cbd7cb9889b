"""Tensors that move together, and equal ones of these once.

A unit is one tensor, or one of each of several pipeline stages that are alike: of these every stage has a share, so that they
are all-gathered along the pipeline. Units of a class lie alike on both sides; only their names differ.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.errors import InputError
from ms_symtensor.reshard.slices import Held, Side
from ms_symtensor.reshard.values import can_cast
from ms_symtensor.tensor.dtype import size_B

_SHOWN = 3


@dataclass(frozen=True)
class Pair:
    """A tensor as the first plan holds it, and as the second one does; their names are one, and their shapes."""

    source: Held
    target: Held

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """Cells per dim: the fewest of which the slices of both sides are made."""
        cuts = [[slices.cuts for _, slices in held.stages] for held in (self.source, self.target)]
        return tuple(math.lcm(*sizes) for sizes in zip(*cuts[0], *cuts[1], strict=True))

    @property
    def moved_as(self) -> str:
        """The type in which elements travel: the smaller one."""
        return min((self.source.dtype, self.target.dtype), key=size_B)

    @property
    def cell_elements(self) -> int:
        return math.prod(self.source.shape) // math.prod(self.grid)


@dataclass(frozen=True)
class UnitClass:
    """Units that lie alike: `units` are the tensors of each, `held` and `needed` say which cells of a unit each rank of the first
    side has, and each of the second must have, [ranks, cells]; cells are of the first member, then of the second, and so on.
    """

    units: tuple[tuple[Pair, ...], ...]
    held: NDArray[np.bool_]
    needed: NDArray[np.bool_]

    @property
    def count(self) -> int:
        return len(self.units)

    @property
    def sample(self) -> Pair:
        return self.units[0][0]

    @property
    def is_state(self) -> bool:
        return self.sample.source.is_state

    def cell_B(self, dtype: str) -> int:
        """Bytes of a cell whose elements are of `dtype`."""
        return self.sample.cell_elements * size_B(dtype)

    @property
    def source_B(self) -> int:
        return self.cell_B(self.sample.source.dtype)

    @property
    def target_B(self) -> int:
        return self.cell_B(self.sample.target.dtype)

    @property
    def moved_B(self) -> int:
        return self.cell_B(self.sample.moved_as)


def pairs_of(source: Side, target: Side) -> tuple[Pair, ...]:
    """The tensors of `target`, each with the one of `source` that has its name.

    Errors: InputError for tensors that `source` has not, or in another shape, or of a type that is not cast.
    """
    known = {held.name: held for held in source.tensors}
    missing = [held.name for held in target.tensors if held.name not in known]
    if missing:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise InputError(
            f"the first plan has no {', '.join(missing[:_SHOWN])}{more}, which the second needs: give two plans of one network"
        )
    for held in target.tensors:
        shape = known[held.name].shape
        if shape != held.shape:
            raise InputError(
                f"{held.name} is {list(shape)} in the first plan and {list(held.shape)} in the second: give plans of one network"
            )
        dtype = known[held.name].dtype
        if not can_cast(dtype, held.dtype):
            raise InputError(
                f"{held.name} is {dtype} in the first plan and {held.dtype} in the second: give both one type"
            )
    return tuple(Pair(known[held.name], held) for held in target.tensors)


def classes_of(source: Side, target: Side, pairs: Sequence[Pair]) -> tuple[UnitClass, ...]:
    """All of `pairs` in units, and those in classes."""
    alike: dict[tuple[object, ...], dict[tuple[int, ...], list[Pair]]] = {}
    for pair in pairs:
        one, other = pair.source, pair.target
        slices = tuple(slices for _, slices in one.stages)
        key = (one.shape, one.dtype, other.dtype, slices, other.stages, one.is_state)
        alike.setdefault(key, {}).setdefault(one.fresh, []).append(pair)
    found = []
    for of_stages in alike.values():
        of_class: dict[tuple[tuple[int, ...], ...], list[tuple[Pair, ...]]] = {}
        for unit in _units(of_stages):
            of_class.setdefault(tuple(pair.source.fresh for pair in unit), []).append(unit)
        for units in of_class.values():
            held = [source.holds(pair.source, pair.grid, fresh_only=True) for pair in units[0]]
            needed = [target.holds(pair.target, pair.grid) for pair in units[0]]
            found.append(UnitClass(tuple(units), np.hstack(held), np.hstack(needed)))
    return tuple(found)


def _units(of_stages: dict[tuple[int, ...], list[Pair]]) -> list[tuple[Pair, ...]]:
    """One tensor of every stage that has one left, until none has."""
    most = max(map(len, of_stages.values()))
    return [tuple(pairs[n] for pairs in of_stages.values() if n < len(pairs)) for n in range(most)]
