"""The turn of a step: the operator behind the blocks at whose forward run the most is alive.

At the end of the forward pass all that the backward pass needs is there; and the loss makes large tensors that no gradient
reads (logits less their maximum, times the targets). The memory of the search is what is alive while one operator runs: what is
kept for the gradients by then, and what that operator reads and makes for itself. Whichever operator it is, the true peak is no
smaller; here it is the one at which the most would be alive if nothing were cut.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ms_symtensor.program.gradients import is_kept, kept_outputs
from ms_symtensor.program.liveness import VIEWS
from ms_symtensor.search.tables.tensors import End, Tensor
from ms_symtensor.search.tables.variables import Variables
from ms_symtensor.tensor.dtype import size_B
from ms_symtensor.tensor.graph import Graph, Op, OpOutput, Source, TensorType


@dataclass(frozen=True)
class Passing:
    """A tensor that is there for the turn alone: the end in whose layout it is, its type, whether it grows with the batch."""

    end: End
    kind: TensorType
    power: int


@dataclass(frozen=True)
class Turn:
    """The operator is that of variable `number`; `passing` is alive while it runs, beside what variables up to it keep.

    `number` is None where no operator stands behind the blocks; then all counts that is kept.
    """

    number: int | None = None
    passing: tuple[Passing, ...] = ()

    def keeps(self, end: End) -> bool:
        """Whether what is kept at `end` is there by then."""
        return self.number is None or end[0] <= self.number


def turn(
    graph: Graph, known: Variables, found: Iterable[Tensor], blocks: Collection[str], weights: Iterable[int]
) -> Turn:
    """The turn of `graph`, whose tensors are `found`, behind its repeated `blocks` and all variables that read `weights`."""
    last = max((place for place, op in enumerate(graph.ops) if op.block in blocks), default=-1)
    first = max(weights, default=0)
    behind = [op for op in graph.ops[last + 1 :] if known.index.get(op.name, -1) >= first]
    if not behind:
        return Turn()
    kept = [(_since(tensor), math.prod(tensor.shape) * size_B(tensor.dtype)) for tensor in found]
    turns = [Turn(known.index[op.name], tuple(_passing(graph, known, op))) for op in behind]

    def alive_B(of: Turn) -> int:
        assert of.number is not None
        passing = sum(math.prod(one.kind.shape) * size_B(one.kind.dtype) for one in of.passing)
        return passing + sum(bytes_ for since, bytes_ in kept if since <= of.number)

    return max(turns, key=lambda one: (alive_B(one), one.number or 0))


def _since(tensor: Tensor) -> float:
    """The number of the variable from whose turn on `tensor` is kept; inf if it never is."""
    readers = [max(tensor.maker[0], reader.end[0]) for reader in tensor.readers if reader.kept]
    return min([*readers, *([tensor.maker[0]] if tensor.maker_keeps else [])], default=math.inf)


def _passing(graph: Graph, known: Variables, op: Op) -> list[Passing]:
    """What `op` reads and makes and no operator up to it keeps, each tensor once; views and weights are left out."""
    number, found = known.index[op.name], []
    for position, source in enumerate(graph.tensor_inputs(op)):
        is_first = source not in graph.tensor_inputs(op)[:position]
        if is_first and _owns_memory(graph, known, source) and not _is_kept_by(graph, known, source, number):
            found.append(_passing_at(graph, known, source, (number, "in", position)))
    for index, source in enumerate(op.results):
        if source != graph.output and op.type not in VIEWS and not _is_kept_by(graph, known, source, number):
            found.append(_passing_at(graph, known, source, (number, "out", index)))
    return found


def _passing_at(graph: Graph, known: Variables, source: Source, end: End) -> Passing:
    kind = graph.type_of(source)
    assert kind is not None
    return Passing(end, kind, known.power_of(source))


def _owns_memory(graph: Graph, known: Variables, source: Source) -> bool:
    """Whether `source` is made by an operator with a strategy and only read by such; and is no view, nor has any."""
    if not isinstance(source, OpOutput):
        return False
    around = (graph.op_by_name[source.op], *(user for user, _ in graph.users.get(source, ())))
    return all(op.name in known.index and op.type not in VIEWS for op in around)


def _is_kept_by(graph: Graph, known: Variables, source: Source, number: int) -> bool:
    """Whether a gradient reads `source` at an operator with a variable up to `number`."""
    if isinstance(source, OpOutput):
        made = graph.op_by_name[source.op]
        if source.index in kept_outputs(graph, known.signatures[source.op], known.gradients, made):
            return True
    return any(
        known.index.get(user.name, number + 1) <= number
        and is_kept(graph, known.signatures[user.name], known.gradients, user, position)
        for user, position in graph.users.get(source, ())
    )
