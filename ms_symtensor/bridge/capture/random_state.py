"""The state of mint's random numbers, which lies outside the network: seeds and offsets are constants to a planner."""

from dataclasses import replace

from ms_symtensor.bridge.compiler.node_graph import NodeGraph
from ms_symtensor.tensor.graph import Constant, OpOutput, ParameterRef, Source, TupleInput, flat

_GENERATOR = "Generator"


def without_generators(graph: NodeGraph) -> NodeGraph:
    """`graph` without the operators that advance that state, and without their parameters, which every rank has whole."""
    drawn = {node.name: node for node in graph.nodes if node.type == _GENERATOR}
    if not drawn:
        return graph

    def read(source: Source) -> Source:
        match source:
            case TupleInput(items):
                return TupleInput(tuple(map(read, items)))
            case OpOutput(op, index) if op in drawn:
                return Constant(tensor=drawn[op].outputs[index])
        return source

    states = {s.name for node in drawn.values() for s in flat(node.inputs) if isinstance(s, ParameterRef)}
    return replace(
        graph,
        nodes=tuple(
            replace(node, inputs=tuple(map(read, node.inputs))) for node in graph.nodes if node.name not in drawn
        ),
        parameters=tuple(p for p in graph.parameters if p[0] not in states),
        output=read(graph.output),
    )
