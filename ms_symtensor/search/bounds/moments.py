"""What is there for a moment while a block runs backward, or what stands before the blocks: the gradient of its largest weight,
and what that is made of.

By then the other blocks of a stage still hold all that their gradients need. What this one still holds depends on what is made
again: nothing of it is counted but what this one gradient reads, the output's gradient, and inputs that the block itself makes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.program.liveness import VIEWS
from ms_symtensor.search.bounds.users import User
from ms_symtensor.search.tables.parameters import ParameterUse
from ms_symtensor.search.tables.problem import Problem
from ms_symtensor.search.tables.tensor_terms import slices_B
from ms_symtensor.search.tables.tensors import End, layouts_at
from ms_symtensor.tensor.graph import Graph, OpOutput, Source, TensorType

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """For every need the variable whose weight is the largest, and the bytes [members, candidates]."""

    largest: Mapping[int, tuple[int, Array]]

    def users(self, member: int) -> tuple[User, ...]:
        """What is needed for a moment on one mesh."""
        return tuple(User((number,), need, of[member]) for need, (number, of) in sorted(self.largest.items()))


def moments(of: Problem, kind_of: Mapping[int, int]) -> Moments:
    """Those of `of`; `kind_of`: the kinds of blocks that variables stand in, once in each."""
    kinds, largest = len(of.places.kinds), dict[int, tuple[float, int, Array]]()
    needs = {number: kinds + kind for number, kind in kind_of.items()}
    for use in of.parameters:
        need = needs.get(use.number, 2 * kinds if use.counts == (1.0, *(0.0,) * (len(use.counts) - 1)) else None)
        if need is None or not use.parameter.requires_grad or len(use.reads) != 1 or not use.reads[0].users:
            continue
        found_B = _moment_B(of, use)
        whole_B = float(found_B.max())
        if need not in largest or whole_B > largest[need][0]:
            largest[need] = whole_B, use.number, found_B
    return Moments({need: (number, found_B) for need, (_, number, found_B) in largest.items()})


def _moment_B(of: Problem, use: ParameterUse) -> Array:
    """Bytes of the gradient of a weight, and of what it is made of, [members, candidates]."""
    known, graph = of.known, of.graph
    op = known.items[use.number].op
    ends: list[tuple[End, Source, TensorType]] = [((use.number, "out", 0), OpOutput(op.name), op.outputs[0])]
    for position, source in enumerate(graph.tensor_inputs(op)):
        kind = graph.type_of(source)
        owner = _owner(graph, source)
        is_made_here = isinstance(owner, OpOutput) and graph.op_by_name[owner.op].block == op.block
        if position != use.position and position in known.signatures[op.name].keeps_inputs and is_made_here and kind:
            ends.append(((use.number, "in", position), source, kind))
    found_B = slices_B(known, use.layouts, use.reads[0].dtype, 0)
    for end, source, kind in ends:
        found_B = found_B + slices_B(known, layouts_at(known, end, kind.shape), kind.dtype, known.power_of(source))
    return found_B


def _owner(graph: Graph, source: Source) -> Source:
    """The tensor whose memory `source` is."""
    while isinstance(source, OpOutput) and graph.op_by_name[source.op].type in VIEWS:
        source = graph.tensor_inputs(graph.op_by_name[source.op])[0]
    return source
