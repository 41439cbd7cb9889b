"""Why a network stays whole: it has no stages nor micro-batches, or one virtual stage."""

from itertools import chain

from ms_symtensor.search.folded.folding import fold
from ms_symtensor.tensor.graph import Constant, Graph, ParameterRef, sources_of


def why_whole(graph: Graph) -> str:
    """Why `graph` is neither divided into stages nor into micro-batches: blocks must stand at places that screening knows, kind
    after kind. Empty if all do.
    """
    blocks, folded = graph.blocks, fold(graph)
    if not blocks:
        return "it has no repeated blocks (cells of one list)"
    if not folded.kinds:
        return f"{blocks[0]} is like no other block"
    for periods in folded.periods:
        names = [*chain.from_iterable(periods)]
        between = blocks[blocks.index(names[0]) : blocks.index(names[-1])]
        if others := [name for name in between if name not in names]:
            return f"{others[0]} stands between {names[0]} and {names[-1]}, and is not like them"
    return ""


def why_one_run(graph: Graph) -> str:
    """Why a stage of `graph` may not hold several model chunks. Empty if it may.

    MindSpore leaves parameters of other stages in a stage that functional operators read outside the blocks, and rejects what
    blocks make of constants alone.
    """
    if made := _constants(graph):
        return f"blocks use {made}, which a functional operator makes of constants"
    outside = (op for op in graph.ops if op.block is None)
    reads = ((source, op) for op in outside for source in sources_of(op) if isinstance(source, ParameterRef))
    bare = next((op for _, op in reads if op.is_on_the_fly and op.type != "Cast"), None)
    return "" if bare is None else f"{bare.name} ({bare.type}) reads a weight and has no primitive of its own"


def _constants(graph: Graph) -> str:
    """What blocks may make of constants alone (functional operators: `ops.zeros(…)`).

    MindSpore 2.10.0 rejects these in interleaved stages ("no manager for this func graph"), but takes those that are a Tensor of
    a cell, or that a cell's primitive makes. The graph does not tell them apart: what a primitive reads is taken for the latter.
    """
    for op in graph.ops:
        if op.is_on_the_fly and any(isinstance(s, Constant) and s.tensor and s.tensor.shape for s in sources_of(op)):
            readers = [user.block for result in op.results for user, _ in graph.users.get(result, ())]
            alone = all(isinstance(source, Constant) for source in sources_of(op))
            if op.block is not None or (alone and any(readers)):
                return f"{op.name} ({op.type})"
    return ""
