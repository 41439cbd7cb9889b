"""Copies that MindSpore makes where a network has views (`mint.chunk`, …) or changes tensors in place, of what is read again."""

from dataclasses import replace

from ms_symtensor.bridge.compiler.node_graph import NodeGraph
from ms_symtensor.tensor.graph import OpOutput, Source, TupleInput


def without_copies(graph: NodeGraph) -> NodeGraph:
    """`graph` whose operators read the tensors themselves: MindSpore partitions it so, and copies the slices afterwards."""
    copied: dict[Source, Source] = {
        OpOutput(node.name): node.inputs[0] for node in graph.nodes if node.type == "TensorMove"
    }
    if not copied:
        return graph

    def read(source: Source) -> Source:
        if isinstance(source, TupleInput):
            return TupleInput(tuple(map(read, source.items)))
        return read(copied[source]) if source in copied else source

    return replace(
        graph,
        nodes=tuple(
            replace(node, inputs=tuple(map(read, node.inputs)))
            for node in graph.nodes
            if OpOutput(node.name) not in copied
        ),
        output=read(graph.output),
    )
