"""Buffers of communicators that a stage needs for certain: a bound on them, operator by operator and move by move.

A communicator of a rank has one buffer, however many use it: that is no sum over operators. But an operator needs some groups by
itself, for the gradient of a weight that has copies, and for partial sums; and so do the moves of a tensor between two. Let n of
these in a block use a group in the layouts that are known. If each counts for 1/n of its buffer in all layouts in which it uses
it, the sum is no more than the buffer; and to pay nothing, all n must do without it. Moves count where no operator does: they are
easier to do without.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cost.step import HCCL_BUFFER_B
from ms_symtensor.program.parameters import is_summed
from ms_symtensor.search.bounds.users import User
from ms_symtensor.search.folded.places import Counts
from ms_symtensor.search.space.family import Family, runs_of
from ms_symtensor.search.tables.problem import Problem
from ms_symtensor.tensor.layout import DeviceGroup

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]


@dataclass(frozen=True)
class Uses:
    """What the blocks of a kind have once in each, and which groups that uses: `groups`, a table over the variables of `scope`,
    of the sum of 2 ** i for every i-th of `Family.codes`.
    """

    scope: tuple[int, ...]
    kind: int
    groups: Numbers


@dataclass(frozen=True, eq=False)
class Communicators:
    """The groups that are used in the blocks of `of`. Groups over the same axes are the same ranks."""

    of: Problem

    def users(self, choices: Sequence[Sequence[int] | NDArray[np.intp]], member: int) -> tuple[User, ...]:
        """The users on one mesh where `choices` are the layouts that are known: of what all of these use."""
        layouts, found = np.array(choices), dict[tuple[int, tuple[int, ...]], Array]()
        for group in self._on(member):
            for kind in range(self.kinds):
                counting = self._operators.always(layouts, group, kind) or self._moves.always(layouts, group, kind)
                for one in counting:
                    table = found.setdefault((kind, one.scope), np.zeros(one.groups.shape))
                    table += HCCL_BUFFER_B / len(counting) * ((one.groups & group) > 0)
        return tuple(
            User(scope, kind, size_B) for (kind, scope), size_B in sorted(found.items(), key=lambda one: one[0])
        )

    @property
    def kinds(self) -> int:
        """How many kinds of blocks there are."""
        return len(self.of.places.kinds)

    @cached_property
    def kind_of(self) -> Mapping[int, int]:
        """The kinds of blocks that variables stand in, of those that stand in one, once in each."""
        found = {}
        for number, counts in self._counts_of.items():
            kinds = {(place - 1) // 3 for place, count in enumerate(counts) if count}
            is_inside = not counts[0] and not counts[-1] and len(kinds) == 1
            if is_inside and all(n in (0, 1) for n in counts):
                found[number] = min(kinds)
        return found

    @cached_property
    def _counts_of(self) -> Mapping[int, Counts]:
        every = enumerate(self.of.known.items)
        return {number: self.of.places.counts(dict.fromkeys(one.members, 1)) for number, one in every}

    def _on(self, member: int) -> list[int]:
        """The different groups of several ranks on a mesh, each as all bits that stand for it there."""
        family, found = self.of.known.pricer.family, dict[frozenset[int], int]()
        for code, bit in bits(family).items():
            if axes := family.axes(code, member):
                found[axes] = found.get(axes, 0) | bit
        return list(found.values())

    @cached_property
    def _operators(self) -> "_Every":
        return _Every([one for one in _of_operators(self.of, self.kind_of) if one.groups.any()])

    @cached_property
    def _moves(self) -> "_Every":
        return _Every([one for one in _of_moves(self.of, self.kind_of, self._counts_of) if one.groups.any()])


@dataclass(frozen=True, eq=False)
class _Every:
    """Several `uses`, their tables end to end."""

    uses: Sequence[Uses]

    def always(self, layouts: Numbers, group: int, kind: int) -> list[Uses]:
        """Those in blocks of a kind that use a group in all of these layouts [layouts, variables]."""
        tables, starts, scopes, steps = self._flat
        groups = tables[starts + (layouts[:, scopes] * steps).sum(axis=-1)]
        is_used = ((groups & group) > 0).all(axis=0).tolist()
        return [one for one, is_there in zip(self.uses, is_used, strict=True) if is_there and one.kind == kind]

    @cached_property
    def _flat(self) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """All tables end to end, where each starts, and the variables of its scope and the steps of their candidates."""
        starts = np.cumsum([0, *(one.groups.size for one in self.uses)])[:-1]
        tables = np.concatenate([np.zeros(0, dtype=np.intp), *(one.groups.ravel() for one in self.uses)])
        scopes, steps = (np.zeros((len(self.uses), 2), dtype=np.intp) for _ in range(2))
        for place, one in enumerate(self.uses):
            scopes[place, : len(one.scope)] = one.scope
            steps[place, : len(one.scope)] = [n // one.groups.itemsize for n in one.groups.strides]
        return tables, starts, scopes, steps


def bits(family: Family) -> dict[int, int]:
    """The bit of every one of the family's codes."""
    return {code: 1 << place for place, code in enumerate(family.codes)}


def _of_operators(of: Problem, kind_of: Mapping[int, int]) -> Iterator[Uses]:
    """What operators use by themselves."""
    known, bit = of.known, bits(of.known.pricer.family)
    found = {number: np.zeros(len(known.items[number].placements), dtype=np.intp) for number in kind_of}

    def bit_of(group: DeviceGroup) -> int:
        code = known.pricer.family.code(runs_of(group))
        return 0 if code is None else bit.get(code, 0)

    for number, groups in found.items():
        for candidate, placement in enumerate(known.items[number].placements):
            if placement.partial is not None:
                groups[candidate] |= bit_of(placement.partial.group)
    for use in of.parameters:
        trains = use.parameter.requires_grad and is_summed(known.items[use.number].op.type, use.position)
        if trains and use.number in found:
            found[use.number] |= np.array([bit_of(layout.copies) for layout in use.layouts])
    for number, groups in found.items():
        yield Uses((number,), kind_of[number], groups)


def _of_moves(of: Problem, kind_of: Mapping[int, int], counts_of: Mapping[int, Counts]) -> Iterator[Uses]:
    """What moves of tensors inside a block use, from one operator of it to another."""
    bit = bits(of.known.pricer.family)
    for tensor, counts in of.between.items():
        maker = tensor.maker[0]
        if maker not in kind_of or counts != counts_of[maker]:
            continue
        for reader in dict.fromkeys(tensor.readers):
            if kind_of.get(reader.end[0]) == kind_of[maker] and counts_of[reader.end[0]] == counts:
                scope, groups = of.tables.groups(tensor, reader, bit)
                yield Uses(scope, kind_of[maker], groups)
