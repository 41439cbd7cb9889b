"""Buffers of communicators that a stage needs for certain, whatever is moved there: a bound on them, operator by operator.

A communicator of a rank has one buffer, however many operators use it: that is no sum over operators. But an operator needs
some groups by itself: for the gradient of a weight that has copies, and for partial sums. Let n of the operators of a block use a
group in the layouts that are known. If each of these counts for 1/n of its buffer in all layouts in which it uses it, the sum is
no more than the buffer; and to pay nothing, all n must do without it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cost.step import HCCL_BUFFER_B
from ms_symtensor.program.parameters import is_summed
from ms_symtensor.search.bounds.users import User
from ms_symtensor.search.space.family import Family
from ms_symtensor.search.tables.problem import Problem

Array = NDArray[np.float64]
Group = frozenset[int]
"""The axes of the mesh over which the ranks of a group lie."""


@dataclass(frozen=True)
class Communicators:
    """The groups that the operators in blocks need by themselves on the meshes of `family`: `sizes[number][candidate]` are
    their sizes on its representative. Groups over the same axes are the same ranks.
    """

    family: Family
    kinds: int
    kind_of: Mapping[int, int]
    sizes: Mapping[int, Sequence[frozenset[int]]]

    def users(self, choices: Sequence[Sequence[int] | NDArray[np.intp]], member: int) -> tuple[User, ...]:
        """The users on one mesh where `choices` are the layouts that are known: of what all of these use."""
        groups = {number: [self._groups(sizes, member) for sizes in its] for number, its in self.sizes.items()}
        numbers_of: dict[tuple[int, Group], list[int]] = {}
        for number, its in groups.items():
            for group in sorted(frozenset.intersection(*(its[choice[number]] for choice in choices)), key=sorted):
                numbers_of.setdefault((self.kind_of[number], group), []).append(number)
        found: dict[int, Array] = {}
        for (_, group), numbers in numbers_of.items():
            for number in numbers:
                uses = np.array([group in candidate for candidate in groups[number]])
                found[number] = found.get(number, np.zeros(len(uses))) + HCCL_BUFFER_B / len(numbers) * uses
        return tuple(User(number, self.kind_of[number], size_B) for number, size_B in sorted(found.items()))

    def _groups(self, sizes: frozenset[int], member: int) -> frozenset[Group]:
        return frozenset(group for size in sizes if (group := self.family.axes(size, member)))


def communicators(of: Problem) -> Communicators:
    """Those of `of`."""
    known, where = of.known, of.places
    kind_of: dict[int, int] = {}
    for number, variable in enumerate(known.items):
        counts = where.counts(dict.fromkeys(variable.members, 1))
        kinds = {(place - 1) // 3 for place, count in enumerate(counts) if count}
        is_inside = not counts[0] and not counts[-1] and len(kinds) == 1
        if is_inside and all(n in (0, 1) for n in counts):
            kind_of[number] = min(kinds)
    groups = {number: [set[int]() for _ in known.items[number].placements] for number in kind_of}
    for number, its in groups.items():
        for sizes, placement in zip(its, known.items[number].placements, strict=True):
            if placement.partial is not None:
                sizes.add(placement.partial.group.size)
    for use in of.parameters:
        trains = use.parameter.requires_grad and is_summed(known.items[use.number].op.type, use.position)
        if trains and use.number in groups:
            for sizes, layout in zip(groups[use.number], use.layouts, strict=True):
                sizes.add(layout.copies.size)
    needed = {number: tuple(frozenset(sizes - {1}) for sizes in its) for number, its in groups.items()}
    needed = {number: its for number, its in needed.items() if any(its)}
    return Communicators(known.pricer.family, len(where.kinds), kind_of, needed)
