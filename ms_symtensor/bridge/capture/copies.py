"""Copies of parameters that MindSpore makes where a network has views (`mint.chunk`, …) and reads a parameter several times."""

from dataclasses import replace

from ms_symtensor.bridge.compiler.node_graph import NodeGraph
from ms_symtensor.tensor.graph import OpOutput, ParameterRef, Source, TupleInput


def without_copies(graph: NodeGraph) -> NodeGraph:
    """`graph` whose operators read these parameters themselves: MindSpore partitions it so, and copies the slices afterwards."""
    copied: dict[Source, Source] = {
        OpOutput(node.name): node.inputs[0]
        for node in graph.nodes
        if node.type == "TensorMove" and isinstance(node.inputs[0], ParameterRef)
    }
    if not copied:
        return graph

    def read(source: Source) -> Source:
        return (
            TupleInput(tuple(map(read, source.items))) if isinstance(source, TupleInput) else copied.get(source, source)
        )

    return replace(
        graph,
        nodes=tuple(
            replace(node, inputs=tuple(map(read, node.inputs)))
            for node in graph.nodes
            if OpOutput(node.name) not in copied
        ),
        output=read(graph.output),
    )
