"""Operators that are left out of what MindSpore records: copies of views, and the state of random numbers."""

from dataclasses import replace

from ms_symtensor.bridge.compiler.node_graph import NodeGraph
from ms_symtensor.tensor.graph import Constant, OpOutput, ParameterRef, Source, flat, replaced


def without_copies(graph: NodeGraph) -> NodeGraph:
    """`graph` without the copies that MindSpore makes where a network has views (`mint.chunk`, …) or changes tensors in place, of
    what is read again: operators read the tensors themselves. MindSpore partitions it so, and copies the slices afterwards.
    """
    copied = {node.name: node.inputs[0] for node in graph.nodes if node.type == "TensorMove"}

    def read(source: Source) -> Source:
        return replaced(copied[source.op], read) if isinstance(source, OpOutput) and source.op in copied else source

    return graph.rewired(copied, read)


def without_generators(graph: NodeGraph) -> NodeGraph:
    """`graph` without the operators that advance the state of mint's random numbers, which lies outside the network, and without
    their parameters, which every rank has whole: seeds and offsets are constants to a planner.
    """
    drawn = {node.name: node for node in graph.nodes if node.type == "Generator"}

    def read(source: Source) -> Source:
        if isinstance(source, OpOutput) and source.op in drawn:
            return Constant(tensor=drawn[source.op].outputs[source.index])
        return source

    states = {s.name for node in drawn.values() for s in flat(node.inputs) if isinstance(s, ParameterRef)}
    parameters = tuple(p for p in graph.parameters if p[0] not in states)
    return replace(graph.rewired(drawn, read), parameters=parameters)
