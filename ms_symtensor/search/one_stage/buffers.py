"""Buffers of communicators that a plan needs for certain: those of the operator whose weights are the largest of all.

Every communicator of a rank has a buffer, however many tensors pass through it. Which ones there are is no sum over operators;
but those that one operator needs by itself are there: for the gradient of a weight that has copies, and for partial sums.
"""

from collections.abc import Sequence

import numpy as np

from ms_symtensor.cost.step import HCCL_BUFFER_B
from ms_symtensor.program.parameters import is_summed
from ms_symtensor.search.folded.places import Counts
from ms_symtensor.search.tables.parameters import ParameterUse
from ms_symtensor.search.tables.terms import Terms, terms
from ms_symtensor.search.tables.variables import Variable, Variables


def buffer_terms(known: Variables, uses: Sequence[ParameterUse], once: Counts) -> list[Terms]:
    """The bytes of these buffers; `once`: the counts of what is there once. Nothing on a family of several meshes, where groups
    have other sizes.
    """
    summed = [
        use for use in uses if use.parameter.requires_grad and is_summed(known.items[use.number].op.type, use.position)
    ]
    if not summed or known.pricer.family.members > 1:
        return []
    largest = max(summed, key=lambda use: use.parameter.type.size_B * len(known.items[use.number].members))
    found = [_groups(known.items[largest.number], largest, candidate) for candidate in range(len(largest.layouts))]
    size_B = np.array([[float(HCCL_BUFFER_B * count) for count in found]])
    return [terms((largest.number,), once, size_B.shape, kept_B=size_B, kept_recomputed_B=size_B)]


def _groups(of: Variable, use: ParameterUse, candidate: int) -> int:
    """How many groups of ranks the operator needs under one of its candidates."""
    copies, partial = use.layouts[candidate].copies, of.placements[candidate].partial
    groups = [copies, *([partial.group] if partial is not None else [])]
    return len({group.ranks() for group in groups if group.size > 1})
