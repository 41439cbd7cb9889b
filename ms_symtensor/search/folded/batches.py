"""A network at another batch: which dims of its tensors grow, and a deep one made from a short one at that batch."""

from collections.abc import Mapping

from ms_symtensor.errors import InputError
from ms_symtensor.search.folded.folding import Fold, fold
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, Op, OpOutput, Source, TensorType, TupleInput


def batch_powers(graph: Graph, other: Graph) -> Mapping[Source, tuple[int, ...]]:
    """Per tensor of `graph` that differs in `other`, the same network at another batch: 1 for a dim that grows, else 0.

    InputError if the two are not the same network, or a dim grows otherwise than with the batch.
    """
    if [(op.name, op.type) for op in graph.ops] != [(op.name, op.type) for op in other.ops]:
        raise InputError(f"{graph.name} has other operators at another batch: its batch cannot be planned")
    ratio: tuple[int, int] | None = None
    found: dict[Source, tuple[int, ...]] = {}
    pairs: list[tuple[Source, TensorType, TensorType]] = [
        (InputRef(name), first, second) for (name, first), (_, second) in zip(graph.inputs, other.inputs, strict=True)
    ]
    for one, two in zip(graph.ops, other.ops, strict=True):
        pairs += zip(one.results, one.outputs, two.outputs, strict=True)
    for source, first, second in pairs:
        if first.shape == second.shape:
            continue
        powers = []
        for n, m in zip(first.shape, second.shape, strict=True):
            ratio = ratio or ((n, m) if n != m else None)
            if n != m and ratio is not None and n * ratio[1] != m * ratio[0]:
                raise InputError(f"{graph.name}: a dim of {source} does not grow with the batch but from {n} to {m}")
            powers.append(int(n != m))
        found[source] = tuple(powers)
    return found


def rebatched(whole: Graph, folded: Fold, short: Graph) -> Graph | None:
    """`whole`, whose fold is `folded`, at the batch of `short`, the same network with fewer of its blocks: only types change, and
    those of all blocks alike.

    None where `short` lacks a kind of blocks.
    """
    alike = fold(short).members
    if len(alike) != len(folded.members):
        return None
    ops = {op.name: _retyped(op, few[0]) for ops, few in zip(folded.members, alike, strict=True) for op in ops}
    return Graph(
        whole.name,
        short.inputs,
        whole.parameters,
        tuple(ops[op.name] for op in whole.ops),
        whole.output,
        whole.attributes,
    )


def _retyped(op: Op, like: Op) -> Op:
    """`op` with the types and constants of `like`."""
    pairs = zip(op.inputs, like.inputs, strict=True)
    inputs = tuple([mine if isinstance(mine, OpOutput) else _with_constants(mine, its) for mine, its in pairs])
    kept = op.cell, op.primitive, op.block, like.body, op.part
    return Op(op.name, op.type, inputs, like.outputs, like.attributes, *kept)


def _with_constants(source: Source, like: Source) -> Source:
    """`source`, or where it is a constant, `like`."""
    if isinstance(source, Constant):
        return like
    if isinstance(source, TupleInput) and isinstance(like, TupleInput):
        return TupleInput(tuple(map(_with_constants, source.items, like.items)))
    return source
