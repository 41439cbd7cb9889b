"""Tensors that a network changes in place, `x += y`, and reads afterwards by another name."""

from ms_symtensor.bridge.compiler.node_graph import Node, NodeGraph
from ms_symtensor.errors import InputError
from ms_symtensor.tensor.graph import OpOutput, Source, flat

_IN_PLACE, _VIEW = "Inplace", "View"  # how MindSpore's names of such operators begin, and end


def require_one_name(graph: NodeGraph) -> None:
    """InputError where an operator reads a tensor after it was changed in place, other than by what the change returns.

    On one device both are one memory. In a partitioned program MindSpore may have sliced or gathered the tensor before it changes
    it, and the other reader has the values of before. `graph`: as MindSpore wrote it, copies (TensorMove) included.
    """
    makers = {node.name: node for node in graph.nodes}
    places = {node.name: place for place, node in enumerate(graph.nodes)}
    readers: dict[Source, list[Node]] = {}
    for node in graph.nodes:
        for source in flat(node.inputs):
            readers.setdefault(source, []).append(node)
    for node in graph.nodes:
        if not node.type.startswith(_IN_PLACE) or not node.inputs:
            continue
        for changed in _memory(node.inputs[0], makers):
            if any(places[reader.name] > places[node.name] for reader in readers[changed]):
                raise InputError(
                    f"{node.name} ({node.type}) changes in place what {changed.op} made, which is read afterwards by its old"
                    " name: a partitioned program changes a copy; write x = x + y (ops.add, …) in the place of x += y there"
                )


def _memory(source: Source, makers: dict[str, Node]) -> list[OpOutput]:
    """`source`, and the tensors that it is a view of."""
    found: list[OpOutput] = []
    while isinstance(source, OpOutput):
        found.append(source)
        maker = makers[source.op]
        if not maker.type.endswith(_VIEW):
            break
        source = maker.inputs[0]
    return found
