"""Lists of cells in which nothing repeats, such as a head that is a SequentialCell: no blocks beside lists of repeated ones."""

from dataclasses import replace

from ms_symtensor.search.folded.folding import fold
from ms_symtensor.tensor.graph import Graph


def without_lone_blocks(graph: Graph) -> Graph:
    """`graph` with members of such lists outside the blocks, where they stand before the first or behind the last block that has
    a twin. What stands between these stays a block: a pipeline goes through it.
    """
    blocks, alike = graph.blocks, {name for names in fold(graph).kinds if len(names) > 1 for name in names}
    places = [place for place, name in enumerate(blocks) if name in alike]
    if not places or len(places) == len(blocks):
        return graph
    repeating = {_list_of(name) for name in alike}
    ends = (*blocks[: places[0]], *blocks[places[-1] + 1 :])
    lone = {name for name in ends if _list_of(name) not in repeating}
    return replace(graph, ops=tuple(replace(op, block=None) if op.block in lone else op for op in graph.ops))


def _list_of(block: str) -> str:
    return block.rpartition(".")[0]
