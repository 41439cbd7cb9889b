"""A deep network at another batch, made from a short one at that batch: only types change, and those of all blocks alike."""

from ms_symtensor.search.folded.folding import Fold, fold
from ms_symtensor.tensor.graph import Constant, Graph, Op, OpOutput, Source, TupleInput


def rebatched(whole: Graph, folded: Fold, short: Graph) -> Graph | None:
    """`whole`, whose fold is `folded`, at the batch of `short`, the same network with fewer of its blocks.

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
