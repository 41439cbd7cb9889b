"""Which operator belongs to which instance of a repeated block."""

from collections.abc import Mapping, Sequence

from ms_symtensor.bridge.compiler.node_graph import Node
from ms_symtensor.tensor.graph import OpOutput, ParameterRef, flat


def block_of_path(path: Sequence[str]) -> str | None:
    """`"layers.3"` for anything inside `layers[3]`: the first numbered child on the way is a repeated block."""
    for depth, part in enumerate(path):
        if part.isdigit() and depth:
            return ".".join(path[: depth + 1])
    return None


def block_of_ops(nodes: Sequence[Node], owners: Mapping[str, Sequence[str]]) -> dict[str, str | None]:
    """The block of every node, by its name; `owners` tells the path of the cell that owns its primitive, or ().

    An operator that no cell owns (`x + y`, a Cast) is placed by the parameters that it reads, else by its scope.
    MindSpore gives all operators made by one piece of Python code the scope of the first, so a scope that lags
    behind the operator's inputs is corrected: the operator is where its latest input comes from.
    """
    blocks: dict[str, str | None] = {}
    latest: dict[str, int] = {}  # of each container, the last block reached so far
    for node in nodes:
        block = block_of_path(owners[node.name]) if owners[node.name] else _placed(node, blocks, latest)
        blocks[node.name] = block
        if block is not None:
            container, index = _split(block)
            latest[container] = max(latest.get(container, index), index)
    return blocks


def _placed(node: Node, blocks: Mapping[str, str | None], latest: Mapping[str, int]) -> str | None:
    sources = list(flat(node.inputs))
    for source in sources:
        if isinstance(source, ParameterRef) and (block := block_of_path(source.name.split("."))):
            return block
    block = block_of_path([part.split("-", 1)[0] for part in node.name.split("/")[1:-1]])
    if block is None:
        return None
    container, index = _split(block)
    producers = [blocks[source.op] for source in sources if isinstance(source, OpOutput)]
    reached = [_split(b)[1] for b in producers if b is not None and _split(b)[0] == container]
    if reached:
        return f"{container}.{max(index, *reached)}"
    return block if latest.get(container, index) <= index else None


def _split(block: str) -> tuple[str, int]:
    container, _, index = block.rpartition(".")
    return container, int(index)
